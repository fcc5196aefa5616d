"""What a display keeps of a run."""

import pytest
from support.events import began, ended, retried, run_started, terminated, turn, unfinished
from support.live import acts, busy_state, records, starts, tool

from runner.engines.base import TrajectoryKey
from runner.events import EndReason
from runner.protocol.score import Termination
from runner.views.live_parts import KEPT_ENDS, ErrorClass, RunningPhase
from runner.views.live_state import KEPT_CHARS, KEPT_ENDED, KEPT_ERRORS, KEPT_LATENCIES, LiveState

KEY = TrajectoryKey("set", "p0", 0)


def state_after(*events: object) -> LiveState:
    state = LiveState()
    for event in events:
        state.apply(event)  # type: ignore[arg-type]
    return state


def test_a_data_set_counts_scored_and_given_up_trajectories_apart() -> None:
    state = state_after(
        run_started("p0", "p1", "p2"),
        began("p0"),
        terminated("p0"),
        began("p1"),
        unfinished("p1"),
        began("p2"),
    )

    tally = state.tallies["set"]
    assert (tally.planned, tally.scored, tally.tried, tally.mean.value) == (3, 1, 2, 1.0)
    assert (state.planned, state.tried, state.unfinished) == (3, 2, 1)
    assert state.terminations == {Termination.FINAL_ANSWER.value: 1}
    assert [one.key.problem_id for one in state.running] == ["p2"]


def test_a_trajectory_that_was_given_up_and_is_run_again_counts_once() -> None:
    state = state_after(
        run_started("p0"), began(), unfinished(), run_started("p0"), began(attempt=4), terminated(attempt=4)
    )

    assert (state.tallies["set"].tried, state.unfinished) == (1, 0)


def test_a_run_that_starts_again_keeps_what_was_done_and_nothing_that_ran() -> None:
    state = state_after(
        run_started("p0", "p1"), began("p0"), terminated("p0"), began("p1"), ended(), run_started("p0", "p1")
    )

    assert (state.tried, state.running, state.ended) == (1, [], None)


def test_rows_of_running_trajectories_stay_where_they_are() -> None:
    state = state_after(run_started(*(f"p{n}" for n in range(9))), *(began(f"p{n}") for n in range(4)))
    state.apply(terminated("p1"))
    state.apply(began("p7"))
    state.apply(retried("p2"))
    state.apply(began("p2", attempt=2))

    assert [one.key.problem_id for one in state.running] == ["p0", "p7", "p2", "p3"]
    assert [one.attempt for one in state.running] == [1, 1, 2, 1]


def test_a_running_trajectory_tells_what_it_is_at() -> None:
    state = state_after(run_started(), began())
    (running,) = state.running
    assert running.phase is RunningPhase.MODEL

    state.note_command("set/p0:sample00:1", "ulimit -v 8388608; ls -l")
    assert (running.phase, running.command) == (RunningPhase.COMMAND, "ls -l")

    state.note_command("set/p0:sample00:1", None)
    state.apply(acts(KEY, "ls -l", number=4, prompt_tokens=1000, completion_tokens=20))
    assert (running.phase, running.turns, running.context_tokens) == (RunningPhase.MODEL, 5, 1020)

    state.apply(retried())
    assert running.phase is RunningPhase.RETRY


def test_a_command_of_a_workspace_that_nobody_knows_is_nothing() -> None:
    state = state_after(run_started(), began(attempt=2))
    for workspace in ("", "set/p0:sample00:1", "set/p9:sample00:1"):
        state.note_command(workspace, "x")

    assert [one.command for one in state.running] == [""]


def test_the_last_that_ended_carry_score_prediction_and_gold() -> None:
    state = state_after(run_started(), began(), terminated(prediction="41", score=0.0, elapsed_s=3.0))

    (last,) = state.last_ended
    assert (last.score, last.prediction, last.gold, last.turns, last.elapsed_s) == (0.0, "41", "42", 1, 3.0)


def test_quantiles_are_of_the_last_actions() -> None:
    state = state_after(run_started(), began())
    assert state.latency_s(0.5) is None
    for number in range(KEPT_LATENCIES + 10):
        state.apply(acts(KEY, "x", number=number, tool_s=float(max(number - 9, 1))))

    assert state.latency_s(0.5) == KEPT_LATENCIES / 2
    assert state.latency_s(0.9) == pytest.approx(0.9 * KEPT_LATENCIES, abs=1)
    assert state.latency_s(1.0) == KEPT_LATENCIES
    assert state.actions == KEPT_LATENCIES + 10


def test_limits_and_exit_codes_of_actions_are_counted() -> None:
    state = state_after(
        run_started(),
        began(),
        acts(KEY, "a", tool=tool(exit_code=1)),
        acts(KEY, "b", number=1, tool=tool(exit_code=None, limits=("time", "memory"))),
        turn(number=2),
    )

    assert (state.actions, state.failed_actions, dict(state.limits)) == (2, 1, {"time": 1, "memory": 1})


def test_rate_and_time_left_are_of_what_ended_lately() -> None:
    names = [f"p{number}" for number in range(100)]
    state = state_after(run_started(*names, at=0.0))
    tally = state.tallies["set"]
    assert (tally.per_s(10.0, 0.0), tally.left_s(10.0, 0.0)) == (None, None)

    for number, name in enumerate(names[:20]):
        state.apply(began(name))
        state.apply(terminated(name, at=float(number + 1)))
    assert tally.per_s(20.0, 0.0) == 1.0
    assert tally.left_s(20.0, 0.0) == 80.0
    assert state.left_s(20.0) == 80.0
    assert tally.per_s(10_000.0, 0.0) is None

    for number, name in enumerate(names[20:]):
        state.apply(began(name))
        state.apply(terminated(name, at=20.0 + number))
    assert tally.left_s(100.0, 0.0) == 0.0


def test_more_ends_than_are_kept_do_not_lower_the_rate() -> None:
    names = [f"p{number}" for number in range(4 * KEPT_ENDS)]
    state = state_after(run_started(*names, at=0.0))
    for number, name in enumerate(names[: 3 * KEPT_ENDS]):
        state.apply(terminated(name, at=number / 10))

    rate = state.tallies["set"].per_s(3 * KEPT_ENDS / 10, 0.0)
    assert rate == pytest.approx(10.0, rel=0.02)


def test_tokens_a_second_are_of_the_last_minute() -> None:
    state = state_after(run_started(at=0.0), began())
    for second in range(100):
        state.apply(turn(number=second, completion_tokens=50, at=float(second)))

    assert state.token_rates["fake"].per_s(100.0, 0.0) == pytest.approx(50.0, rel=0.05)
    assert state.token_rates["fake"].per_s(500.0, 0.0) == 0.0


def test_errors_carry_whose_they_are() -> None:
    state = state_after(
        run_started("p0", "p1"),
        began(),
        retried(),
        began(attempt=2),
        terminated(attempt=2, termination=Termination.REQUEST_ERROR, react_error="ValueError: no"),
        began("p1"),
        unfinished("p1"),
        ended(EndReason.FAILED).model_copy(update={"message": "disk full"}),
    )

    assert [(one.kind, one.where, one.cause) for one in state.last_errors] == [
        (ErrorClass.RETRY, "set/p0:0", "dead"),
        (ErrorClass.REQUEST, "set/p0:0", "ValueError: no"),
        (ErrorClass.UNFINISHED, "set/p1:0", "dead"),
        (ErrorClass.RUN, "failed", "disk full"),
    ]


@pytest.mark.parametrize("error", ["max_react_turns_exceeded", "context_length_exceeded"])
def test_a_limit_of_the_protocol_is_no_error(error: str) -> None:
    state = state_after(run_started(), began(), terminated(react_error=error))

    assert list(state.last_errors) == []


def test_what_is_kept_is_bounded_however_long_a_run_is() -> None:
    names = [f"p{number}" for number in range(500)]
    long = "x" * 100_000
    state = state_after(run_started(*names, datasets=records(["set"], names, answer=long)))
    for number, name in enumerate(names):
        state.apply(began(name))
        state.apply(acts(TrajectoryKey("set", name, 0), long))
        state.apply(retried(name, cause=long))
        state.apply(began(name, attempt=2))
        state.apply(terminated(name, attempt=2, prediction=long, at=float(number)))

    assert len(state.last_ended) == KEPT_ENDED
    assert len(state.last_errors) == KEPT_ERRORS
    assert state.running == []
    assert {len(one.prediction) for one in state.last_ended} == {KEPT_CHARS}
    assert {len(one.gold) for one in state.last_ended} == {KEPT_CHARS}
    assert {len(one.cause) for one in state.last_errors} == {KEPT_CHARS}
    assert len(state._slots) == 1
    assert not state._by_workspace


def test_an_event_of_a_trajectory_that_nobody_saw_begin_is_counted() -> None:
    state = state_after(acts(KEY, "x"), terminated(), starts("set", "p0"), unfinished())

    assert (state.actions, state.tallies["set"].scored) == (1, 1)


def test_a_busy_run_has_something_in_every_panel() -> None:
    """The other tests of views rely on it."""
    state = busy_state()

    assert state.running
    assert state.last_ended
    assert {ErrorClass.RETRY, ErrorClass.ENGINE} <= {one.kind for one in state.last_errors}
    assert {one.phase for one in state.running} == set(RunningPhase)
