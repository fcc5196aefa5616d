"""The reducer: from events to the state of a run, at every moment of it."""

from pathlib import Path

import pytest
from support.events import began, ended, retried, run_started, terminated, turn, unfinished

from runner.engines.base import TrajectoryKey
from runner.events import AnyEvent, EndReason
from runner.journal import JournalWriter, read_journal
from runner.results.build import build_results, end_reason, is_complete
from runner.results.records import trajectory_record
from runner.results.summary import summary_text
from runner.state import reduce_events

KEY = TrajectoryKey("set", "p0", 0)
RUN: tuple[AnyEvent, ...] = (
    run_started("p0", "p1", samples=1),
    began(),
    turn("abandoned"),
    began("p1", row=1),
    retried(),
    began(attempt=2),
    turn("kept"),
    turn("kept too", number=1),
    terminated(),
    unfinished("p1"),
    ended(EndReason.INCOMPLETE),
)


def test_turns_of_an_abandoned_attempt_are_no_part_of_the_trajectory() -> None:
    state = reduce_events(RUN)

    played = state.trajectories[KEY]
    assert [one.assistant for one in played.turns] == ["kept", "kept too"]
    assert (played.attempt, len(played.retries)) == (2, 1)
    record = trajectory_record(played, state.problems("set")["p0"])
    assert "abandoned" not in str(record)
    assert record["trace_rounds"] == 2


def test_a_trajectory_that_is_unfinished_has_no_score_and_no_record() -> None:
    state = reduce_events(RUN)
    played = state.trajectories[TrajectoryKey("set", "p1", 0)]

    assert played.terminated is None
    assert played.unfinished is not None
    with pytest.raises(ValueError, match="has no record"):
        trajectory_record(played, state.problems("set")["p1"])


def test_any_beginning_of_a_journal_gives_a_state_results_and_a_summary(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    with JournalWriter(path) as journal:
        for event in RUN:
            journal.append(event)
    lines = path.read_bytes().splitlines(keepends=True)

    for count in range(1, len(lines) + 1):
        path.write_bytes(b"".join(lines[:count]))
        state = reduce_events(read_journal(path))
        results = build_results(state)

        assert state.last_event_at == results["ended_at"]
        mean = results["datasets"]["set"]["mean"]
        assert (mean["planned"], mean["scored"]) == (2, int(count >= 9))
        assert mean["if_missing_wrong"] <= (mean["value"] or 0.0) or mean["value"] is None
        assert results["end"] == ("incomplete" if count == len(lines) else None)
        assert summary_text(results)


def test_a_run_without_a_start_has_no_results() -> None:
    with pytest.raises(ValueError, match="no run_started"):
        build_results(reduce_events([]))


def test_an_event_of_a_trajectory_that_never_began_is_a_fault() -> None:
    with pytest.raises(ValueError, match="set/p0:sample00, which never started"):
        reduce_events([run_started(), turn()])


def test_a_run_is_complete_when_every_planned_trajectory_has_a_score() -> None:
    done = reduce_events([run_started("p0", "p1"), began(), terminated(), began("p1"), terminated("p1")])
    half = reduce_events([run_started("p0", "p1"), began(), terminated()])

    assert (is_complete(done), end_reason(done)) == (True, EndReason.COMPLETE)
    assert (is_complete(half), end_reason(half)) == (False, EndReason.INCOMPLETE)


def test_every_problem_and_sample_is_planned_whether_begun_or_not() -> None:
    state = reduce_events([run_started("a", "b", samples=2)])

    assert [str(key) for key in state.planned()] == [
        *("set/a:sample00", "set/a:sample01", "set/b:sample00", "set/b:sample01")
    ]


def test_the_way_a_run_ended_is_known_only_once_it_did() -> None:
    assert reduce_events(RUN[:-1]).end_reason is None
    assert reduce_events(RUN).end_reason is EndReason.INCOMPLETE


def test_every_trajectory_is_tried_once_each_has_a_score_or_is_given_up() -> None:
    assert reduce_events(RUN).all_tried
    assert not reduce_events(RUN[:9]).all_tried
    assert not reduce_events([run_started("p0", "p1"), began(), terminated()]).all_tried
