"""The scheduler: order, bounds, and that every job ends once, whatever fails."""

from collections import Counter
from pathlib import Path
from typing import Any, cast

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.builders import RULES, answer, bash, job
from support.fake_engine import FakeEngine
from support.fake_sandbox import FakeSandbox, result

from runner.datasets import Dataset, Problem
from runner.engines.base import EngineUnavailableError, GenerationRequest, ScriptExhaustedError
from runner.errors import JournalWriteError
from runner.events import Event, InfrastructureRetry, Terminated, TrajectoryStarted, Unfinished
from runner.groups import first_error_only
from runner.scheduler import RetryPolicy, Scheduler, describe_cause, plan_jobs
from runner.trajectory import Job, TrajectoryRunner
from sandbox import ActionResult, SandboxInfrastructureError, SandboxPrerequisiteError

pytestmark = pytest.mark.anyio
AT_ONCE = RetryPolicy(attempts=3, wait_s=0.0)


def dataset(name: str, count: int) -> Dataset:
    problems = tuple(Problem(f"{name}{row}", row, "?", "42") for row in range(count))
    return Dataset(name, Path(name), "0" * 64, 100, problems)


async def run(
    jobs: list[Job],
    engine: FakeEngine,
    sandbox: FakeSandbox | None = None,
    *,
    in_flight: int = 4,
    retry: RetryPolicy = AT_ONCE,
) -> list[Event]:
    events: list[Event] = []
    trajectories = TrajectoryRunner(
        RULES,
        engine,
        sandbox or FakeSandbox(),
        generation=anyio.Semaphore(100),
        tools=anyio.Semaphore(100),
        emit=events.append,
    )
    with anyio.fail_after(30), first_error_only():
        await Scheduler(trajectories, in_flight=in_flight, retry=retry, emit=events.append).run(jobs)
    return events


def solve(request: GenerationRequest) -> str:
    return bash("true") if request.turn == 0 else answer("42")


def ends(events: list[Event]) -> list[Terminated | Unfinished]:
    return [one for one in events if isinstance(one, Terminated | Unfinished)]


def test_jobs_go_sample_by_sample_with_the_data_sets_interleaved() -> None:
    jobs = plan_jobs([dataset("a", 3), dataset("b", 1)], samples=2)

    assert [(one.problem.id, one.sample) for one in jobs] == [
        *(("a0", 0), ("b0", 0), ("a1", 0), ("a2", 0)),
        *(("a0", 1), ("b0", 1), ("a1", 1), ("a2", 1)),
    ]


def test_nothing_is_planned_for_no_data_set() -> None:
    assert plan_jobs([], samples=3) == []


async def test_jobs_begin_in_the_plan_s_order() -> None:
    jobs = plan_jobs([dataset("a", 4), dataset("b", 2)], samples=2)

    events = await run(jobs, FakeEngine(solve), in_flight=3)

    assert [one.key for one in events if isinstance(one, TrajectoryStarted)] == [one.key for one in jobs]


async def test_no_more_trajectories_run_at_once_than_allowed() -> None:
    running, most = 0, 0

    async def slow(request: GenerationRequest) -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await anyio.sleep(0.001)
        running -= 1
        return solve(request)

    events = await run(plan_jobs([dataset("a", 20)], 1), FakeEngine(slow), in_flight=3)

    assert most == 3
    assert len(ends(events)) == 20


async def test_a_failure_of_the_engine_starts_the_trajectory_again_from_its_first_turn() -> None:
    failures = iter([EngineUnavailableError("dead"), EngineUnavailableError("dead")])

    def flaky(request: GenerationRequest) -> str:
        if request.turn == 1 and (failure := next(failures, None)) is not None:
            raise failure
        return solve(request)

    engine = FakeEngine(flaky)
    events = await run([job()], engine)

    assert [(one.attempt, one.turn) for one in engine.requests] == [
        *((1, 0), (1, 1), (2, 0), (2, 1), (3, 0), (3, 1))
    ]
    assert [(one.attempt, one.cause) for one in events if isinstance(one, InfrastructureRetry)] == [
        (1, "runner.engines.base.EngineUnavailableError: dead"),
        (2, "runner.engines.base.EngineUnavailableError: dead"),
    ]
    (end,) = ends(events)
    assert isinstance(end, Terminated)
    assert (end.attempt, end.score) == (3, 1.0)


async def test_a_failure_of_the_sandbox_that_stays_leaves_the_trajectory_unfinished() -> None:
    def dead(_: str) -> ActionResult:
        raise SandboxInfrastructureError("the daemon is gone", "start it")

    events = await run([job()], FakeEngine(solve), FakeSandbox(dead))

    (end,) = ends(events)
    assert isinstance(end, Unfinished)
    assert (end.attempt, end.cause) == (
        3,
        "sandbox.errors.SandboxInfrastructureError: the daemon is gone (start it)",
    )


async def test_one_attempt_alone_means_no_retry() -> None:
    engine = FakeEngine(lambda _: cast("str", (_ for _ in ()).throw(EngineUnavailableError("dead"))))

    events = await run([job()], engine, retry=RetryPolicy(attempts=1, wait_s=0.0))

    assert len(engine.requests) == 1
    assert not any(isinstance(one, InfrastructureRetry) for one in events)


async def test_an_exhausted_script_is_not_tried_again() -> None:
    def exhausted(_: GenerationRequest) -> str:
        raise ScriptExhaustedError("no more completions")

    engine = FakeEngine(exhausted)
    events = await run([job()], engine)

    assert len(engine.requests) == 1
    (end,) = ends(events)
    assert isinstance(end, Unfinished)
    assert end.attempt == 1


async def test_the_wait_before_a_retry_is_the_policy_s() -> None:
    def dead(_: GenerationRequest) -> str:
        raise EngineUnavailableError("dead")

    started = anyio.current_time()
    await run([job()], FakeEngine(dead), retry=RetryPolicy(attempts=3, wait_s=0.1, wait_cap_s=0.15))
    waited = anyio.current_time() - started

    assert 0.2 <= waited < 1.0


@pytest.mark.parametrize(
    "fault", [JournalWriteError("disk full"), SandboxPrerequisiteError("no image"), RuntimeError("a bug")]
)
async def test_what_no_retry_can_mend_ends_the_run(fault: Exception) -> None:
    def broken(_: GenerationRequest) -> str:
        raise fault

    engine = FakeEngine(broken)
    with pytest.raises(type(fault), match=r"disk full|no image|a bug"):
        await run([job(f"p{row}", row=row) for row in range(50)], engine, in_flight=1)

    assert len(engine.requests) == 1


async def test_a_journal_that_refuses_a_retry_ends_the_run() -> None:
    def dead(_: GenerationRequest) -> str:
        raise EngineUnavailableError("dead")

    def refuse(event: Event) -> None:
        if isinstance(event, InfrastructureRetry):
            raise JournalWriteError("disk full")

    trajectories = TrajectoryRunner(
        RULES,
        FakeEngine(dead),
        FakeSandbox(),
        generation=anyio.Semaphore(1),
        tools=anyio.Semaphore(1),
        emit=refuse,
    )
    with pytest.raises(JournalWriteError), first_error_only():
        await Scheduler(trajectories, in_flight=1, retry=AT_ONCE, emit=refuse).run([job()])


FAILURES = st.sampled_from(["none", "engine", "sandbox", "close", "script"])


@settings(max_examples=60, deadline=None)
@given(
    plan=st.lists(st.lists(FAILURES, max_size=4), max_size=12),
    in_flight=st.integers(1, 5),
    attempts=st.integers(1, 3),
)
def test_every_job_ends_exactly_once_whatever_fails(
    plan: list[list[str]], in_flight: int, attempts: int
) -> None:
    """`plan` says what happens at each attempt at each trajectory; later attempts go well."""
    jobs = [job(f"p{row}", row=row) for row in range(len(plan))]

    def fate(problem_id: str, attempt: int) -> str:
        fates = plan[int(problem_id[1:])]
        return fates[attempt - 1] if attempt <= len(fates) else "none"

    def say(request: GenerationRequest) -> str:
        happens = fate(request.key.problem_id, request.attempt)
        if request.turn == 1 and happens == "engine":
            raise EngineUnavailableError("dead")
        if happens == "script":
            raise ScriptExhaustedError("no more")
        return bash(f"{request.key.problem_id} {request.attempt}") if request.turn == 0 else answer("42")

    def tool(command: str) -> ActionResult:
        problem_id, attempt = command.split()
        if fate(problem_id, int(attempt)) == "sandbox":
            raise SandboxInfrastructureError("dead")
        return result()

    async def close() -> None:
        await anyio.lowlevel.checkpoint()

    sandbox = FakeSandbox(tool, on_close=close)

    async def play() -> list[Event]:
        policy = RetryPolicy(attempts=attempts, wait_s=0.0)
        return await run(jobs, FakeEngine(say), sandbox, in_flight=in_flight, retry=policy)

    events = anyio.run(play)

    assert Counter(one.key for one in ends(events)) == Counter(one.key for one in jobs)
    assert all(workspace.closed for workspace in sandbox.workspaces)
    for one in ends(events):
        tried = [fate(one.problem_id, attempt) for attempt in range(1, attempts + 1)]
        stops = next((at for at, fate_ in enumerate(tried, 1) if fate_ in {"none", "close", "script"}), None)
        well = stops is not None and tried[stops - 1] != "script"
        assert isinstance(one, Terminated) == well
        assert one.attempt == (stops or attempts)


def test_a_cause_is_told_with_what_it_came_from() -> None:
    error = EngineUnavailableError("dead", remedy="start it")
    error.__cause__ = OSError("refused")

    assert describe_cause(error) == (
        "runner.engines.base.EngineUnavailableError: dead\n  remedy: start it\nOSError: refused"
    )


def test_a_cause_that_came_from_itself_is_told_in_bounded_length() -> None:
    error: Any = EngineUnavailableError("dead")
    error.__cause__ = error

    assert describe_cause(error).count("dead") == 8


def test_no_cause_is_no_text() -> None:
    assert describe_cause(None) == ""


def test_a_cause_is_bounded_in_depth_and_length() -> None:
    error = EngineUnavailableError("x" * 1_000_000)
    for number in range(100):
        outer = EngineUnavailableError(f"cause {number}")
        outer.__cause__ = error
        error = outer
    root = EngineUnavailableError("x" * 1_000_000)
    root.__cause__ = error

    told = describe_cause(root)

    assert len(told) < 20_000
    assert told.splitlines()[1].endswith("cause 99")
