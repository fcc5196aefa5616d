"""`recount sandbox` as a user meets it."""

import json
import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

from runner.cli.sandbox_views import limits_line, shell_code
from runner.errors import ExitCode
from sandbox import ActionResult, CapturedStream, Limit, SandboxPrerequisiteError, Usage
from sandbox.policy import load_policy
from sandbox.preflight import connect, inspect_engine

ROOT = Path(__file__).resolve().parents[2]
EMPTY = CapturedStream(b"", b"", 0, None)


def environment(**more: str) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "120", "NO_COLOR": "1"} | more


def recount(*arguments: str, typed: str | None = None, **more: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "runner", "sandbox", *arguments],
        env=environment(**more),
        input=(typed or "").encode(),
        capture_output=True,
        timeout=120,
        check=False,
    )


@pytest.fixture(scope="module")
def engine() -> None:
    try:
        api = connect()
        inspect_engine(api, load_policy("demo"), "test-cli-sandbox")
        api.close()
    except SandboxPrerequisiteError as error:
        pytest.skip(f"no usable Docker engine: {error}")


def ended(exit_code: int | None, *limits: Limit, stdout: CapturedStream = EMPTY) -> ActionResult:
    usage = Usage(0.1, None, None, None)
    return ActionResult(stdout, EMPTY, exit_code, exit_code is None, limits, usage)


@pytest.mark.parametrize(
    ("result", "code"),
    [(ended(0), 0), (ended(3), 3), (ended(-9), 137), (ended(-11), 139), (ended(None, Limit.TIME), 124)],
)
def test_the_exit_code_is_a_shells(result: ActionResult, code: int) -> None:
    assert shell_code(result) == code


@pytest.mark.parametrize(
    ("result", "told"),
    [
        (ended(0), None),
        (ended(3), None),
        (ended(-9, Limit.MEMORY), "limit reached: memory; killed by SIGKILL"),
        (ended(-40), "killed by signal 40"),
        (ended(None, Limit.OUTPUT), "limit reached: output"),
        (
            ended(0, stdout=CapturedStream(b"a", b"z", 10, None)),
            "8 bytes of stdout were dropped from its middle",
        ),
    ],
)
def test_limits_are_named(result: ActionResult, told: str | None) -> None:
    assert limits_line(result) == told


def test_a_policy_is_shown_whole_with_its_digest() -> None:
    done = recount("policy", "report")
    policy = load_policy("report")
    shown = done.stdout.decode()

    assert (done.returncode, done.stderr) == (0, b"")
    assert policy.digest() in shown
    assert all(name in shown for name in type(policy).model_fields)
    assert "commands and" in shown


def test_a_policy_as_json_is_the_policy() -> None:
    done = recount("policy", "demo", "--json")
    document = json.loads(done.stdout)
    policy = load_policy("demo")

    assert document["policy"] == policy.model_dump(mode="json")
    assert document["sha256"] == policy.digest()
    assert document["admission"]["actions"] >= 1


def test_a_policy_is_shown_where_no_engine_answers() -> None:
    done = recount("policy", DOCKER_HOST="unix:///nowhere.sock")

    assert done.returncode == 0
    assert b"no engine answers" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("check", "--policy", "nope"), "no sandbox policy 'nope'"),
        (("check",), "does not answer on"),
        (("run", "true"), "does not answer on"),
        (("clean",), "does not answer on"),
        (("attack", "gone.jsonl"), "gone.jsonl"),
    ],
)
def test_what_is_missing_is_one_message_and_code_2(arguments: tuple[str, ...], part: str) -> None:
    done = recount(*arguments, DOCKER_HOST="unix:///nowhere.sock")
    told = done.stderr.decode()

    assert (done.returncode, done.stdout) == (ExitCode.BAD_INPUT, b"")
    assert part in told
    assert told.count("error: ") == 1
    assert "Traceback" not in told


@pytest.mark.docker
@pytest.mark.usefixtures("engine")
def test_a_command_passes_its_bytes_and_its_code_on() -> None:
    done = recount("run", r"printf '\033[31m\0\377'; echo err >&2; exit 3")

    assert (done.returncode, done.stdout, done.stderr) == (3, b"\x1b[31m\0\xff", b"err\n")


@pytest.mark.docker
@pytest.mark.usefixtures("engine")
def test_a_time_out_is_named() -> None:
    done = recount("run", "sleep 9", "--timeout", "0.5")

    assert (done.returncode, done.stderr) == (124, b"sandbox: limit reached: time\n")


@pytest.mark.docker
@pytest.mark.usefixtures("engine")
def test_every_line_of_the_shell_is_an_action_in_one_workspace() -> None:
    done = recount("shell", typed="echo a > f; X=1\n\ncat f; echo ${X-unset}\nexit 3\n")

    assert (done.returncode, done.stdout) == (0, b"a\nunset\n")
    assert b"fresh container" in done.stderr


@pytest.mark.docker
@pytest.mark.usefixtures("engine")
def test_what_a_command_prints_reaches_a_terminal_cleaned() -> None:
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-m", "runner", "sandbox", "run", r"printf '\033]0;owned\a\033[2Jfine'"],
        env=environment(),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    shown = b""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and b"fine" not in shown:
        if select.select([ours], [], [], 1)[0]:
            shown += os.read(ours, 4096)
    assert child.wait(timeout=60) == 0
    os.close(ours)

    assert b"fine" in shown
    assert b"\x1b" not in shown
    assert b"owned" not in shown


@pytest.mark.docker
@pytest.mark.usefixtures("engine")
def test_an_attack_that_is_contained_exits_0_and_is_written_down(tmp_path: Path) -> None:
    attacks = tmp_path / "attacks.jsonl"
    lines = [
        {"id": "mount", "command": "mount -t tmpfs x /mnt", "expect": "not permitted"},
        {"id": "other", "command": "echo", "expect": ""},
        {"id": "escape", "command": r"printf '\033[2Jx'", "expect": "never raw"},
    ]
    attacks.write_text("".join(json.dumps(each) + "\n" for each in lines), encoding="utf-8")
    out = tmp_path / "out.json"

    done = recount("attack", str(attacks), "--only", "mount", "--only", "escape", "--json", str(out))

    assert done.returncode == 0, done.stderr
    assert b"2 attacks: 2 contained, 0 for a person to look at, 0 breaches" in done.stdout
    assert b"\x1b" not in done.stdout + out.read_bytes()
    assert [each["id"] for each in json.loads(out.read_text())["attacks"]] == ["mount", "escape"]


@pytest.mark.docker
@pytest.mark.usefixtures("engine")
def test_the_checks_hold_here() -> None:
    done = recount("check", "--json")
    found = json.loads(done.stdout)

    assert [each for each in found if not each["ok"]] == []
    assert done.returncode == 0


@pytest.mark.docker
@pytest.mark.usefixtures("engine")
def test_cleaning_removes_a_runs_things_and_nothing_that_is_not_labelled() -> None:
    api = connect()
    image = load_policy("demo").image
    ours = api.create_container(image, labels={"recount.run": "test-clean"}, network_disabled=True)["Id"]
    live = api.create_container(image, labels={"recount.run": "test-live"}, network_disabled=True)["Id"]
    other = api.create_container(image, network_disabled=True)["Id"]
    try:
        done = recount("clean", "--run", "test-clean")
        left = {entry["Id"] for entry in api.containers(all=True)}

        assert done.returncode == 0
        assert ours not in left
        assert {live, other} <= left
    finally:
        for container in (live, other):
            api.remove_container(container, force=True)
        api.close()


@pytest.mark.docker
@pytest.mark.usefixtures("engine")
def test_a_run_that_lives_is_not_cleaned_away() -> None:
    api = connect()
    image = load_policy("demo").image
    labels = {"recount.run": "test-living"}
    container = api.create_container(
        image, command=["hold"], labels=labels, stdin_open=True, network_disabled=True
    )["Id"]
    try:
        api.start(container)
        refused = recount("clean", "--run", "test-living")
        still = api.inspect_container(container)["State"]["Running"]
        forced = recount("clean", "--run", "test-living", "--force")

        assert (refused.returncode, still) == (ExitCode.BAD_INPUT, True)
        assert b"it lives" in refused.stderr
        assert forced.returncode == 0
        assert container not in {entry["Id"] for entry in api.containers(all=True)}
    finally:
        if container in {entry["Id"] for entry in api.containers(all=True)}:
            api.remove_container(container, force=True)
        api.close()
