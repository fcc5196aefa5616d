"""The whole examination: all checks at once, each bounded, and what the command line says of it."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from doctor_support import a_host, a_question

from runner.doctor import Check, Report, State, examine
from runner.doctor.examination import ORDER
from runner.doctor.host import Space
from runner.engines.vllm.gpu import Gpu
from runner.errors import ExitCode, UserError
from tests.support.fake_sandbox import FakeSandbox, result

ROOT = Path(__file__).parents[3]
LIMIT_S = 30.0
"""Never reached where what is tested holds, however busy the machine."""


def check(state: State) -> Check:
    return Check("one", state, "seen", None, 0.1)


@pytest.mark.parametrize(
    ("states", "code"),
    [
        ((State.OK, State.SKIPPED), ExitCode.OK),
        ((State.OK, State.WARNING), ExitCode.OK),
        ((State.WARNING, State.FAILED), ExitCode.BAD_INPUT),
    ],
)
def test_only_a_failure_forbids_a_run(states: tuple[State, ...], code: ExitCode) -> None:
    report = Report("demo", tuple(check(state) for state in states))

    assert report.exit_code is code
    assert report.document()["ok"] is (code is ExitCode.OK)


def test_the_summary_counts_the_states() -> None:
    report = Report("demo", tuple(check(state) for state in (State.OK, State.FAILED, State.OK)))

    assert report.summary == "2 ok, 1 failed"


async def examined(
    monkeypatch: pytest.MonkeyPatch, *, timeout_s: float = 15.0, **changes: object
) -> dict[str, Check]:
    monkeypatch.setattr("runner.doctor.engines.check_packages", lambda: None)
    async with FakeSandbox(lambda _command: result("42\n")) as box:
        report = await examine(a_question(), a_host(**changes), sandbox=box, check_timeout_s=timeout_s)
    assert [one.name for one in report.checks] == list(ORDER)
    return {one.name: one for one in report.checks}


@pytest.mark.anyio
async def test_a_machine_in_order_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    checks = await examined(monkeypatch)

    states = {name: one.state for name, one in checks.items() if one.state is not State.OK}
    # The fake image has no digest of contents, and nothing was fetched yet.
    assert states == {
        "sandbox image": State.WARNING,
        "gold answers": State.SKIPPED,
        "model server": State.SKIPPED,
    }
    assert all(one.remedy for one in checks.values() if one.state in {State.WARNING, State.FAILED})


@pytest.mark.anyio
async def test_a_check_that_hangs_fails_alone_and_in_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    examined_by_then = threading.Event()
    released: list[bool] = []

    def hang() -> tuple[Gpu, ...]:
        released.append(examined_by_then.wait(LIMIT_S))
        return ()

    checks = await examined(monkeypatch, timeout_s=0.3, gpus=hang)
    examined_by_then.set()

    assert released == []
    assert checks["GPUs"].detail == "no answer within 0.3 s"
    assert checks["GPUs"].state is State.FAILED
    assert checks["driver"].state is State.OK


@pytest.mark.anyio
@pytest.mark.parametrize("error", [OSError("device is gone"), UserError("this is wrong", remedy="mend it")])
async def test_a_check_that_breaks_fails_alone(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def broken() -> None:
        raise error

    checks = await examined(monkeypatch, driver=broken)

    assert checks["driver"].state is State.FAILED
    assert checks["GPUs"].state is State.OK


@pytest.mark.anyio
async def test_checks_are_made_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus_asked, disk_asked = threading.Event(), threading.Event()

    def gpus_with_disk() -> tuple[Gpu, ...]:
        gpus_asked.set()
        met.append(disk_asked.wait(LIMIT_S))
        return ()

    def disk_with_gpus(_path: Path) -> Space:
        disk_asked.set()
        met.append(gpus_asked.wait(LIMIT_S))
        return Space(1, 1, 1)

    met: list[bool] = []
    await examined(monkeypatch, timeout_s=2 * LIMIT_S, gpus=gpus_with_disk, space=disk_with_gpus)

    # Disk looks at several places, one after the other.
    assert len(met) >= 4
    assert all(met)


# ── the command ──────────────────────────────────────────────────────────────────────────────────────────


def doctor(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    dead = {"DOCKER_HOST": f"unix://{cwd}/nobody.sock", "HOME": str(cwd), "COLUMNS": "120"}
    kept = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-m", "runner", "doctor", *arguments],
        cwd=cwd,
        env=kept | dead | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_without_an_engine_the_table_has_the_remedy_and_the_exit_code_is_2(tmp_path: Path) -> None:
    done = doctor("demo", cwd=tmp_path)

    assert (done.returncode, done.stderr) == (2, "")
    told = " ".join(done.stdout.split())
    assert "the Docker engine does not answer on" in told
    assert "remedy:" in told
    assert "all 20 are graded right" in told
    assert "mend what failed" in told
    assert list(tmp_path.iterdir()) == []


def test_json_has_every_check(tmp_path: Path) -> None:
    done = doctor("demo", "--json", cwd=tmp_path)

    document = json.loads(done.stdout)
    assert (document["profile"], document["ok"]) == ("demo", False)
    assert [one["name"] for one in document["checks"]] == list(ORDER)
    assert {"name", "state", "detail", "remedy", "seconds"} == set(document["checks"][0])


def test_the_profile_may_come_from_the_environment(tmp_path: Path) -> None:
    done = doctor("--json", cwd=tmp_path, RECOUNT_PROFILE="demo")

    assert json.loads(done.stdout)["profile"] == "demo"


def test_an_unknown_profile_is_one_message(tmp_path: Path) -> None:
    done = doctor("nothing", cwd=tmp_path)

    assert done.returncode == 2
    assert "error: no profile 'nothing'" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_model_of_the_environment_is_for_profiles_that_serve_one(tmp_path: Path) -> None:
    done = doctor("demo", "--json", cwd=tmp_path, RECOUNT_MODEL="/models/mine")

    assert json.loads(done.stdout)["profile"] == "demo"


def test_help_tells_the_exit_codes(tmp_path: Path) -> None:
    done = doctor("--help", cwd=tmp_path)

    assert done.returncode == 0
    assert "2 something has to be mended" in " ".join(done.stdout.split())
