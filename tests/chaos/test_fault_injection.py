"""Ten schedules of what `fault_injection.py` does at length, and one with real sandboxes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from chaos_harness import Outcome, comparable
from chaos_place import EnginePlace, HostPlace
from chaos_schedule import ANYWHERE, DAEMON, FEWEST, MOST, WITHIN_S, Deed, schedule_of
from fault_injection import line_of, run_schedules, summary_of

SEEDS = range(1, 11)


@pytest.mark.timeout(1200)
def test_whatever_dies_or_stalls_the_results_are_those_of_an_undisturbed_run(tmp_path: Path) -> None:
    outcomes = run_schedules(tmp_path, HostPlace, seeds=SEEDS, with_daemon=True)

    assert [line_of(one) for one in outcomes if not one.good] == []
    # What happens at random has to have happened.
    assert sum(sum(one.done.values()) for one in outcomes) >= FEWEST * len(SEEDS) / 2
    assert sum(len(one.exits) - 1 for one in outcomes) >= 3


@pytest.mark.docker
@pytest.mark.timeout(900)
def test_the_same_with_real_sandboxes_and_nothing_is_left(tmp_path: Path) -> None:
    outcomes = run_schedules(tmp_path, lambda at, _: EnginePlace(at), seeds=range(2, 3), with_daemon=False)

    assert [line_of(one) for one in outcomes if not one.good] == []


def test_a_seed_is_always_the_same_schedule() -> None:
    assert schedule_of(7, ANYWHERE) == schedule_of(7, ANYWHERE)
    assert schedule_of(7, ANYWHERE) != schedule_of(8, ANYWHERE)


def test_two_hundred_seeds_hold_every_fault_often() -> None:
    schedules = [schedule_of(seed, ANYWHERE + DAEMON) for seed in range(1, 201)]

    steps = [step for one in schedules for step in one]
    assert {deed: sum(step.deed is deed for step in steps) >= 20 for deed in Deed} == dict.fromkeys(
        Deed, True
    )
    assert all(FEWEST <= len(one) <= MOST for one in schedules)
    assert all(0 <= step.at_s <= WITHIN_S for step in steps)


def test_a_score_an_observation_or_a_trajectory_that_differs_is_seen(tmp_path: Path) -> None:
    def results(
        directory: str, *, score: float = 1.0, saw: str = "1\n", attempts: int = 1, run: str = "a"
    ) -> str:
        trajectory = {
            "score": score,
            "react_steps": [{"observation": saw}],
            "attempts": attempts,
            "elapsed_s": 2.5,
        }
        document = {
            "run_id": run,
            "datasets": {"set": {"trajectories": [trajectory]}},
            "timings": {"wall_s": 1},
        }
        place = tmp_path / directory
        place.mkdir()
        (place / "evaluation_results.json").write_text(json.dumps(document))
        return comparable(place)

    undisturbed = results("undisturbed")
    assert results("faulted", attempts=4, run="b") == undisturbed
    assert results("wrong", score=0.0) != undisturbed
    assert results("unseen", saw="2\n") != undisturbed


def test_a_schedule_says_its_seed_and_what_was_wrong() -> None:
    outcome = Outcome(17, wrong=["not done within 240 s"])
    outcome.done["broker killed"] = 2

    assert line_of(outcome).startswith("seed 17: WRONG not done within 240 s")
    assert "broker killed x2" in line_of(outcome)
    assert summary_of([outcome])["wrong_seeds"] == [17]
