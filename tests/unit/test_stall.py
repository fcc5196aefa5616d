"""A run in which nothing moves says what it waits for, beside its journal, and goes on."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import pytest
from support.builders import RULES, answer, bash, job, write_profile
from support.fake_engine import FakeEngine
from support.fake_replica import in_virtual_time
from support.fake_sandbox import FakeSandbox
from support.runs import run_plan
from support.stopping import start
from typing_extensions import override

from runner.engines.base import EngineUnavailableError, GenerationRequest
from runner.engines.reports import PoolSnapshot, ReplicaSnapshot, ReplicaState
from runner.events import EngineSample, Event, Stalled, TrajectoryStarted
from runner.groups import first_error_only
from runner.journal import JOURNAL_NAME, read_journal, read_state
from runner.oversight import Oversight
from runner.plan import Plan, make_plan
from runner.stall import PROBE_CLOSE_TIMEOUT_S, StallPolicy, StallWatch
from runner.trajectory import TrajectoryRunner
from runner.waiting import Waiting
from sandbox import ActionResult, SandboxInfrastructureError, Workspace

pytestmark = pytest.mark.anyio
QUICK = StallPolicy(silent_s=0.2, blocked_s=60, check_s=0.02)
LIMIT_S = 30.0


async def no_turn(_: GenerationRequest) -> str:
    await anyio.sleep_forever()
    raise AssertionError("not reached")


def snapshot(state: ReplicaState = ReplicaState.SERVING) -> PoolSnapshot:
    replica = ReplicaSnapshot("vllm-0", state, 1, 7, 100, 50, 1.0, 1.0, 1.0, 2)
    return PoolSnapshot(queued=3, replicas=(replica,))


class Told(FakeEngine):
    """An engine that tells of itself what the test says."""

    def __init__(self, tells: Callable[[], Awaitable[PoolSnapshot | None]]) -> None:
        super().__init__(no_turn)
        self._tells = tells

    @override
    async def snapshot(self) -> PoolSnapshot | None:
        return await self._tells()


async def stalled(
    tmp_path: Path,
    engine: FakeEngine,
    sandbox: FakeSandbox | None = None,
    *,
    reports: int = 1,
    policy: StallPolicy = QUICK,
) -> tuple[list[Event], list[str]]:
    """Two trajectories that never get a turn, until so many reports are there."""
    events: list[Event] = []
    told: list[str] = []
    waiting = Waiting()
    box = sandbox or FakeSandbox()
    watch = StallWatch(tmp_path, engine, box, waiting, policy=policy, emit=events.append, tell=told.append)

    def hear(event: Event) -> None:
        watch.heard(event)
        events.append(event)

    runner = TrajectoryRunner(
        RULES,
        engine,
        box,
        generation=anyio.Semaphore(1),
        tools=anyio.Semaphore(1),
        emit=hear,
        waiting=waiting,
    )
    with anyio.fail_after(LIMIT_S), first_error_only():
        async with watch.open(), anyio.create_task_group() as tasks:
            for row in range(2):
                tasks.start_soon(runner.run, job(f"p{row}"), 1)
            while sum(isinstance(one, Stalled) for one in events) < reports:  # noqa: ASYNC110 - only they tell
                await anyio.sleep(0.01)
            tasks.cancel_scope.cancel()
    return events, told


def a_plan(tmp_path: Path) -> Plan:
    unused = {"kind": "openai", "model": "m", "base_urls": ["http://127.0.0.1:9/v1"]}
    return make_plan(str(write_profile(tmp_path / "input", unused)))


def report(tmp_path: Path, number: int = 1) -> str:
    return (tmp_path / f"stall-{number}.txt").read_text(encoding="utf-8")


async def test_the_report_names_what_each_trajectory_waits_for_and_where_the_tasks_stand(
    tmp_path: Path,
) -> None:
    events, told = await stalled(tmp_path, FakeEngine(no_turn))

    text = report(tmp_path)
    assert "set/p0:sample00: the engine, for turn 1" in text
    assert "set/p1:sample00: a permit to generate" in text
    assert "last event, TrajectoryStarted, came" in text
    # The stacks lead to where it hangs, not only to the task's outermost frame.
    assert "in no_turn" in text
    assert "Thread 0x" in text or "Current thread 0x" in text
    (event,) = [one for one in events if isinstance(one, Stalled)]
    assert event.report == "stall-1.txt"
    assert sorted(event.waits) == [
        "1 wait for a permit to generate",
        "1 wait for the engine, for a turn",
    ]
    assert event.silent_s >= QUICK.silent_s
    assert "stall-1.txt" in told[0]


async def test_the_report_tells_how_engines_and_sandbox_answer(tmp_path: Path) -> None:
    async def tell() -> PoolSnapshot:
        return snapshot(ReplicaState.LOST)

    sandbox = FakeSandbox()
    await stalled(tmp_path, Told(tell), sandbox)

    text = report(tmp_path)
    assert "3 turns wait for a place" in text
    assert "vllm-0" in text
    assert "lost" in text
    assert "opening a workspace took 0." in text
    assert "a command took 0." in text
    assert all(one.closed for one in sandbox.workspaces)


async def test_engines_and_sandboxes_that_fail_or_hang_are_told_of_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runner.stall.PROBE_TIMEOUT_S", 0.1)

    class Hanging(FakeSandbox):
        @override
        async def open(self, workspace_id: str) -> Workspace:
            await anyio.sleep_forever()
            raise AssertionError("not reached")

    async def fail() -> PoolSnapshot:
        raise EngineUnavailableError("gone")

    await stalled(tmp_path, Told(fail), Hanging())

    text = report(tmp_path)
    assert "do not answer: gone" in text
    assert "opening a workspace was not done within 0.1 s" in text


async def test_a_sandbox_that_fails_is_told_of(tmp_path: Path) -> None:
    class Dead(FakeSandbox):
        @override
        async def open(self, workspace_id: str) -> Workspace:
            raise SandboxInfrastructureError("the daemon is gone")

    await stalled(tmp_path, FakeEngine(no_turn), Dead())

    assert "the daemon is gone" in report(tmp_path)


async def test_a_fault_in_what_is_asked_or_written_costs_its_part_of_the_report_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_place(*_: object, **__: object) -> None:
        raise FileNotFoundError(2, "No usable temporary directory found")

    async def fault() -> PoolSnapshot:
        raise KeyError("metric")

    monkeypatch.setattr("tempfile.TemporaryFile", no_place)
    await stalled(tmp_path, Told(fault))

    text = report(tmp_path)
    assert "cannot be asked: KeyError: 'metric'" in text
    assert "cannot be told: [Errno 2] No usable temporary directory found" in text
    assert "a command took 0." in text


async def test_a_report_that_cannot_be_made_ends_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fault(_: Waiting) -> list[str]:
        raise ValueError("a fault of ours")

    monkeypatch.setattr(Waiting, "now", fault)
    watch = StallWatch(tmp_path, FakeEngine(no_turn), FakeSandbox(), Waiting(), policy=QUICK)
    async with watch.open():
        with anyio.fail_after(LIMIT_S):
            while "no stall report" not in caplog.text:  # noqa: ASYNC110 - only the log tells
                await anyio.sleep(0.01)


@in_virtual_time
async def test_stopping_a_run_waits_for_no_report_of_a_hung_sandbox(tmp_path: Path) -> None:
    async def hang() -> ActionResult:
        running.set()
        await anyio.sleep_forever()
        raise AssertionError("not reached")

    running = anyio.Event()
    box = FakeSandbox(lambda _: hang(), on_close=anyio.sleep_forever)
    policy = StallPolicy(silent_s=60, blocked_s=1e9, check_s=1)
    watch = StallWatch(
        tmp_path,
        FakeEngine(no_turn),
        box,
        Waiting(),
        policy=policy,
        clock=asyncio.get_running_loop().time,
    )
    async with watch.open():
        await running.wait()
        stopped_at = anyio.current_time()
    assert anyio.current_time() - stopped_at == PROBE_CLOSE_TIMEOUT_S


async def test_further_reports_come_when_the_silence_has_doubled(tmp_path: Path) -> None:
    events, _ = await stalled(tmp_path, FakeEngine(no_turn), reports=3)

    silent = [one.silent_s for one in events if isinstance(one, Stalled)]
    assert silent[1] >= 2 * silent[0]
    assert silent[2] >= 2 * silent[1]
    assert (tmp_path / "stall-3.txt").exists()


async def test_samples_of_engines_are_no_movement_and_turns_are(tmp_path: Path) -> None:
    events: list[Event] = []
    watch = StallWatch(
        tmp_path, FakeEngine(no_turn), FakeSandbox(), Waiting(), policy=QUICK, emit=events.append
    )
    moving = TrajectoryStarted(dataset="set", problem_id="p0", sample=0, row_index=0, seed=1)
    async with watch.open():
        for _ in range(20):
            await anyio.sleep(0.02)
            watch.heard(moving)
        assert events == []
        with anyio.fail_after(LIMIT_S):
            while not events:
                await anyio.sleep(0.02)
                watch.heard(EngineSample(queued=0, engines=()))


async def test_an_earlier_part_s_reports_are_kept(tmp_path: Path) -> None:
    (tmp_path / "stall-1.txt").write_text("of before")

    await stalled(tmp_path, FakeEngine(no_turn))

    assert report(tmp_path) == "of before"
    assert "nothing moved" in report(tmp_path, 2)


async def test_a_directory_that_takes_no_report_is_no_fault_of_the_run(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    watch = StallWatch(gone, FakeEngine(no_turn), FakeSandbox(), Waiting(), policy=QUICK)
    async with watch.open():
        await anyio.sleep(0.5)


async def test_what_holds_the_event_loop_is_seen_from_a_thread(tmp_path: Path) -> None:
    policy = StallPolicy(silent_s=3600, blocked_s=0.2, check_s=0.02)
    watch = StallWatch(tmp_path, FakeEngine(no_turn), FakeSandbox(), Waiting(), policy=policy)

    def hold_the_loop() -> None:
        # A busy machine may be late with the report; the loop is held until it is there.
        deadline = time.monotonic() + LIMIT_S
        while not (tmp_path / "stall-1.txt").exists() and time.monotonic() < deadline:
            time.sleep(0.02)

    async with watch.open():
        await anyio.sleep(0.05)
        hold_the_loop()

    text = report(tmp_path)
    assert "the event loop did not come round" in text
    assert "hold_the_loop" in text


async def test_a_run_writes_its_reports_beside_its_journal_and_counts_them(tmp_path: Path) -> None:
    plan = a_plan(tmp_path)
    run_dir = tmp_path / "results" / "run"

    async def turn(request: GenerationRequest) -> str:
        # It hangs until the report is there.
        while not (run_dir / "stall-1.txt").exists():  # noqa: ASYNC110 - a file tells
            await anyio.sleep(0.02)
        return bash("true") if request.turn == 0 else answer("42")

    with anyio.fail_after(LIMIT_S):
        outcome = await run_plan(
            plan,
            FakeEngine(turn),
            FakeSandbox(),
            run_id="run",
            results_dir=tmp_path / "results",
            listener=lambda _: None,
            oversight=Oversight(stall=QUICK),
        )

    assert read_state(run_dir / JOURNAL_NAME).stalls >= 1
    assert outcome.results["complete"]
    assert any(isinstance(one, Stalled) for one in read_journal(run_dir / JOURNAL_NAME))


async def test_a_run_that_moves_writes_none(tmp_path: Path) -> None:
    plan = a_plan(tmp_path)
    outcome = await start(
        tmp_path, plan, FakeEngine(lambda one: bash("true") if one.turn == 0 else answer("42"))
    )

    assert list(outcome.run_dir.glob("stall-*")) == []
