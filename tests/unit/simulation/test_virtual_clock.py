"""Time that passes only when there is nothing else to do."""

import time

import anyio
import pytest

from runner.simulation.clock import DeadlockError, run_in_virtual_time


def test_it_begins_at_zero_and_sleeping_moves_it_on_exactly() -> None:
    async def scenario() -> list[float]:
        times = [anyio.current_time()]
        for seconds in (0.25, 3600.0, 86_400.0):
            await anyio.sleep(seconds)
            times.append(anyio.current_time())
        return times

    assert run_in_virtual_time(scenario) == [0.0, 0.25, 3600.25, 90_000.25]


def test_hours_do_not_pass_in_reality() -> None:
    began_s = time.monotonic()

    run_in_virtual_time(anyio.sleep, 1000 * 3600.0)

    assert time.monotonic() - began_s < 3600


def test_tasks_wake_in_the_order_of_their_times() -> None:
    async def scenario() -> list[float]:
        woken: list[float] = []

        async def wake_after(seconds: float) -> None:
            await anyio.sleep(seconds)
            woken.append(anyio.current_time())

        async with anyio.create_task_group() as tasks:
            for seconds in (3.0, 1.0, 2.0):
                tasks.start_soon(wake_after, seconds)
        return woken

    assert run_in_virtual_time(scenario) == [1.0, 2.0, 3.0]


def test_a_limit_runs_out_at_its_time() -> None:
    async def scenario() -> float:
        with anyio.move_on_after(7.5):
            await anyio.sleep_forever()
        return anyio.current_time()

    assert run_in_virtual_time(scenario) == 7.5


def test_a_task_that_nothing_will_wake_is_an_error_instead_of_silence() -> None:
    async def scenario() -> None:
        await anyio.Event().wait()

    with pytest.raises(DeadlockError, match="no timer"):
        run_in_virtual_time(scenario)
