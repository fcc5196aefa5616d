"""One trajectory played through with made-up completions."""

from collections.abc import Iterator

import anyio

from runner.engines.base import (
    GenerationRequest,
)
from runner.events import Event
from runner.state import RunState, TrajectoryState
from runner.trajectory import Limits, Permit, Rules, TrajectoryRunner
from support.builders import LIMITS, PACK, SAMPLING, job
from support.fake_engine import FakeEngine
from support.fake_sandbox import FakeSandbox


def says(*completions: str | Exception) -> FakeEngine:
    """An engine that gives these completions one after another, or raises them."""
    left: Iterator[str | Exception] = iter(completions)

    def next_completion(_: GenerationRequest) -> str:
        said = next(left)
        if isinstance(said, Exception):
            raise said
        return said

    return FakeEngine(next_completion)


async def play(
    engine: FakeEngine,
    sandbox: FakeSandbox | None = None,
    *,
    limits: Limits = LIMITS,
    generation: Permit | None = None,
    tools: Permit | None = None,
    gold: str = "42",
) -> tuple[TrajectoryState, list[Event]]:
    """Run one trajectory; return what became of it and its events."""
    events: list[Event] = []
    state = RunState()

    def emit(event: Event) -> None:
        events.append(event)
        state.apply(event)  # type: ignore[arg-type]

    runner = TrajectoryRunner(
        Rules(PACK, limits, SAMPLING),
        engine,
        sandbox or FakeSandbox(),
        generation=generation or anyio.Semaphore(1),
        tools=tools or anyio.Semaphore(1),
        emit=emit,
    )
    one = job(gold=gold)
    await runner.run(one, 1)
    return state.trajectories[one.key], events
