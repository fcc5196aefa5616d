"""Engines in a run's journal: reports as they happen, samples now and then; neither disturbs the run."""

import json
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from support.builders import answer, bash, write_profile
from support.engine_events import TellingEngine, snapshot
from support.fake_engine import FakeEngine
from support.fake_sandbox import FakeSandbox
from support.runs import run_plan

from runner.engine_log import engine_log, report_event, sample_event
from runner.engines.base import Engine, GenerationRequest
from runner.engines.reports import PoolSnapshot, ReplicaDown, ReplicaState, ReplicaStats, ReplicaUp
from runner.errors import JournalWriteError
from runner.events import AnyEvent, EndReason, EngineDown, EngineSample, EngineUp, Event, RunEnded
from runner.journal import read_journal
from runner.plan import make_plan
from runner.run import RunOutcome
from runner.signals import Stop

pytestmark = pytest.mark.anyio
HOSTILE = "\ud800 \x1b]52;c;x\x07 \u202e\nlast line"


def solve(request: GenerationRequest) -> str:
    return bash("echo 42") if request.turn == 0 else answer("42")


async def run(
    tmp_path: Path, engine: Engine, listener: Callable[[Event], None] = lambda _: None
) -> RunOutcome:
    profile = write_profile(
        tmp_path / "input", {"kind": "openai", "model": "m", "base_urls": ["http://127.0.0.1:9/v1"]}
    )
    with anyio.fail_after(30):
        return await run_plan(
            make_plan(str(profile)),
            engine,
            FakeSandbox(),
            run_id="run",
            results_dir=tmp_path / "results",
            listener=listener,
        )


def journal(tmp_path: Path) -> list[AnyEvent]:
    return list(read_journal(tmp_path / "results" / "run" / "journal.jsonl"))


async def sleep_then_solve(request: GenerationRequest) -> str:
    await anyio.sleep(0.15)
    return solve(request)


async def never_tells() -> PoolSnapshot:
    await anyio.sleep_forever()
    raise RuntimeError("it was told to go on")


async def test_engines_that_were_up_before_stand_behind_the_run_s_start(tmp_path: Path) -> None:
    before = (ReplicaUp("a", 61.25, 1), ReplicaUp("b", 122.5, 1))

    await run(tmp_path, TellingEngine(solve, before=before))

    started, *ups = journal(tmp_path)[:3]
    assert started.type == "run_started"
    assert [(one.name, one.start_s) for one in ups if isinstance(one, EngineUp)] == [
        ("a", 61.25),
        ("b", 122.5),
    ]


async def test_a_short_run_is_sampled_at_its_beginning_and_right_before_its_end(tmp_path: Path) -> None:
    await run(tmp_path, TellingEngine(solve))

    types = [event.type for event in journal(tmp_path)]
    assert [place for place, name in enumerate(types) if name == "engine_sample"] == [1, len(types) - 2]


async def test_a_longer_run_is_sampled_at_every_interval(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runner.engine_log.SAMPLE_INTERVAL_S", 0.05)

    await run(tmp_path, TellingEngine(sleep_then_solve))

    types = [event.type for event in journal(tmp_path)]
    assert 4 <= types.count("engine_sample") <= 8
    assert types[-2] == "engine_sample"


async def test_a_sample_holds_all_that_the_engines_told(tmp_path: Path) -> None:
    stats = ReplicaStats(waiting=2, preemptions=3, kv_cache_usage=0.25, gpu_memory_used_bytes=1 << 34)
    told = snapshot(queued=7, stats=stats, running=4, turns=9, busy_s=1.23456789, starts=2)

    await run(tmp_path, TellingEngine(solve, lambda: told))

    found = [one for one in journal(tmp_path) if isinstance(one, EngineSample)][-1]
    (one,) = found.engines
    assert (found.queued, one.running, one.turns, one.busy_s, one.starts) == (7, 4, 9, 1.234568, 2)
    assert one.state is ReplicaState.SERVING
    assert one.stats is not None
    assert (one.stats.waiting, one.stats.preemptions, one.stats.kv_cache_usage) == (2, 3, 0.25)
    assert (one.stats.gpu_memory_used_bytes, one.stats.gpu_utilization) == (1 << 34, None)


async def test_an_engine_that_knows_nothing_of_its_use_writes_no_samples(tmp_path: Path) -> None:
    await run(tmp_path, FakeEngine(solve))

    assert not any(event.type.startswith("engine") for event in journal(tmp_path))


async def test_an_engine_that_never_answers_delays_neither_the_run_nor_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runner.engine_log.LAST_SAMPLE_TIMEOUT_S", 0.05)

    outcome = await run(tmp_path, TellingEngine(solve, never_tells))

    assert outcome.reason is EndReason.COMPLETE
    assert not any(isinstance(event, EngineSample) for event in journal(tmp_path))


async def test_a_sample_that_takes_too_long_is_left_out_and_the_next_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runner.engine_log.SAMPLE_TIMEOUT_S", 0.02)
    monkeypatch.setattr("runner.engine_log.SAMPLE_INTERVAL_S", 0.02)
    asked: list[int] = []

    async def slow_at_first() -> PoolSnapshot:
        asked.append(1)
        if len(asked) == 1:
            await anyio.sleep_forever()
        return snapshot(turns=len(asked))

    await run(tmp_path, TellingEngine(sleep_then_solve, slow_at_first))

    samples = [one.engines[0].turns for one in journal(tmp_path) if isinstance(one, EngineSample)]
    assert samples[:2] == [2, 3]


async def test_an_engine_that_cannot_tell_is_a_fault_of_the_program(tmp_path: Path) -> None:
    def fail() -> PoolSnapshot:
        raise RuntimeError("a bug in a snapshot")

    with pytest.raises(RuntimeError, match="a bug in a snapshot"):
        await run(tmp_path, TellingEngine(sleep_then_solve, fail))

    last = journal(tmp_path)[-1]
    assert isinstance(last, RunEnded)
    assert (last.reason, last.message) == (EndReason.FAILED, "RuntimeError: a bug in a snapshot")


async def test_a_last_sample_that_fails_does_not_replace_what_ended_the_run(tmp_path: Path) -> None:
    failed: list[str] = []

    def snapshot_or_fail() -> PoolSnapshot:
        if failed:
            raise RuntimeError("a bug in a snapshot")
        return snapshot()

    def fail(_: GenerationRequest) -> str:
        failed.append("now")
        raise RuntimeError("a bug in a turn")

    with pytest.raises(RuntimeError, match="a bug in a turn"):
        await run(tmp_path, TellingEngine(fail, snapshot_or_fail))

    last = journal(tmp_path)[-1]
    assert isinstance(last, RunEnded)
    assert last.message == "RuntimeError: a bug in a turn"


async def test_a_lost_engine_and_its_return_are_written_as_they_happen(tmp_path: Path) -> None:
    async def lose_and_come_back(request: GenerationRequest) -> str:
        if request.turn == 1:
            engine.report(ReplicaDown("fake", HOSTILE, 3, given_up=False))
            await anyio.sleep(0.01)
            engine.report(ReplicaUp("fake", 0.5, 2))
            await anyio.sleep(0.01)
        return solve(request)

    engine = TellingEngine(lose_and_come_back, before=(ReplicaUp("fake", 1.0, 1),))
    seen: list[Event] = []

    outcome = await run(tmp_path, engine, seen.append)

    events = journal(tmp_path)
    assert events == seen
    types = [event.type for event in events]
    assert types[types.index("turn") :] == [
        *("turn", "engine_down", "engine_up", "turn", "terminated", "engine_sample", "run_ended")
    ]
    down = next(event for event in events if isinstance(event, EngineDown))
    assert (down.cause, down.requeued) == (HOSTILE, 3)
    (loss,) = outcome.results["engines"]["by_engine"]["fake"]["last_losses"]
    assert 0.01 <= loss["back_after_s"] < 10
    assert json.loads((outcome.run_dir / "evaluation_results.json").read_bytes()) == outcome.results
    shown = (outcome.run_dir / "summary.txt").read_text(encoding="utf-8")
    assert "engine fake lost, back after" in shown
    assert not {"\x1b", "\u202e", "\x07"} & set(shown)


async def test_a_loss_that_a_sample_finds_stands_before_it(tmp_path: Path) -> None:
    def find_a_loss() -> PoolSnapshot:
        engine.report(ReplicaDown("fake", "it did not answer", 0, given_up=False))
        return snapshot(state=ReplicaState.LOST)

    engine = TellingEngine(solve, find_a_loss)
    await run(tmp_path, engine)

    types = [event.type for event in journal(tmp_path)]
    assert types[1:3] == ["engine_down", "engine_sample"]
    assert types[-3:] == ["engine_down", "engine_sample", "run_ended"]


async def test_what_an_engine_reports_behind_the_end_is_nobody_s(tmp_path: Path) -> None:
    engine = TellingEngine(solve)
    await run(tmp_path, engine)
    before = journal(tmp_path)

    engine.report(ReplicaDown("fake", "closed", 0, given_up=True))

    assert journal(tmp_path) == before


async def test_a_run_that_is_stopped_has_a_last_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = Stop()

    @asynccontextmanager
    async def watched() -> AsyncIterator[Stop]:
        yield stop

    async def stopped(_: GenerationRequest) -> str:
        stop.stop("SIGINT")
        await anyio.sleep_forever()
        return "never"

    async def takes_a_moment() -> PoolSnapshot:
        await anyio.sleep(0.01)
        return snapshot(turns=5)

    monkeypatch.setattr("runner.run.watch_signals", watched)

    outcome = await run(tmp_path, TellingEngine(stopped, takes_a_moment))

    assert outcome.reason is EndReason.INTERRUPTED
    assert [event.type for event in journal(tmp_path)][-2:] == ["engine_sample", "run_ended"]


async def test_a_full_disk_ends_the_run_and_does_not_reach_the_engine() -> None:
    def full(event: Event) -> None:
        raise JournalWriteError("no space left")

    engine = TellingEngine(solve, on_snapshot=lambda: None)
    untouched = False

    async def lose_an_engine() -> None:
        nonlocal untouched
        async with engine_log(engine, full):
            engine.report(ReplicaDown("fake", "killed", 0, given_up=False))
            untouched = True
            with anyio.fail_after(10):
                await anyio.sleep_forever()

    with pytest.raises(JournalWriteError, match="no space left"):
        await lose_an_engine()

    assert untouched


def test_a_figure_that_is_no_number_is_not_told() -> None:
    stats = ReplicaStats(kv_cache_usage=math.nan, gpu_utilization=math.inf, waiting=1)

    (one,) = sample_event(snapshot(stats=stats)).engines

    assert one.stats is not None
    assert (one.stats.kv_cache_usage, one.stats.gpu_utilization, one.stats.waiting) == (None, None, 1)


def test_of_a_cause_without_bounds_both_ends_are_kept() -> None:
    event = report_event(ReplicaDown("a", "it died: " + "x" * 100_000 + " last line", 0, given_up=False))

    assert isinstance(event, EngineDown)
    assert event.cause.startswith("it died: ")
    assert event.cause.endswith(" last line")
    assert "characters left out" in event.cause
    assert len(event.cause) < 4100
