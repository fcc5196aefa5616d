"""What a run tells of where it took place. What cannot be told has a reason, and costs no run."""

import shutil
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.final4_like import artifacts_of, plan_of, run_of

from runner.engines.vllm.gpu import Driver, Gpu
from runner.events import ProvenanceRecord, RunStarted, SourceRecord
from runner.journal import read_journal
from runner.provenance import NotToldError, Probes, checkout_source, gather_provenance

pytestmark = pytest.mark.anyio
SANDBOX = {"engine_version": "27.1"}


def probes(**changes: Any) -> Probes:
    values: dict[str, Any] = {
        "package": lambda name: f"{name}-1",
        "os_name": lambda: "An OS",
        "source": lambda: SourceRecord(commit="a" * 40, dirty=False),
        "gpus": lambda: (Gpu("H100", 80 << 30, capability=(9, 0)),),
        "driver": lambda: Driver("570.86", usable=True, cuda=(12, 8)),
        "environment": {"RECOUNT_IMAGE_ID": "sha256:1"},
    }
    return Probes(**values | changes)


async def test_what_is_there_is_told(tmp_path: Path) -> None:
    found = await gather_provenance(SANDBOX, artifacts_of(tmp_path), probes())

    assert found.not_told == {}
    assert found.versions["vllm"] == "vllm-1"
    assert (found.versions["os"], found.versions["docker_engine"]) == ("An OS", "27.1")
    assert found.source == SourceRecord(commit="a" * 40, dirty=False)
    assert found.gpus is not None
    assert (found.gpus[0].name, found.gpus[0].capability) == ("H100", (9, 0))
    assert found.driver is not None
    assert (found.driver.version, found.driver.cuda) == ("570.86", "12.8")
    assert found.artifacts is not None
    assert found.artifacts.sha256["model.safetensors"] == "2" * 64
    assert ProvenanceRecord.model_validate_json(found.model_dump_json()) == found


def broken(*_: object) -> Any:
    raise RuntimeError("a driver of another planet")


def absent(*_: object) -> Any:
    raise NotToldError("it is not here")


@pytest.mark.parametrize(
    ("probe", "why"), [(broken, "RuntimeError: a driver of another planet"), (absent, "it is not here")]
)
async def test_what_cannot_be_told_is_none_with_its_reason(probe: Callable[..., Any], why: str) -> None:
    found = await gather_provenance(
        {}, None, Probes(package=probe, os_name=probe, source=probe, gpus=probe, driver=probe, environment={})
    )

    assert (found.source, found.gpus, found.driver, found.artifacts) == (None, None, None, None)
    assert found.versions["python"] is not None
    for name in ("source", "gpus", "driver", "versions.os", "versions.vllm", "versions.ray"):
        assert found.not_told[name] == why
    assert {"artifacts", "runner_image", "versions.docker_engine"} < set(found.not_told)


async def test_a_probe_that_hangs_is_given_up() -> None:
    given_up = threading.Event()
    released: list[bool] = []
    hang = probes(gpus=lambda: released.append(given_up.wait(30)), timeout_s=0.1)
    found = await gather_provenance(SANDBOX, None, hang)
    given_up.set()

    assert released == []
    assert found.gpus is None
    assert found.not_told["gpus"] == "no answer within 0.1 s"
    assert found.driver is not None


async def test_a_run_writes_it_into_its_first_event_and_into_its_results(tmp_path: Path) -> None:
    outcome = await run_of(tmp_path, plan_of(tmp_path / "in", artifacts=artifacts_of(tmp_path / "in")))

    first = next(iter(read_journal(outcome.run_dir / "journal.jsonl")))
    assert isinstance(first, RunStarted)
    assert first.provenance is not None
    told = outcome.results["provenance"]
    assert told["hashes"]["artifacts"] == {
        "config.json": "1" * 64,
        "model.safetensors": "2" * 64,
        "eval4.json": told["hashes"]["published_rows"],
    }
    assert told["artifacts"]["unpinned"] == ["config.json"]
    assert set(told["hashes"]["data_sets"]) == {"dapo", "aime"}
    assert told["seeds"]["data_sets"] == {"dapo": 1000, "aime": 2000}
    assert len(told["hashes"]["published_rows"]) == 64
    assert told["not_told"]["images.sandbox"] == "the sandbox does not run in an image"


needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="there is no git here")


def git(directory: Path, *arguments: str) -> None:
    names = ("-c", "user.name=t", "-c", "user.email=t@t")
    subprocess.run(["git", *names, *arguments], cwd=directory, check=True, capture_output=True, timeout=60)


@needs_git
def test_a_checkout_tells_its_commit_and_whether_it_was_changed(tmp_path: Path) -> None:
    (tmp_path / "runner").mkdir()
    code = tmp_path / "runner" / "a.py"
    code.write_text("1\n")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "-m", "a")

    clean = checkout_source(tmp_path)
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "x").write_text("no source of ours")
    still = checkout_source(tmp_path)
    code.write_text("2\n")
    changed = checkout_source(tmp_path)

    assert len(clean.commit) == 40
    assert (clean.dirty, still.dirty, changed.dirty) == (False, False, True)
    assert changed.commit == clean.commit


def test_without_a_checkout_there_is_no_commit(tmp_path: Path) -> None:
    with pytest.raises(NotToldError, match="installed as a package"):
        checkout_source(tmp_path)


@needs_git
def test_a_checkout_that_git_does_not_read_has_a_reason(tmp_path: Path) -> None:
    (tmp_path / ".git").write_text("nonsense")

    with pytest.raises(NotToldError, match="git: "):
        checkout_source(tmp_path)
