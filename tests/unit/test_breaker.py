"""A run pauses for failures in a row of one class, probes, goes on by itself, and gives up in time."""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import anyio
import pytest
from support.builders import RULES, answer, bash, job
from support.fake_engine import FakeEngine
from support.fake_replica import in_virtual_time
from support.fake_sandbox import FakeSandbox, result

from runner.breaker import Breaker, BreakerPolicy, PausedTooLongError, fault_of
from runner.engines.base import EngineUnavailableError, GenerationRequest, ScriptExhaustedError
from runner.errors import InfrastructureError
from runner.events import (
    Event,
    Fault,
    InfrastructureRetry,
    RunContinued,
    RunExamined,
    RunPaused,
    Terminated,
    TrajectoryStarted,
    Unfinished,
)
from runner.groups import first_error_only
from runner.scheduler import RetryPolicy, Scheduler
from runner.trajectory import TrajectoryRunner
from sandbox import ActionResult, Limit, SandboxInfrastructureError, SandboxPrerequisiteError

POLICY = BreakerPolicy(failures=5, trajectories=2, first_probe_s=5, probe_cap_s=60, give_up_s=1800)
RETRY = RetryPolicy(attempts=3, wait_s=1.0)


def solve(request: GenerationRequest) -> str:
    return bash("true") if request.turn == 0 else answer("42")


@dataclass
class Seen:
    """What came of a run."""

    events: list[Event] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    revived: list[Fault] = field(default_factory=list)

    def of(self, kind: type[Event]) -> list[Event]:
        return [one for one in self.events if isinstance(one, kind)]


async def play(
    engine: FakeEngine,
    sandbox: FakeSandbox | None = None,
    *,
    seen: Seen | None = None,
    jobs: int = 12,
    in_flight: int = 6,
    policy: BreakerPolicy = POLICY,
    examine: Callable[[], object] | None = None,
) -> Seen:
    seen = seen or Seen()
    trajectories = TrajectoryRunner(
        RULES,
        engine,
        sandbox or FakeSandbox(),
        generation=anyio.Semaphore(100),
        tools=anyio.Semaphore(100),
        emit=seen.events.append,
    )
    breaker = Breaker(
        policy,
        emit=seen.events.append,
        tell=seen.told.append,
        examine=examine,  # type: ignore[arg-type]
        revive=seen.revived.append,
    )
    scheduler = Scheduler(
        trajectories, in_flight=in_flight, retry=RETRY, emit=seen.events.append, breaker=breaker
    )
    with first_error_only():
        await scheduler.run([job(f"p{row}", row=row) for row in range(jobs)])
    return seen


def dead_until(moment_s: float) -> FakeEngine:
    """Dead from 1 s on: the first turns come through."""

    def turn(request: GenerationRequest) -> str:
        if anyio.current_time() < moment_s:
            raise EngineUnavailableError("CUDA error")
        return solve(request)

    return FakeEngine(turn)


@in_virtual_time
async def test_engines_dying_in_a_row_pause_the_run_which_goes_on_when_they_are_back() -> None:
    seen = await play(dead_until(100))

    (paused,) = seen.of(RunPaused)
    (went_on,) = seen.of(RunContinued)
    assert isinstance(paused, RunPaused)
    assert isinstance(went_on, RunContinued)
    assert (paused.fault, paused.failures) == (Fault.ENGINE, 5)
    assert "CUDA error" in paused.cause
    # Probes after 5, 15, 35, 75 and 135 seconds of pause.
    assert (went_on.probes, round(went_on.paused_s)) == (5, 135)
    assert len(seen.of(Terminated)) == 12
    assert seen.of(Unfinished) == []
    assert seen.revived == [Fault.ENGINE] * 5
    assert "nothing begins until it works again" in seen.told[0]
    assert "works again" in seen.told[-1]


@in_virtual_time
async def test_failures_of_a_pause_use_up_no_attempts() -> None:
    """Six in flight fail, five probes fail: none of the trajectories is anywhere near three attempts used."""
    seen = await play(dead_until(400), jobs=2, in_flight=2, policy=BreakerPolicy(failures=3))

    attempts = Counter(one.key for one in seen.of(TrajectoryStarted) if isinstance(one, TrajectoryStarted))
    assert max(attempts.values()) > RETRY.attempts
    assert len(seen.of(Terminated)) == 2


@in_virtual_time
async def test_while_the_run_is_paused_one_attempt_at_a_time_begins() -> None:
    seen = await play(dead_until(300), in_flight=12)

    at = [index for index, one in enumerate(seen.events) if isinstance(one, RunPaused | RunContinued)]
    between = seen.events[at[0] : at[1]]
    going = 0
    for one in between:
        if isinstance(one, TrajectoryStarted):
            going += 1
        elif isinstance(one, InfrastructureRetry) and going:
            going -= 1
        assert going <= 1


@in_virtual_time
async def test_probes_take_turns_so_that_a_single_poisoned_trajectory_cannot_hold_the_run() -> None:
    def turn(request: GenerationRequest) -> str:
        if request.key.problem_id == "p0" or anyio.current_time() < 4:
            raise EngineUnavailableError("dead")
        return solve(request)

    seen = await play(FakeEngine(turn))

    assert len(seen.of(Terminated)) == 11
    assert [one.problem_id for one in seen.of(Unfinished) if isinstance(one, Unfinished)] == ["p0"]


@in_virtual_time
async def test_one_trajectory_alone_never_pauses_the_run() -> None:
    def turn(_: GenerationRequest) -> str:
        raise EngineUnavailableError("dead")

    policy = BreakerPolicy(failures=2)
    seen = await play(FakeEngine(turn), jobs=1, policy=policy)

    assert seen.of(RunPaused) == []
    assert len(seen.of(Unfinished)) == 1


@in_virtual_time
async def test_a_run_whose_engines_stay_dead_gives_up_in_time_and_scores_nothing() -> None:
    seen = Seen()
    with pytest.raises(PausedTooLongError, match=r"1800 s.*CUDA error") as raised:
        await play(dead_until(1e9), seen=seen)

    assert 1800 <= anyio.current_time() < 1830
    assert isinstance(raised.value, InfrastructureError)
    assert "--resume" in str(raised.value)
    assert seen.of(Terminated) == []
    assert seen.of(Unfinished) == []


@in_virtual_time
async def test_sandboxes_failing_in_a_row_pause_the_run() -> None:
    def tool(_: str) -> ActionResult:
        if anyio.current_time() < 60:
            raise SandboxInfrastructureError("the daemon is gone")
        return result()

    seen = await play(FakeEngine(solve), FakeSandbox(tool))

    (paused,) = seen.of(RunPaused)
    assert isinstance(paused, RunPaused)
    # The engine's turns succeeded all the time: they say nothing of the sandbox.
    assert paused.fault is Fault.SANDBOX
    assert len(seen.of(Terminated)) == 12


@in_virtual_time
async def test_commands_that_time_out_never_pause_the_run() -> None:
    slow = result(exit_code=None, timed_out=True, limits=(Limit.TIME,))
    seen = await play(
        FakeEngine(lambda _: bash("sleep 99")), FakeSandbox(lambda _: slow), jobs=40, in_flight=20
    )

    assert seen.of(RunPaused) == []
    assert len(seen.of(Terminated)) == 40


@in_virtual_time
async def test_failures_with_successes_between_never_pause_the_run() -> None:
    calls = 0

    def turn(request: GenerationRequest) -> str:
        nonlocal calls
        calls += 1
        if calls % 4 == 0:
            raise EngineUnavailableError("dead now and then")
        return solve(request)

    seen = await play(FakeEngine(turn), jobs=40)

    assert seen.of(RunPaused) == []


@in_virtual_time
async def test_the_doctor_is_asked_at_once_and_what_it_finds_is_told() -> None:
    async def examine() -> Sequence[str]:
        await anyio.sleep(2)
        return ["gpus: none is visible (reset the driver)"]

    seen = await play(dead_until(30), examine=examine)

    (examined,) = seen.of(RunExamined)
    assert isinstance(examined, RunExamined)
    assert examined.findings == ("gpus: none is visible (reset the driver)",)
    assert seen.events.index(examined) < seen.events.index(seen.of(RunContinued)[0])
    assert "gpus: none is visible (reset the driver)" in seen.told


@in_virtual_time
async def test_a_doctor_that_fails_or_hangs_changes_nothing() -> None:
    async def fails() -> Sequence[str]:
        raise SandboxPrerequisiteError("no engine")

    async def hangs() -> Sequence[str]:
        await anyio.sleep_forever()
        return ()

    async def errs() -> Sequence[str]:
        raise KeyError("gpu")

    erred = await play(dead_until(30), examine=errs)
    failed = await play(dead_until(anyio.current_time() + 30), examine=fails)
    hung = await play(dead_until(anyio.current_time() + 300), examine=hangs)

    assert [one.findings for one in failed.of(RunExamined) if isinstance(one, RunExamined)] == [
        ("the examination failed: no engine",)
    ]
    assert [one.findings for one in erred.of(RunExamined) if isinstance(one, RunExamined)] == [
        ("the examination failed: KeyError: 'gpu'",)
    ]
    assert [one.findings for one in hung.of(RunExamined) if isinstance(one, RunExamined)] == [
        ("the examination took more than 60 s",)
    ]
    assert len(failed.of(Terminated)) == len(hung.of(Terminated)) == 12


@in_virtual_time
async def test_what_was_running_goes_on_and_its_success_brings_the_next_probe_forward() -> None:
    """One long turn began before the engines died, and comes through while the run is paused."""

    async def turn(request: GenerationRequest) -> str:
        if request.key.problem_id == "p0" and request.turn == 0:
            await anyio.sleep(40)
            return bash("true")
        if anyio.current_time() < 38:
            raise EngineUnavailableError("dead")
        return solve(request)

    seen = await play(FakeEngine(turn))

    (went_on,) = seen.of(RunContinued)
    assert isinstance(went_on, RunContinued)
    assert went_on.paused_s < 45  # the next probe was due at 75 s
    assert [one.attempt for one in seen.of(Terminated) if isinstance(one, Terminated)].count(1) >= 1
    assert len(seen.of(Terminated)) == 12


@in_virtual_time
async def test_what_runs_on_and_gets_something_done_that_it_began_within_the_pause_ends_it() -> None:
    """Several trajectories whose own prompts fail hold up nobody for whom the engine works."""

    async def turn(request: GenerationRequest) -> str:
        if int(request.key.problem_id[1:]) < 5:
            raise EngineUnavailableError("this prompt kills engines")
        await anyio.sleep(1)
        return bash("true") if request.turn < 3 else answer("42")

    seen = await play(FakeEngine(turn), jobs=60, in_flight=12)

    assert len(seen.of(RunPaused)) >= 1
    assert all(one.paused_s <= 3 for one in seen.of(RunContinued) if isinstance(one, RunContinued))
    assert len(seen.of(Terminated)) == 55
    assert len(seen.of(Unfinished)) == 5


@in_virtual_time
async def test_a_run_that_pauses_over_and_over_ends_all_the_same() -> None:
    """The engine generates and the sandbox works just once after every pause."""
    works = 0

    def tool(_: str) -> ActionResult:
        nonlocal works
        works += 1
        if works % 7:
            raise SandboxInfrastructureError("the daemon is gone")
        return result()

    with suppress(PausedTooLongError), anyio.fail_after(1_000_000):
        seen = await play(
            FakeEngine(solve), FakeSandbox(tool), jobs=30, policy=BreakerPolicy(free_failures=2)
        )
        assert len(seen.of(Terminated)) + len(seen.of(Unfinished)) == 30


def test_whose_failure_an_error_is() -> None:
    assert fault_of(EngineUnavailableError("dead")) is Fault.ENGINE
    assert fault_of(SandboxInfrastructureError("dead")) is Fault.SANDBOX
    assert fault_of(ScriptExhaustedError("no more")) is None
    assert fault_of(InfrastructureError("a disk")) is None
