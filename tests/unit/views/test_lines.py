"""Plain lines: phases, progress and errors of logs, as `key=value` that nobody can forge."""

import shlex
from dataclasses import replace

import pytest
from support.events import began, run_started, terminated
from support.hostile import HOSTILE, harmful_in
from support.live import NOW, acts, busy_state

from runner.engines.base import TrajectoryKey
from runner.events import RunEnded
from runner.views.lines import log_line, phase_line, progress_lines
from runner.views.live_state import LiveState
from runner.views.phases import Phase, PhaseState

RUNNING = PhaseState(Phase.RUNNING, 0.0)


def fields(line: str) -> dict[str, str]:
    return dict(field.split("=", 1) for field in shlex.split(line) if "=" in field)


def test_progress_has_a_line_a_data_set_and_one_of_the_work() -> None:
    state = busy_state()

    dapo, aime, work = (fields(line) for line in progress_lines(state, RUNNING, NOW))

    assert (dapo["dataset"], dapo["done"], dapo["mean"]) == ("dapo", "15/200", "0.000")
    assert float(aime["low"]) < float(aime["mean"]) <= float(aime["high"])
    assert float(dapo["per_min"]) > 0 < float(dapo["left_s"])
    assert (work["running"], work["queued"], work["actions"], work["retries"]) == ("20", "3", "50", "1")
    assert work["limits"].startswith("time:")


def test_progress_of_a_run_that_just_began_says_only_what_is_known() -> None:
    state = LiveState()
    state.apply(run_started(at=0.0))

    assert progress_lines(state, RUNNING, 3.0) == [
        "progress dataset=set done=0/1",
        "progress s=3 running=0 tokens_s=0 actions=0 retries=0",
    ]


def test_before_a_run_and_behind_it_progress_is_its_phase_s() -> None:
    fetching = PhaseState(Phase.FETCHING, 0.0, "a file", 25.0, 100.0)
    assert progress_lines(LiveState(), fetching, 30.0) == ["progress phase=fetching s=30 percent=25"]

    state = busy_state()
    state.apply(RunEnded(reason="complete"))
    assert progress_lines(state, PhaseState(Phase.ENDING, NOW), NOW + 5) == ["progress phase=ending s=5"]


def test_a_phase_is_a_line() -> None:
    assert phase_line(PhaseState(Phase.VERIFYING, 0.0)) == "phase=verifying"
    line = phase_line(PhaseState(Phase.FETCHING, 0.0, "model 1 of 3"))
    assert fields(line) == {"phase": "fetching", "detail": "model 1 of 3"}


@pytest.mark.parametrize("name", HOSTILE)
def test_no_line_carries_anything_hostile_or_grows_long(name: str) -> None:
    text = HOSTILE[name]
    state = LiveState()
    state.apply(run_started(text, dataset=text))
    state.apply(began().model_copy(update={"dataset": text, "problem_id": text}))
    state.apply(acts(TrajectoryKey(text, text, 0), text))
    state.apply(terminated().model_copy(update={"dataset": text, "problem_id": text}))
    phase = replace(RUNNING, detail=text)

    for line in [*progress_lines(state, RUNNING, 1.0), phase_line(phase), log_line(text)]:
        assert "\n" not in line
        assert harmful_in(line) == set()
        assert len(line) < 500


def test_a_data_set_s_name_cannot_pass_for_further_fields() -> None:
    state = LiveState()
    state.apply(run_started(dataset='x done=9/9 mean="1'))

    assert fields(progress_lines(state, RUNNING, 1.0)[0])["done"] == "0/1"
