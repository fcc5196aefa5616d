"""The baseline, as its description has it, against numbers worked out by hand."""

import pytest
from support.workloads import trajectory, workload

from runner.engines.dispatch import CostModel
from runner.simulation.law import steps_s
from runner.simulation.lock_step import LockStep, lock_step

LAW = CostModel()


def turn_s(batch: int, steps: int, context_tokens: int) -> float:
    """How long a turn takes that all of a batch end together."""
    return context_tokens / LAW.prefill_tokens_per_s + steps_s(LAW, steps, batch, context_tokens)


def test_the_tools_of_a_chunk_run_one_after_another() -> None:
    load = workload(*[trajectory(10, 10, tool_s=3.0)] * 4)

    found = lock_step(load, LockStep(engines=1))

    assert found.wall_s == pytest.approx(turn_s(4, 10, 7200) + 12.0 + turn_s(4, 10, 7240))


def test_tools_at_once_take_as_long_as_the_longest() -> None:
    load = workload(*[trajectory(10, 10, tool_s=seconds) for seconds in (1.0, 3.0, 2.0)])

    found = lock_step(load, LockStep(engines=1, parallel_tools=True))

    assert found.wall_s == pytest.approx(turn_s(3, 10, 5400) + 3.0 + turn_s(3, 10, 5430))


def test_a_turn_begins_when_all_of_the_chunk_have_ended_theirs() -> None:
    load = workload(trajectory(10, 10), trajectory(1000, 10))

    found = lock_step(load, LockStep(engines=1))

    first_s = 0.2 + steps_s(LAW, 10, 2, 3600) + steps_s(LAW, 990, 1, 1810)
    assert found.wall_s == pytest.approx(first_s + turn_s(2, 10, 1810 + 2800))


def test_a_chunk_ends_with_its_last() -> None:
    load = workload(trajectory(10), trajectory(10, 10, 10), trajectory(20))

    found = lock_step(load, LockStep(engines=1, chunk=2))

    first_s = turn_s(2, 10, 3600) + turn_s(1, 10, 1810) + turn_s(1, 10, 1820)
    assert found.wall_s == pytest.approx(first_s + turn_s(1, 20, 1800))


def test_trajectories_are_dealt_out_round_robin_and_engines_do_not_wait_for_each_other() -> None:
    load = workload(trajectory(500), trajectory(10), trajectory(500), trajectory(10))

    found = lock_step(load, LockStep(engines=2, chunk=1))

    assert found.wall_s == pytest.approx(2 * turn_s(1, 500, 1800))
    assert found.busy_s == pytest.approx(2 * turn_s(1, 500, 1800) + 2 * turn_s(1, 10, 1800))


def test_it_may_have_a_prefix_cache() -> None:
    load = workload(trajectory(10, 10))

    without = lock_step(load, LockStep(engines=1)).wall_s
    cached = lock_step(load, LockStep(engines=1, prefix_caching=True)).wall_s

    # Three blocks of the 1810 tokens seen.
    assert without - cached == pytest.approx(3 * 544 / 18_000)


def test_an_engine_is_idle_while_tools_run_and_when_it_has_nothing_left() -> None:
    load = workload(trajectory(10, 10, tool_s=5.0))

    found = lock_step(load, LockStep(engines=2))

    busy_s = found.wall_s - 5.0
    assert found.idle_share == pytest.approx(1 - busy_s / (2 * found.wall_s))
    assert found.mean_batch == pytest.approx(1.0)


def test_more_engines_than_trajectories_are_no_fault() -> None:
    assert lock_step(workload(trajectory(10)), LockStep(engines=8)).wall_s == pytest.approx(
        turn_s(1, 10, 1800)
    )
