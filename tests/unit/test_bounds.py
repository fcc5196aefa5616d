"""No wait on an engine or a sandbox lasts for ever, and each that lasts too long says what it was for."""

from collections.abc import Callable

import anyio
import pytest
from support.builders import LIMITS, RULES, answer, bash, job
from support.fake_engine import FakeEngine
from support.fake_replica import in_virtual_time
from support.fake_sandbox import FakeSandbox
from typing_extensions import override

from runner import waiting
from runner.engines.base import EngineUnavailableError, GenerationRequest, Prompt
from runner.protocol.prompt import Message
from runner.trajectory import TrajectoryRunner
from runner.waiting import Waiting
from sandbox import ActionResult, SandboxInfrastructureError, Workspace


async def hang() -> None:
    await anyio.sleep_forever()


class RendersForEver(FakeEngine):
    @override
    async def render(self, messages: tuple[Message, ...]) -> Prompt:
        await hang()
        return await super().render(messages)


class OpensForEver(FakeSandbox):
    @override
    async def open(self, workspace_id: str) -> Workspace:
        await hang()
        return await super().open(workspace_id)


def solve(request: GenerationRequest) -> str:
    return bash("true") if request.turn == 0 else answer("42")


async def says_nothing(_: GenerationRequest) -> str:
    await hang()
    return ""


async def runs_for_ever(_: str) -> ActionResult:
    await hang()
    raise AssertionError("not reached")


CASES: dict[str, tuple[Callable[[], FakeEngine], Callable[[], FakeSandbox], type[Exception], str, float]] = {
    "a prompt is never counted": (
        lambda: RendersForEver(solve),
        FakeSandbox,
        EngineUnavailableError,
        r"the engine, for a prompt's tokens took more than 7200 s",
        waiting.RENDER_TIMEOUT_S,
    ),
    "a turn never ends": (
        lambda: FakeEngine(says_nothing),
        FakeSandbox,
        EngineUnavailableError,
        r"the engine, for turn 1 took more than 18000 s",
        waiting.GENERATE_TIMEOUT_S,
    ),
    "a workspace never opens": (
        lambda: FakeEngine(solve),
        OpensForEver,
        SandboxInfrastructureError,
        r"the sandbox, for a workspace took more than 3600 s",
        waiting.OPEN_TIMEOUT_S,
    ),
    "a command never ends": (
        lambda: FakeEngine(solve),
        lambda: FakeSandbox(runs_for_ever),
        SandboxInfrastructureError,
        r"the sandbox, for a command took more than 3602 s",
        LIMITS.tool_timeout_s + waiting.RUN_EXTRA_S,
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_what_hangs_ends_as_a_failure_of_ours_that_names_it(
    case: tuple[Callable[[], FakeEngine], Callable[[], FakeSandbox], type[Exception], str, float],
) -> None:
    make_engine, make_sandbox, kind, message, limit_s = case

    @in_virtual_time
    async def play() -> None:
        kept = Waiting()
        trajectories = TrajectoryRunner(
            RULES,
            make_engine(),
            make_sandbox(),
            generation=anyio.Semaphore(1),
            tools=anyio.Semaphore(1),
            emit=lambda _: None,
            waiting=kept,
        )
        with pytest.raises(kind, match=message):
            await trajectories.run(job(), 1)
        assert anyio.current_time() == pytest.approx(limit_s, abs=1)
        assert kept.now() == []

    play()


@in_virtual_time
async def test_a_workspace_that_does_not_close_holds_up_nothing() -> None:
    trajectories = TrajectoryRunner(
        RULES,
        FakeEngine(solve),
        FakeSandbox(on_close=hang),
        generation=anyio.Semaphore(1),
        tools=anyio.Semaphore(1),
        emit=lambda _: None,
    )
    assert (await trajectories.run(job(), 1)).score == 1.0
    assert anyio.current_time() <= 6


@in_virtual_time
async def test_waits_are_kept_as_long_as_they_last_the_longest_first() -> None:
    kept = Waiting()
    with kept.on("a", "one thing"):
        await anyio.sleep(3)
        with kept.on("b", "another"):
            assert [(one.who, one.what, one.since) for one in kept.now()] == [
                ("a", "one thing", 0.0),
                ("b", "another", 3.0),
            ]
    assert kept.now() == []
