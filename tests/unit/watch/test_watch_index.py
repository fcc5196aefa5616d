"""What the viewer keeps of a run: the facts of the reducer, and none of the turns' texts."""

import random
import sys

import pytest
from support.engine_events import engine_down, engine_up, sample, use
from support.events import (
    began,
    continued,
    ended,
    examined,
    paused,
    retried,
    run_started,
    stalled,
    terminated,
    turn,
    unfinished,
)
from support.watched import HOSTILE, Journal, bash_turn

from runner.engines.base import TrajectoryKey
from runner.events import AnyEvent, EndReason
from runner.protocol.score import Termination
from runner.state import reduce_events
from runner.views.watch.bars import run_line
from runner.views.watch.figures import mean_with_interval
from runner.views.watch.index import ErrorClass, RunIndex
from runner.views.watch.palette import ERROR_STYLES
from runner.views.watch.rows import Outcome, Row
from runner.views.watch.tail import JournalTail, Located
from runner.views.watch.turns import Places, read_trajectory

KEY = TrajectoryKey("set", "p0", 0)


def index_of(*events: AnyEvent) -> RunIndex:
    index = RunIndex("journal.jsonl")
    index.take_in(Located(event, line, line * 100) for line, event in enumerate(events, start=1))
    return index


def row_of(*events: AnyEvent) -> Row:
    return index_of(run_started("p0", "p1"), *events).rows[KEY]


def test_every_planned_trajectory_has_a_row_before_it_starts() -> None:
    index = index_of(run_started("a", "b", samples=3))

    assert len(index.rows) == 6
    assert {row.outcome for row in index.rows.values()} == {Outcome.WAITING}


@pytest.mark.parametrize(
    ("changes", "outcome"),
    [
        ({"score": 1.0}, Outcome.RIGHT),
        ({"score": 0.0}, Outcome.WRONG),
        ({"score": 0.0, "termination": Termination.MAX_TURNS}, Outcome.LIMIT),
        ({"score": 0.0, "termination": Termination.REQUEST_ERROR}, Outcome.LIMIT),
        ({"score": 1.0, "termination": Termination.MAX_TURNS}, Outcome.RIGHT),
    ],
)
def test_an_outcome_is_the_model_s_or_a_limit_s(changes: dict[str, object], outcome: Outcome) -> None:
    assert row_of(began(), turn(), terminated(**changes)).outcome is outcome  # type: ignore[arg-type]


def test_a_failure_of_ours_is_neither() -> None:
    row = row_of(began(), retried(), began(attempt=2), unfinished())

    assert (row.outcome, row.score, row.retries) == (Outcome.UNFINISHED, None, 1)


def test_a_run_that_ends_stops_what_still_ran_and_a_new_start_lets_it_wait() -> None:
    events = (run_started("p0", "p1"), began(), turn(), began("p1", row=1), ended(EndReason.INTERRUPTED))
    index = index_of(*events)
    assert index.rows[KEY].outcome is Outcome.STOPPED

    index.take_in([Located(run_started("p0", "p1"), 6, 600)])
    assert index.rows[KEY].outcome is Outcome.WAITING

    index.take_in([Located(began(), 7, 700)])
    assert (index.rows[KEY].outcome, index.rows[KEY].turns) == (Outcome.RUNNING, 0)


def test_turns_of_an_abandoned_attempt_count_no_more() -> None:
    row = row_of(began(), turn(), turn(number=1), retried(), began(attempt=2), turn())

    assert (row.attempt, row.turns, row.generated_tokens, list(row.turn_offsets)) == (2, 1, 2, [700])


def test_the_last_command_is_shown_in_one_cleaned_line() -> None:
    row = row_of(began(), bash_turn("p0", "echo \x1b[31mhi\x1b]52;c;eA==\x07\nls " + "x" * 1000))

    assert row.doing.startswith("echo hi⏎ls xxx")
    assert len(row.doing) <= 201


def test_errors_are_told_by_class_and_counted() -> None:
    index = index_of(
        run_started("p0"),
        began(),
        retried(cause="sandbox gone"),
        began(attempt=2),
        unfinished(cause="still gone"),
        engine_down("e0", cause="out of memory"),
        engine_down("e0", given_up=True),
        ended(EndReason.INCOMPLETE).model_copy(update={"message": "one is missing"}),
    )

    assert [note.kind for note in index.errors] == [
        ErrorClass.RETRY,
        ErrorClass.UNFINISHED,
        ErrorClass.ENGINE_LOST,
        ErrorClass.ENGINE_GIVEN_UP,
        ErrorClass.RUN,
    ]
    assert index.errors[0].where == "set/p0:sample00 attempt 1"


def test_a_pause_is_seen_until_it_is_over_and_what_was_found_stays() -> None:
    index = index_of(
        run_started("p0"),
        paused("the daemon is gone"),
        examined("sandbox: gone", "disk: full"),
        stalled(),
    )
    assert index.pause is not None
    assert "paused: the sandbox fails" in run_line(index, 0.0, "").plain
    assert [(note.kind, note.where) for note in index.errors] == [
        (ErrorClass.PAUSE, "sandbox"),
        (ErrorClass.DOCTOR, "sandbox"),
        (ErrorClass.DOCTOR, "sandbox"),
        (ErrorClass.STALL, "stall-1.txt"),
    ]
    assert index.errors[0].cause == "5 failures in a row, the last: the daemon is gone"

    index.take_in([Located(continued(), 9, 900)])
    assert index.pause is None
    assert "running" in run_line(index, 0.0, "").plain


@pytest.mark.parametrize("last", [ended(EndReason.FAILED), run_started("p0")])
def test_a_pause_ends_with_the_run_and_is_not_a_later_start_s(last: AnyEvent) -> None:
    assert index_of(run_started("p0"), paused(), last).pause is None


def test_every_class_of_error_has_a_style() -> None:
    assert set(ERROR_STYLES) == set(ErrorClass)


@pytest.mark.parametrize(
    "events",
    [
        [turn()],
        [terminated()],
        [run_started("other"), began()],
        [run_started("p0"), turn()],
        [run_started("p0"), unfinished()],
        [run_started("p0"), retried()],
    ],
)
def test_events_that_cannot_stand_there_are_shown_and_stop_nothing(events: list[AnyEvent]) -> None:
    index = index_of(*events)

    assert index.error_counts[ErrorClass.DAMAGE] == 1
    assert f"journal.jsonl:{len(events)}" in [note.where for note in index.errors]
    assert len(index.rows) >= 1


def test_a_journal_without_its_beginning_is_no_damage_by_itself() -> None:
    index = index_of(engine_up("e"), sample(use("e")), ended())

    assert not index.errors
    assert list(index.engines.by_name) == ["e"]


def random_events(seed: int) -> list[AnyEvent]:
    """A run of some problems, as a run may go."""
    rng = random.Random(seed)  # noqa: S311 - no secret
    ids = [f"p{number}" for number in range(6)]
    events: list[AnyEvent] = [run_started(*ids)]
    for row, one in enumerate(ids):
        for attempt in range(1, rng.randint(1, 3) + 1):
            if attempt > 1:
                events.append(retried(one, attempt=attempt - 1))
            events.append(began(one, attempt=attempt, row=row))
            events += [turn(number=n, problem_id=one, attempt=attempt) for n in range(rng.randint(0, 4))]
        end = rng.choice([terminated(one, score=float(rng.random() < 0.5)), unfinished(one), None])
        if end is not None:
            events.append(end)
    return events


@pytest.mark.parametrize("seed", range(20))
def test_the_index_and_the_reducer_agree(seed: int) -> None:
    events = random_events(seed)
    state, index = reduce_events(events), index_of(*events)

    for key, told in state.trajectories.items():
        row = index.rows[key]
        assert (row.attempt, row.turns, row.retries) == (told.attempt, len(told.turns), len(told.retries))
        assert (row.outcome is Outcome.UNFINISHED) == (told.unfinished is not None)
        assert row.score == (None if told.terminated is None else told.terminated.score)
    assert index.engines == state.engines
    assert sum(index.tallies["set"].values()) == 6
    assert not index.error_counts[ErrorClass.DAMAGE]


def test_only_changed_rows_are_told_as_changed() -> None:
    index = index_of(run_started(*(f"p{number}" for number in range(100))))
    assert len(index.take_changed()) == 100

    index.take_in([Located(began("p7", row=7), 2, 200)])

    assert index.take_changed() == {TrajectoryKey("set", "p7", 0)}
    assert index.take_changed() == set()


def test_no_turn_s_text_is_kept(journal: Journal) -> None:
    index = index_of(run_started("p0"), began(), turn("long text " * 1000, observation="long " * 5000))
    row = index.rows[KEY]

    held = [getattr(row, name) for name in Row.__slots__]
    assert sum(sys.getsizeof(one) for one in held if isinstance(one, str)) < 1000


def test_a_trajectory_is_read_back_from_its_places(journal: Journal) -> None:
    journal.write(
        run_started("p0", "p1"),
        began(),
        turn("abandoned"),
        retried(cause="gone"),
        began("p1", row=1),
        turn("another's", problem_id="p1"),
        began(attempt=2),
        turn("kept", attempt=2),
        turn(HOSTILE[7], number=1, attempt=2),
        terminated(attempt=2, prediction="41", score=0.0),
    )
    index = RunIndex("journal.jsonl")
    index.take_in(JournalTail(journal.path).look().found)

    told = read_trajectory(journal.path, Places.of(index.rows[KEY]))

    assert [one.assistant for one in told.turns] == ["kept", HOSTILE[7]]
    assert [one.cause for one in told.retries] == ["gone"]
    assert told.end is not None
    assert not told.problems


def test_places_in_a_journal_that_is_another_by_now_are_told_as_unreadable(journal: Journal) -> None:
    journal.write(run_started("p0"), began(), turn("mine"), terminated())
    index = RunIndex("journal.jsonl")
    index.take_in(JournalTail(journal.path).look().found)
    places = Places.of(index.rows[KEY])

    other = run_started("p1", run_id="another")
    journal.path.write_bytes(journal.line(other) + journal.line(turn(problem_id="p1")) * 9)
    assert len(read_trajectory(journal.path, places).problems) == 2

    journal.path.unlink()
    assert read_trajectory(journal.path, places).problems == ("No such file or directory",)


def test_the_interval_is_that_of_fresh_samples_once_every_problem_has_two() -> None:
    ids = ("p0", "p1")
    events: list[AnyEvent] = [run_started(*ids, samples=2)]
    for sample_number in (0, 1):
        for row, one in enumerate(ids):
            score = float((sample_number, one) != (1, "p1"))
            events.append(began(one, row=row, sample=sample_number))
            events.append(terminated(one, sample=sample_number, score=score))

    early = index_of(*events[:5]).mean("set")
    whole = index_of(*events).mean("set")

    assert early is not None
    assert (early.value, early.interval.is_hint) == (1.0, True)
    assert early.interval.low < 0.5
    assert whole is not None
    assert (whole.value, whole.interval.is_hint, whole.interval.high) == (0.75, False, 1.0)
    assert whole.interval.low == pytest.approx(0.75 - 1.959964 * 0.25)
    assert mean_with_interval([]) is None
