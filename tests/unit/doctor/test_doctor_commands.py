"""The engine or the broker, the image, and one action."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from doctor_support import INFO, a_host, a_question
from typing_extensions import Self

from runner.doctor.commands import ACTION, IMAGE, SANDBOX, examine_commands, judge_engine, judge_image
from runner.doctor.examination import examine
from runner.doctor.host import Host, engine_info
from runner.doctor.question import Question
from runner.doctor.report import Finding, State
from sandbox import ActionResult, SandboxError, SandboxInfrastructureError, SandboxPrerequisiteError
from tests.support.fake_sandbox import FakeSandbox, result

pytestmark = pytest.mark.anyio


class Box(FakeSandbox):
    """A sandbox that says what it is, or does not open."""

    def __init__(
        self,
        answer: ActionResult | None = None,
        *,
        refuses: SandboxError | None = None,
        identity: dict[str, str] | None = None,
    ) -> None:
        super().__init__(lambda _command: answer or result("42\n"))
        self.refuses = refuses
        self.said = {
            "image": "recount-sandbox:latest",
            "image_id": "sha256:" + "a" * 64,
            "image_contents_sha256": "b" * 64,
            "agent_protocol": "1",
            "policy": "report",
            "engine_version": "28.2",
        } | (identity or {})

    async def identity(self) -> dict[str, str]:
        return self.said

    async def __aenter__(self) -> Self:
        if self.refuses is not None:
            raise self.refuses
        await super().__aenter__()
        return self


async def told(box: Box, *, question: Question | None = None, host: Host | None = None) -> dict[str, Finding]:
    findings: dict[str, Finding] = {}
    asked = question or a_question()
    await examine_commands(
        asked, host or a_host(), findings.__setitem__, sandbox=None, open_one=lambda _question: box
    )
    return findings


def states(findings: dict[str, Finding]) -> list[State]:
    return [findings[name].state for name in (SANDBOX, IMAGE, ACTION)]


async def test_a_sandbox_in_order_is_told_with_its_digests() -> None:
    found = await told(Box())

    assert states(found) == [State.OK] * 3
    assert found[SANDBOX].detail == "Docker 28.2 on unix:///var/run/docker.sock, policy report"
    assert "sha256:aaaaaaaaaaaa, contents bbbbbbbbbbbb" in found[IMAGE].detail


async def test_without_an_engine_the_rest_is_not_tried() -> None:
    def dead(_url: str | None) -> dict[str, Any]:
        raise SandboxPrerequisiteError("the Docker engine does not answer", "start it")

    found = await told(Box(), host=a_host(engine_info=dead))

    assert states(found) == [State.FAILED, State.SKIPPED, State.SKIPPED]
    assert found[SANDBOX].remedy == "start it"


async def test_without_an_image_the_engine_is_fine_and_the_image_is_not() -> None:
    missing = SandboxPrerequisiteError("the sandbox image is not on this engine", "build it")

    found = await told(Box(refuses=missing))

    assert states(found) == [State.OK, State.FAILED, State.SKIPPED]
    assert found[IMAGE].remedy == "build it"


async def test_a_broker_that_is_not_there_is_named() -> None:
    refused = SandboxPrerequisiteError("no sandbox broker serves us", "start one")

    found = await told(Box(refuses=refused), question=a_question(broker=Path("/run/b.sock")))

    assert states(found) == [State.FAILED, State.SKIPPED, State.SKIPPED]
    assert (found[SANDBOX].remedy or "").startswith("start one; docker compose logs")


async def test_the_engine_is_not_asked_where_there_is_a_broker() -> None:
    def forbidden(_url: str | None) -> dict[str, Any]:
        raise AssertionError("the runner has no socket of the engine")

    found = await told(
        Box(), question=a_question(broker=Path("/run/b.sock")), host=a_host(engine_info=forbidden)
    )

    assert found[SANDBOX].detail == "broker on /run/b.sock, Docker 28.2, policy report"


async def test_a_broker_under_another_policy_is_a_warning() -> None:
    box = Box(identity={"policy": "demo", "policy_sha256": "c" * 64})

    found = await told(box, question=a_question(broker=Path("/run/b.sock")))

    assert states(found) == [State.WARNING, State.OK, State.OK]
    assert "--policy report" in (found[SANDBOX].remedy or "")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (result("", "bash: python3: command not found\n", 127), "exited with 127: bash: python3"),
        (result("41\n"), "said '41'"),
        (result("", exit_code=None, timed_out=True), "exited with None"),
    ],
)
async def test_an_action_that_goes_wrong_is_a_failure(answer: ActionResult, said: str) -> None:
    found = await told(Box(answer))

    assert states(found) == [State.OK, State.OK, State.FAILED]
    assert said in found[ACTION].detail


async def test_an_open_sandbox_is_used_and_left_open() -> None:
    async with Box() as box:
        report = await examine(a_question("demo"), a_host(), sandbox=box)
        workspace = await box.open("still open")
        assert (await workspace.run("true", 1)).exit_code == 0

    by_name = {one.name: one for one in report.checks}
    assert by_name[ACTION].state is State.OK


async def test_a_sandbox_that_is_lost_meanwhile_fails_what_was_not_told() -> None:
    def lost(_command: str) -> ActionResult:
        raise SandboxInfrastructureError("the sandbox broker was lost")

    box = Box()
    box.on_run = lost
    async with box:
        report = await examine(a_question("demo"), a_host(), sandbox=box)

    by_name = {one.name: one for one in report.checks}
    assert by_name[IMAGE].state is State.OK
    assert (by_name[ACTION].state, by_name[ACTION].detail) == (State.FAILED, "the sandbox broker was lost")


@contextmanager
def hanging_daemon(directory: Path) -> Iterator[Path]:
    """A socket whose owner takes connections and never says a word."""
    path = directory / "hang.sock"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen(8)
        yield path


async def test_a_hanging_daemon_costs_its_time_out_and_fails(tmp_path: Path) -> None:
    with hanging_daemon(tmp_path) as path:
        address = f"unix://{path}"
        host = a_host(environment={"DOCKER_HOST": address}, engine_info=partial(engine_info, timeout_s=1.0))
        report = await examine(a_question("demo"), host)

    by_name = {one.name: one for one in report.checks}
    assert by_name[SANDBOX].state is State.FAILED
    assert "does not answer" in by_name[SANDBOX].detail
    assert by_name[SANDBOX].seconds < 5


@pytest.mark.parametrize(
    ("info", "state", "said"),
    [
        ({}, State.OK, "Docker 28.2"),
        ({"DockerRootDir": "/var/snap/docker/common/var-lib-docker"}, State.WARNING, "from snap"),
        ({"SecurityOptions": ["name=rootless", "name=cgroupns"]}, State.WARNING, "rootless"),
        (
            {"SecurityOptions": ["name=rootless"], "CgroupDriver": "none"},
            State.WARNING,
            "without control groups",
        ),
        ({"OperatingSystem": "Docker Desktop"}, State.WARNING, "Docker Desktop"),
        ({"SecurityOptions": ["name=selinux"]}, State.OK, "Docker 28.2"),
    ],
)
async def test_kinds_of_engines_with_troubles_of_their_own_are_named(
    info: dict[str, Any], state: State, said: str
) -> None:
    found = judge_engine(INFO | info, a_host())

    assert found.state is state
    assert said in found.detail


async def test_selinux_that_confines_containers_is_a_warning() -> None:
    host = a_host({"/sys/fs/selinux/enforce": "1"})

    found = judge_engine(INFO | {"SecurityOptions": ["name=selinux"]}, host)

    assert found.state is State.WARNING
    assert "label=disable" in (found.remedy or "")


async def test_an_image_that_does_not_say_what_it_holds_is_a_warning() -> None:
    assert judge_image({"image": "x", "image_id": "sha256:1"}).state is State.WARNING
