"""What a trajectory holds while it runs, workspace and permits, and what is left when it is cut short."""

from collections.abc import Callable
from typing import Any

import anyio
import pytest
from support.builders import answer, bash
from support.fake_engine import FakeEngine
from support.fake_sandbox import FakeSandbox, result
from support.plays import play, says
from typing_extensions import override

from runner.engines.base import (
    EngineUnavailableError,
)
from sandbox import ActionResult, SandboxInfrastructureError, Workspace

pytestmark = pytest.mark.anyio


async def test_one_workspace_serves_a_trajectory_and_is_closed() -> None:
    sandbox = FakeSandbox()

    await play(says(bash("a"), bash("b"), answer("42")), sandbox)

    assert [(one.commands, one.closed) for one in sandbox.workspaces] == [(["a", "b"], True)]
    assert sandbox.workspaces[0].id == "set/p0:sample00:1"


async def test_a_workspace_that_cannot_be_closed_undoes_nothing() -> None:
    async def fail() -> None:
        raise SandboxInfrastructureError("the daemon is gone")

    played, _ = await play(says(bash("a"), answer("42")), FakeSandbox(on_close=fail))

    assert played.terminated is not None
    assert played.terminated.score == 1.0


async def test_a_workspace_that_hangs_at_its_closing_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runner.trajectory.WORKSPACE_CLOSE_TIMEOUT_S", 0.05)
    with anyio.fail_after(5):
        played, _ = await play(says(bash("a"), answer("42")), FakeSandbox(on_close=anyio.sleep_forever))

    assert played.terminated is not None


@pytest.mark.parametrize("failure", [EngineUnavailableError("dead"), SandboxInfrastructureError("dead")])
async def test_a_failure_of_ours_leaves_without_a_termination_and_closes_the_workspace(
    failure: Exception,
) -> None:
    def run(command: str) -> ActionResult:
        if command == "second" and isinstance(failure, SandboxInfrastructureError):
            raise failure
        return result()

    sandbox = FakeSandbox(run)
    second = failure if isinstance(failure, EngineUnavailableError) else bash("second")

    with pytest.raises(type(failure), match="dead"):
        await play(says(bash("first"), second), sandbox)

    assert sandbox.workspaces[0].closed


async def test_cancellation_in_a_command_closes_the_workspace() -> None:
    running = anyio.Event()

    async def hang() -> ActionResult:
        running.set()
        await anyio.sleep_forever()
        raise RuntimeError("not reached")

    async def close() -> None:
        await anyio.sleep(0.01)

    sandbox = FakeSandbox(lambda _: hang(), on_close=close)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(play, says(bash("sleep")), sandbox)
        with anyio.fail_after(5):
            await running.wait()
        tasks.cancel_scope.cancel()

    assert sandbox.workspaces[0].closed


class Held:
    """A permit that says whether it is held."""

    def __init__(self) -> None:
        self.now = False

    async def __aenter__(self) -> None:
        self.now = True

    async def __aexit__(self, *_: object) -> None:
        self.now = False


async def test_no_permit_is_held_while_the_other_work_goes_on() -> None:
    generation, tools = Held(), Held()
    seen: list[tuple[str, bool, bool]] = []

    def note(what: str, then: Callable[[], Any]) -> Any:
        seen.append((what, generation.now, tools.now))
        return then()

    completions = iter([bash("ls"), answer("42")])
    engine = FakeEngine(lambda _: note("generate", lambda: next(completions)))
    sandbox = FakeSandbox(lambda _: note("tool", result))

    await play(engine, sandbox, generation=generation, tools=tools)

    assert seen == [("generate", True, False), ("tool", False, True), ("generate", True, False)]
    assert (generation.now, tools.now) == (False, False)


@pytest.mark.parametrize("command", ["", "sudo ls"])
async def test_what_runs_nothing_waits_for_no_tool(command: str) -> None:
    busy = anyio.Semaphore(0)
    with anyio.fail_after(5):
        played, _ = await play(says(*[bash(command)] * 4), tools=busy)

    assert played.terminated is not None


class Opens(FakeSandbox):
    """A sandbox that says what is held while a workspace is opened."""

    def __init__(self, tools: Held) -> None:
        super().__init__()
        self.tools = tools
        self.held: list[bool] = []

    @override
    async def open(self, workspace_id: str) -> Workspace:
        self.held.append(self.tools.now)
        return await super().open(workspace_id)


async def test_no_tool_permit_is_held_while_a_workspace_is_waited_for() -> None:
    tools = Held()
    sandbox = Opens(tools)

    await play(says(bash("ls"), answer("42")), sandbox, tools=tools)

    assert sandbox.held == [False]
