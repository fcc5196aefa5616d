"""Whatever fails, dies and goes on in whatever order: no job is lost, none is done twice.

The scheduler, the breaker and the trajectories are the real ones, under a simulated clock. What a process
would leave at its death is what its events say, as a journal holds them.
"""

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field

import anyio
from hypothesis import given, settings
from hypothesis import strategies as st
from support.builders import RULES, answer, bash, job
from support.fake_engine import FakeEngine
from support.fake_sandbox import FakeSandbox, result

from runner.breaker import Breaker, BreakerPolicy, PausedTooLongError
from runner.engines.base import EngineUnavailableError, GenerationRequest, TrajectoryKey
from runner.events import (
    Event,
    InfrastructureRetry,
    RunContinued,
    RunPaused,
    Terminated,
    TrajectoryStarted,
    TurnDone,
    Unfinished,
)
from runner.groups import first_error_only
from runner.scheduler import RetryPolicy, Scheduler
from runner.simulation.clock import run_in_virtual_time
from runner.trajectory import Job, TrajectoryRunner
from sandbox import ActionResult, SandboxInfrastructureError

ATTEMPTS = 3
POLICY = BreakerPolicy(failures=4, first_probe_s=2, probe_cap_s=20, give_up_s=200, free_failures=6)


@dataclass(frozen=True)
class Fate:
    """What happens to a run. Times in seconds from each part's start."""

    jobs: int
    in_flight: int
    latencies_s: tuple[float, ...]
    """Of turns and commands, over and over."""
    fails: frozenset[int]
    """The how-many-th turn or command fails by itself."""
    poisoned: frozenset[int]
    """Rows whose own prompt fails, always."""
    engine_out_s: tuple[float, float]
    sandbox_out_s: tuple[float, float]
    deaths_s: tuple[float, ...]
    """When each part of the run is killed; one more part is not."""


FATES = st.builds(
    Fate,
    jobs=st.integers(1, 10),
    in_flight=st.integers(1, 5),
    latencies_s=st.lists(st.sampled_from([0.0, 0.5, 1.0, 7.0]), min_size=1, max_size=5).map(tuple),
    fails=st.frozensets(st.integers(0, 60), max_size=25),
    poisoned=st.frozensets(st.integers(0, 9), max_size=6),
    engine_out_s=st.tuples(st.floats(0, 30), st.floats(0, 400)),
    sandbox_out_s=st.tuples(st.floats(0, 30), st.floats(0, 400)),
    deaths_s=st.lists(st.floats(0, 300), max_size=4).map(tuple),
)


@dataclass
class World:
    """Engine and sandbox of one fate, over all parts of the run."""

    fate: Fate
    done: int = 0
    events: list[Event] = field(default_factory=list)
    running: int = 0
    most_running: int = 0
    part_began: float = 0.0

    async def _happens(self, out_s: tuple[float, float], failure: type[Exception]) -> None:
        number = self.done
        self.done += 1
        latencies = self.fate.latencies_s
        await anyio.sleep(latencies[number % len(latencies)])
        since, lasts = out_s
        moment = anyio.current_time() - self.part_began
        if number in self.fate.fails or since <= moment < since + lasts:
            raise failure("dead")

    async def turn(self, request: GenerationRequest) -> str:
        if int(request.key.problem_id[1:]) in self.fate.poisoned:
            raise EngineUnavailableError("this prompt kills engines")
        await self._happens(self.fate.engine_out_s, EngineUnavailableError)
        return bash("true") if request.turn == 0 else answer("42")

    async def command(self, _: str) -> ActionResult:
        await self._happens(self.fate.sandbox_out_s, SandboxInfrastructureError)
        return result()

    def emit(self, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, TrajectoryStarted):
            self.running += 1
            self.most_running = max(self.most_running, self.running)
        elif isinstance(event, Terminated | InfrastructureRetry | Unfinished):
            self.running -= 1

    async def part(self, jobs: list[Job], death_s: float | None) -> None:
        """Run what is missing until all of it has ended, the run gives up, or it is killed."""
        self.running, self.part_began = 0, anyio.current_time()
        trajectories = TrajectoryRunner(
            RULES,
            FakeEngine(self.turn),
            FakeSandbox(self.command),
            generation=anyio.Semaphore(2),
            tools=anyio.Semaphore(2),
            emit=self.emit,
        )
        scheduler = Scheduler(
            trajectories,
            in_flight=self.fate.in_flight,
            retry=RetryPolicy(attempts=ATTEMPTS, wait_s=0.5),
            emit=self.emit,
            breaker=Breaker(POLICY, emit=self.emit),
        )
        killed = anyio.move_on_after(1e9 if death_s is None else death_s)
        with killed, suppress(PausedTooLongError), first_error_only():
            await scheduler.run(jobs)


def missing(jobs: list[Job], events: list[Event]) -> list[Job]:
    """What a resumed run has to do, as the state's reducer has it."""
    scored = {one.key for one in events if isinstance(one, Terminated)}
    return [one for one in jobs if one.key not in scored]


@settings(max_examples=150)
@given(fate=FATES)
def test_no_job_is_lost_or_done_twice_under_any_order_of_ends_deaths_and_resumes(fate: Fate) -> None:
    jobs = [job(f"p{row}", row=row) for row in range(fate.jobs)]
    world = World(fate)

    async def live() -> None:
        for death_s in fate.deaths_s:
            await world.part(missing(jobs, world.events), death_s)
        # What happened by then is over: a last part without faults.
        world.fate = Fate(
            fate.jobs, fate.in_flight, fate.latencies_s, frozenset(), frozenset(), (0.0, 0.0), (0.0, 0.0), ()
        )
        await world.part(missing(jobs, world.events), None)

    run_in_virtual_time(live)

    ended = Counter(one.key for one in world.events if isinstance(one, Terminated))
    assert ended == {one.key: 1 for one in jobs}
    assert world.most_running <= fate.in_flight


@settings(max_examples=150)
@given(fate=FATES)
def test_one_part_s_events_tell_of_every_job_once_and_in_order(fate: Fate) -> None:
    """Whatever fails: each job is scored, given up, or left when the run gave up; never two of these."""
    jobs = [job(f"p{row}", row=row) for row in range(fate.jobs)]
    world = World(fate)
    run_in_virtual_time(world.part, jobs, None)

    pauses = [one for one in world.events if isinstance(one, RunPaused | RunContinued)]
    gave_up = bool(pauses) and isinstance(pauses[-1], RunPaused)
    ends = Counter(one.key for one in world.events if isinstance(one, Terminated | Unfinished))
    assert all(count == 1 for count in ends.values())
    assert gave_up or set(ends) == {one.key for one in jobs}
    attempts: dict[TrajectoryKey, int] = {}
    for one in world.events:
        if isinstance(one, TrajectoryStarted):
            assert one.attempt == attempts.get(one.key, 0) + 1
            attempts[one.key] = one.attempt
        elif isinstance(one, TurnDone | InfrastructureRetry | Terminated | Unfinished):
            assert one.attempt == attempts[one.key]
    # What was not held against a trajectory is bounded, and so are attempts in all.
    assert all(count <= ATTEMPTS + POLICY.free_failures + 1 for count in attempts.values())
