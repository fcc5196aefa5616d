"""The reducer: from events to the state of a run, at every moment of it."""

from pathlib import Path

import pytest
from support.events import (
    began,
    disk_was_full,
    ended,
    retried,
    run_resumed,
    run_started,
    terminated,
    turn,
    unfinished,
)

from runner.engines.base import TrajectoryKey
from runner.events import AnyEvent, EndReason
from runner.journal import JournalWriter, read_journal
from runner.results.build import build_results, end_reason, is_complete
from runner.results.records import trajectory_record
from runner.results.summary import summary_text
from runner.state import StateError, reduce_events

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


def at(event: AnyEvent, seconds: float) -> AnyEvent:
    return event.model_copy(update={"at": seconds})


RESUMED: tuple[AnyEvent, ...] = (
    at(run_started("p0", "p1", "p2", deviations=("a script",)), 100.0),
    at(began(), 101.0),
    at(terminated(), 110.0),
    at(began("p1", row=1), 111.0),
    at(unfinished("p1"), 115.0),
    at(began("p2", row=2), 116.0),
    at(turn("cut", problem_id="p2"), 120.0),
    at(run_resumed("p0", "p1", "p2", deviations=("a script", "another policy")), 1000.0),
    at(began("p2", row=2), 1001.0),
    at(turn("again", problem_id="p2"), 1003.0),
    at(terminated("p2"), 1004.0),
    at(disk_was_full(4.0), 1008.0),
    at(ended(EndReason.INTERRUPTED), 1010.0),
)


def test_a_run_of_two_parts_is_one_run() -> None:
    state = reduce_events(RESUMED)

    assert state.started is not None
    assert (state.started.at, state.end_reason) == (100.0, EndReason.INTERRUPTED)
    assert state.started.deviations == ("a script", "another policy")
    assert [(part.wall_s, part.ended is not None) for part in state.parts] == [(20.0, False), (10.0, True)]


def test_the_time_between_two_parts_is_no_work_and_is_told() -> None:
    state = reduce_events(RESUMED)

    assert (state.wall_s, state.paused_s, state.disk_full_s) == (30.0, 880.0, 4.0)
    assert [state.work_s(moment) for moment in (100, 110, 120, 500, 1000, 1004, 2000)] == [
        *(0, 10, 20, 20, 20, 24, 30)
    ]


def test_a_trajectory_that_was_cut_is_that_of_its_newest_start() -> None:
    played = reduce_events(RESUMED).trajectories[TrajectoryKey("set", "p2", 0)]

    assert [one.assistant for one in played.turns] == ["again"]
    assert (played.attempt, played.retries) == (1, [])


def test_a_trajectory_that_was_given_up_lacks_its_score_again_and_keeps_why() -> None:
    before, after = reduce_events(RESUMED[:7]), reduce_events(RESUMED)
    key = TrajectoryKey("set", "p1", 0)

    assert before.trajectories[key].unfinished is not None
    assert (after.trajectories[key].unfinished, len(after.trajectories[key].given_up)) == (None, 1)
    cause = after.trajectories[key].cause
    assert cause is not None
    assert cause.cause == "dead"
    assert not after.all_tried


def test_what_is_missing_is_whatever_has_no_score() -> None:
    missing = [reduce_events(RESUMED[:count]).missing() for count in (1, 3, 5, 7, 11)]

    ids = [[key.problem_id for key in one] for one in missing]
    assert ids == [["p0", "p1", "p2"], ["p1", "p2"], ["p1", "p2"], ["p1", "p2"], ["p1"]]


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (began(), "set/p0:sample00 starts again, and has its score"),
        (terminated(), "terminated of set/p0:sample00, which has its score"),
        (turn(), "turn of set/p0:sample00, which has its score"),
        (unfinished("p0"), "unfinished of set/p0:sample00, which has its score"),
    ],
)
def test_nothing_happens_to_a_trajectory_behind_its_score(event: AnyEvent, message: str) -> None:
    with pytest.raises(StateError, match=message):
        reduce_events([*RESUMED[:3], event])


@pytest.mark.parametrize(
    "other",
    [run_resumed("p0", "p9"), run_resumed("p0", "p1", samples=2), run_resumed("p0", "p1", run_id="x")],
)
def test_a_run_goes_on_as_the_one_that_began(other: AnyEvent) -> None:
    with pytest.raises(StateError, match="goes on as another run than run began"):
        reduce_events([run_started("p0", "p1"), other])


def test_a_run_that_never_began_cannot_go_on() -> None:
    with pytest.raises(StateError, match="never began"):
        reduce_events([run_resumed()])
