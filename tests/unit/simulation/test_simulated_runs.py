"""Whole runs in virtual time, and the limits that the scheduler has to keep."""

from pathlib import Path

import pytest
from support.workloads import trajectory, workload

from runner.events import Terminated, TurnDone
from runner.protocol.score import Termination
from runner.simulation.bounds import longest_alone_s
from runner.simulation.lock_step import LockStep, lock_step
from runner.simulation.run import Setup, Simulated, simulate
from runner.simulation.workload import Workload

BENCH = Path(__file__).resolve().parents[4] / "shared" / "bench"


def given(name: str) -> Workload:
    path = BENCH / name
    if not path.exists():
        pytest.skip(f"{name} is not part of the repository and is not in ../shared/bench")
    return Workload.read(path)


def endings(run: Simulated) -> dict[str, tuple[object, ...]]:
    """What the trajectories came to, without times."""
    return {
        one.problem_id: (one.termination, one.score, one.generated_tokens, one.max_context_tokens)
        for one in run.ended
        if isinstance(one, Terminated)
    }


def steps(run: Simulated) -> dict[tuple[str, int], tuple[str, int, int]]:
    """What was said in each turn that counts, without times and engines."""

    def told(one: TurnDone) -> tuple[str, int, int]:
        return (one.assistant, one.prompt_tokens, one.completion_tokens)

    return {(one.problem_id, one.turn): told(one) for one in run.turns}


def test_every_trajectory_does_all_its_turns_and_answers() -> None:
    load = Workload.generate(40, 5)

    run = simulate(load, Setup(engines=2, slots=8))

    expected = {
        str(index): Termination.FINAL_ANSWER for index, one in enumerate(load.unrolled) if len(one) > 1
    }
    found = endings(run)
    assert {name: found[name][0] for name in expected} == expected
    assert len(found) == 40
    assert len(run.turns) == sum(len(one) for one in load.unrolled)


def test_a_trajectory_alone_takes_exactly_as_long_as_it_does_by_the_law() -> None:
    load = workload(trajectory(700, 300, 20, tool_s=1.5, observation_tokens=60))

    for caching in (False, True):
        run = simulate(load, Setup(engines=1, prefix_caching=caching))
        bound_s = longest_alone_s(load, Setup().law, prefix_caching=caching)
        assert run.wall_s == pytest.approx(bound_s, abs=1e-6)


def test_the_same_run_twice_takes_the_same_time() -> None:
    load = Workload.generate(30, 2)
    setup = Setup(engines=3, slots=4, prefix_caching=True)

    first, second = simulate(load, setup), simulate(load, setup)

    assert (first.wall_s, first.turns) == (second.wall_s, second.turns)


@pytest.mark.parametrize(
    ("count", "engines", "slots", "in_flight"),
    [(1, 1, 1, None), (1, 8, 64, None), (3, 8, 1, 1), (20, 1, 1, None), (20, 2, 3, 100)],
)
def test_odd_machines_end_their_runs_too(count: int, engines: int, slots: int, in_flight: int | None) -> None:
    load = Workload.generate(count, 1)

    run = simulate(load, Setup(engines=engines, slots=slots, in_flight=in_flight))

    assert len(run.ended) == count
    assert 0.0 <= run.idle_share < 1.0
    assert 0 < run.mean_batch <= slots


def test_turns_wait_for_places_where_more_trajectories_are_in_flight_than_there_are_slots() -> None:
    load = Workload.generate(20, 1)

    def mean_queue_s(in_flight: int) -> float:
        return simulate(load, Setup(engines=1, slots=2, in_flight=in_flight)).mean_queue_s

    assert mean_queue_s(2) == 0.0
    assert mean_queue_s(20) > mean_queue_s(4) > 0.0


@pytest.mark.parametrize("prefix_caching", [False, True])
def test_a_run_whose_engines_are_killed_ends_as_one_that_nobody_disturbed(prefix_caching: bool) -> None:
    load = Workload.generate(30, 4)
    calm = Setup(engines=3, slots=8, prefix_caching=prefix_caching)
    kills = ((5.0, 0), (30.0, 1), (30.0, 2), (30.5, 0), (90.0, 1), (90.02, 1), (200.0, 2))

    undisturbed = simulate(load, calm)
    disturbed = simulate(load, Setup(engines=3, slots=8, prefix_caching=prefix_caching, kills=kills))

    assert endings(disturbed) == endings(undisturbed)
    assert steps(disturbed) == steps(undisturbed)
    assert len(disturbed.turns) == len(undisturbed.turns)
    assert sum(one.starts for one in disturbed.engines) > 3


@pytest.mark.parametrize(
    ("name", "prefix_caching", "limit"),
    [
        ("workload_520.jsonl", False, 0.28),
        ("workload_520.jsonl", True, 0.195),
        ("workload_130.jsonl", False, 0.66),
        ("workload_130.jsonl", True, 0.555),
    ],
)
def test_a_run_takes_no_more_than_this_share_of_lock_step(
    name: str, prefix_caching: bool, limit: float
) -> None:
    load = given(name)

    run = simulate(load, Setup(prefix_caching=prefix_caching))

    assert run.wall_s / lock_step(load, LockStep()).wall_s <= limit


@pytest.mark.parametrize(
    ("name", "lock_step_s"), [("workload_520.jsonl", 4965), ("workload_130.jsonl", 1176)]
)
def test_lock_step_takes_what_it_is_said_to_take(name: str, lock_step_s: float) -> None:
    assert lock_step(given(name), LockStep()).wall_s == pytest.approx(lock_step_s, rel=1e-3)


@pytest.mark.parametrize(
    ("count", "prefix_caching", "limit"),
    [(60, False, 1.2), (130, True, 1.1)],
)
def test_a_run_of_drawn_trajectories_takes_little_longer_than_its_longest_alone(
    count: int, prefix_caching: bool, limit: float
) -> None:
    load = Workload.generate(count, 100)

    run = simulate(load, Setup(prefix_caching=prefix_caching))

    bound_s = longest_alone_s(load, Setup().law, prefix_caching=prefix_caching)
    assert bound_s <= run.wall_s <= limit * bound_s
