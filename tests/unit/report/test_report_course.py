"""Engines over time, and the distributions: amounts on the page are the amounts of the run."""

from pathlib import Path

import pytest
from support.events import began, ended, run_started, terminated, turn
from support.report_runs import Wanted, write_run

from runner.engines.reports import ReplicaState
from runner.events import EndReason, EngineSample, EngineUseRecord, ResumeRecord, RunResumed
from runner.journal import JournalWriter, read_state
from runner.report.distributions import distributions, spread_of
from runner.report.samples import read_samples
from runner.report.shapes import Scale, step_of, ticks
from runner.report.timeline import BINS, Source, timeline_of
from runner.state import RunState, reduce_events


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with four engines, one of which was lost."""
    return write_run(tmp_path_factory.mktemp("runs") / "run", Wanted(problems={"dapo": 40, "aime": 10}))


@pytest.fixture(scope="module")
def state(run_dir: Path) -> RunState:
    """Its state."""
    return read_state(run_dir / "journal.jsonl")


def test_batches_over_time_sum_to_what_the_pool_counted(run_dir: Path, state: RunState) -> None:
    timeline = timeline_of(state, read_samples(run_dir / "journal.jsonl"))
    assert timeline is not None
    assert timeline.source is Source.SAMPLES
    for line in timeline.engines:
        use = state.engines.by_name[line.name].use
        assert use is not None
        total = sum(value or 0.0 for value in line.batch) * state.wall_s / BINS
        assert total == pytest.approx(use.batch_s, rel=0.02)


def test_idle_time_is_the_share_that_the_results_tell(run_dir: Path, state: RunState) -> None:
    timeline = timeline_of(state, read_samples(run_dir / "journal.jsonl"))
    assert timeline is not None
    line = timeline.engines[0]
    use = state.engines.by_name[line.name].use
    assert use is not None
    told = [value for value in line.idle if value is not None]
    assert sum(told) / len(told) == pytest.approx(1 - use.busy_s / use.serving_s, abs=0.03)


def test_a_loss_stands_where_it_happened(run_dir: Path, state: RunState) -> None:
    timeline = timeline_of(state, read_samples(run_dir / "journal.jsonl"))
    assert timeline is not None
    (loss,) = [loss for line in timeline.engines for loss in line.losses]
    assert 0.3 < loss.at_s / timeline.work_s < 0.6
    assert loss.cause == "actor died"


def test_what_is_left_goes_down_to_nothing(run_dir: Path, state: RunState) -> None:
    timeline = timeline_of(state, read_samples(run_dir / "journal.jsonl"))
    assert timeline is not None
    assert list(timeline.left) == sorted(timeline.left, reverse=True)
    assert timeline.left[-1] == 0
    assert timeline.left[0] > 150


def _alone() -> RunState:
    """One engine, one turn: generated from second 2 to 6, its tool until 10."""
    return reduce_events(
        [
            run_started(at=0.0),
            began().model_copy(update={"at": 0.0}),
            turn(at=10.0, generate_s=4.0, tool_s=3.0, tool_wait_s=1.0),
            terminated(at=10.0),
            ended().model_copy(update={"at": 10.0}),
        ]
    )


def test_without_samples_the_turns_tell_when_an_engine_was_at_work() -> None:
    timeline = timeline_of(_alone(), [])
    assert timeline is not None
    assert timeline.source is Source.TURNS
    (line,) = timeline.engines
    busy = [index for index, value in enumerate(line.batch) if value]
    assert (busy[0], busy[-1]) == (BINS * 2 // 10, BINS * 6 // 10 - 1)
    assert all(line.batch[index] == pytest.approx(1.0) for index in busy)
    assert sum(value or 0.0 for value in line.idle) / BINS == pytest.approx(0.6)


def test_a_pause_between_two_parts_of_a_run_is_on_no_axis() -> None:
    first = run_started(at=0.0)
    resumed = RunResumed(
        **first.model_dump(exclude={"type", "at"}), at=1000.0, resumed=ResumeRecord(part=2, missing=1)
    )
    samples = [
        EngineSample(at=at, queued=0, engines=(_use(serving_s=at % 1000, batch_s=2 * (at % 1000)),))
        for at in (0.0, 10.0, 1000.0, 1030.0)
    ]
    events = [first, *samples[:2], resumed, *samples[2:]]

    timeline = timeline_of(reduce_events(events), [*samples[:2], resumed, *samples[2:]])

    assert timeline is not None
    assert timeline.work_s == pytest.approx(40.0)
    assert timeline.resumed_at_s == (10.0,)
    assert all(value == pytest.approx(2.0) for value in timeline.engines[0].batch)


def _use(serving_s: float, batch_s: float) -> EngineUseRecord:
    return EngineUseRecord(
        name="fake",
        state=ReplicaState.SERVING,
        running=2,
        turns=0,
        prompt_tokens=0,
        completion_tokens=0,
        serving_s=serving_s,
        busy_s=serving_s,
        batch_s=batch_s,
        starts=1,
    )


def test_a_run_that_asked_no_engine_anything_has_no_timeline() -> None:
    assert timeline_of(reduce_events([run_started(at=0.0), ended(EndReason.FAILED)]), []) is None


def test_samples_are_read_from_the_journal_and_nothing_that_looks_like_them(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    with JournalWriter(path) as journal:
        journal.append(run_started())
        journal.append(began())
        journal.append(turn('{"type":"engine_sample"}', action={"type": "engine_sample"}))
    assert read_samples(path) == []


def test_bars_hold_every_scored_trajectory_once(state: RunState) -> None:
    for _, found in distributions(state):
        assert [one.dataset for one in found] == ["dapo", "aime"]
        for one in found:
            assert (
                sum(count for _, _, count in one.bars)
                == one.spread.count
                == len([1 for key in state.trajectories if key.dataset == one.dataset])
            )


def test_quantiles_are_values_that_some_trajectory_has() -> None:
    spread = spread_of([5, 1, 4, 2, 3, 10, 7, 8, 9, 6])
    assert (spread.least, spread.median, spread.p90, spread.most, spread.mean) == (1, 5, 9, 10, 5.5)


def test_one_value_has_one_bar(state: RunState) -> None:
    alone = distributions(_alone())
    assert all(len(found[0].bars) == 1 for _, found in alone)


def test_ticks_are_round_and_within() -> None:
    assert ticks(0.55, 0.85, 6) == [0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85]
    assert step_of(7000, 36) == 200
    assert Scale(0.0, 1.0, 10.0, 20.0)(2.0) == 20.0
