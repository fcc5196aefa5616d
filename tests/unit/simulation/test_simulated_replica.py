"""The simulated engine against numbers worked out by hand. In virtual time."""

from dataclasses import dataclass
from functools import partial

import anyio
import pytest
from support.builders import SAMPLING
from support.fake_replica import in_virtual_time
from support.workloads import trajectory, workload

from runner.engines.base import Completion, GenerationRequest, Prompt, TrajectoryKey
from runner.engines.dispatch import CostModel
from runner.engines.replica import ReplicaLostError
from runner.simulation.law import steps_s, steps_within
from runner.simulation.replica import SimulatedReplica
from runner.simulation.workload import DATASET, Workload

LAW = CostModel()
STEP_S, EACH_S, TOKEN_S, PREFILL = 12e-3, 0.12e-3, 2e-9, 18_000.0
BLOCK = 544


@dataclass(frozen=True)
class Ended:
    """A turn and when it was done."""

    at: float
    completion: Completion


class Bench:
    """One engine and what came of the turns it was asked for."""

    def __init__(self, replica: SimulatedReplica) -> None:
        self.replica = replica
        self.ended: dict[tuple[int, int], Ended] = {}

    async def ask(self, index: int, turn: int = 0, *, after_s: float = 0.0) -> None:
        await anyio.sleep(after_s)
        request = GenerationRequest(
            key=TrajectoryKey(DATASET, str(index), 0),
            attempt=1,
            turn=turn,
            prompt=Prompt((), 0),
            sampling=SAMPLING,
            seed=0,
            max_tokens=1,
            stop=(),
        )
        completion = await self.replica.generate(request)
        self.ended[index, turn] = Ended(anyio.current_time(), completion)


async def bench(load: Workload, *asks: tuple[int, int, float], prefix_caching: bool = False) -> Bench:
    """Ask for turns as (trajectory, turn, seconds) and return what came of them."""
    made = Bench(SimulatedReplica("a", 64, load, LAW, prefix_caching=prefix_caching))
    async with anyio.create_task_group() as engine:
        made.replica.serve_in(engine)
        await made.replica.start()
        async with anyio.create_task_group() as turns:
            for index, turn, after_s in asks:
                turns.start_soon(partial(made.ask, index, turn, after_s=after_s))
        engine.cancel_scope.cancel()
    return made


@in_virtual_time
async def test_a_turn_alone_takes_its_prefill_and_its_steps() -> None:
    made = await bench(workload(trajectory(3, prompt_tokens=1800)), (0, 0, 0.0))

    contexts = 1800 + 1801 + 1802
    assert made.ended[0, 0].at == pytest.approx(1800 / PREFILL + 3 * (STEP_S + EACH_S) + TOKEN_S * contexts)


@in_virtual_time
async def test_every_further_sequence_makes_each_step_longer_for_all() -> None:
    made = await bench(
        workload(*[trajectory(2, prompt_tokens=900)] * 4), *[(index, 0, 0.0) for index in range(4)]
    )

    first, second = 4 * 900, 4 * 901
    expected_s = 4 * 900 / PREFILL + 2 * (STEP_S + 4 * EACH_S) + TOKEN_S * (first + second)
    assert [one.at for one in made.ended.values()] == [pytest.approx(expected_s)] * 4


@in_virtual_time
async def test_when_a_shorter_turn_is_done_the_others_go_on_with_shorter_steps() -> None:
    made = await bench(
        workload(trajectory(1, prompt_tokens=900), trajectory(3, prompt_tokens=900)), (0, 0, 0.0), (1, 0, 0.0)
    )

    short_s = 1800 / PREFILL + STEP_S + 2 * EACH_S + TOKEN_S * 1800
    assert made.ended[0, 0].at == pytest.approx(short_s)
    assert made.ended[1, 0].at == pytest.approx(short_s + 2 * (STEP_S + EACH_S) + TOKEN_S * (901 + 902))


@in_virtual_time
async def test_who_comes_in_the_middle_of_a_step_waits_for_its_end_and_its_prefill_stops_the_batch() -> None:
    made = await bench(
        workload(trajectory(4, prompt_tokens=1800), trajectory(1, prompt_tokens=3600)),
        (0, 0, 0.0),
        # Half a step behind the beginning of the second.
        (1, 0, 0.1 + 1.5 * (STEP_S + EACH_S)),
    )

    two_steps_s = 2 * (STEP_S + EACH_S) + TOKEN_S * (1800 + 1801)
    joint_s = STEP_S + 2 * EACH_S + TOKEN_S * (1802 + 3600)
    both_s = 0.1 + two_steps_s + 3600 / PREFILL + joint_s
    assert made.ended[1, 0].at == pytest.approx(both_s)
    assert made.ended[0, 0].at == pytest.approx(both_s + STEP_S + EACH_S + TOKEN_S * 1803)


@in_virtual_time
async def test_turns_that_come_during_a_prefill_are_prefilled_behind_it() -> None:
    made = await bench(
        workload(trajectory(1, prompt_tokens=1800), trajectory(1, prompt_tokens=900)),
        (0, 0, 0.0),
        (1, 0, 0.03),
    )

    expected_s = 2700 / PREFILL + STEP_S + 2 * EACH_S + TOKEN_S * 2700
    assert made.ended[0, 0].at == pytest.approx(expected_s)
    assert made.ended[1, 0].at == pytest.approx(expected_s)


@pytest.mark.parametrize(("prefix_caching", "cached"), [(False, None), (True, 3 * BLOCK)])
def test_with_a_prefix_cache_whole_blocks_of_what_was_seen_need_no_prefill(
    prefix_caching: bool, cached: int | None
) -> None:
    @in_virtual_time
    async def scenario() -> None:
        load = workload(trajectory(10, 1, prompt_tokens=1800, observation_tokens=700))
        made = await bench(load, (0, 0, 0.0), (0, 1, 5.0), prefix_caching=prefix_caching)

        # 1810 tokens were seen: three blocks of 544, and a part of a fourth.
        prefill_s = (2510 - (cached or 0)) / PREFILL
        second = made.ended[0, 1]
        assert second.completion.cached_tokens == cached
        assert second.at == pytest.approx(5.0 + prefill_s + STEP_S + EACH_S + TOKEN_S * 2510)

    scenario()


@in_virtual_time
async def test_the_cache_of_one_trajectory_is_of_no_use_to_another() -> None:
    load = workload(trajectory(1), trajectory(1))
    made = await bench(load, (0, 0, 0.0), (1, 0, 5.0), prefix_caching=True)

    assert made.ended[1, 0].completion.cached_tokens == 0


@in_virtual_time
async def test_a_completion_tells_where_its_time_went() -> None:
    made = await bench(workload(trajectory(5, prompt_tokens=1800)), (0, 0, 2.0))

    timing = made.ended[0, 0].completion.timing
    assert timing is not None
    assert timing.prefill_s == pytest.approx(0.1)
    assert timing.decode_s == pytest.approx(made.ended[0, 0].at - 2.1)


@in_virtual_time
async def test_a_cancelled_turn_leaves_the_batch() -> None:
    load = workload(trajectory(1000), trajectory(1000))
    made = Bench(SimulatedReplica("a", 64, load, LAW, prefix_caching=False))
    async with anyio.create_task_group() as engine:
        made.replica.serve_in(engine)
        await made.replica.start()
        with anyio.move_on_after(3):
            await made.ask(0)
        await made.ask(1)
        engine.cancel_scope.cancel()

    # The first had nobody to end for, so the second waits for what was going on at most.
    alone_s = 0.1 + steps_s(LAW, 1000, 1, 1800)
    assert set(made.ended) == {(1, 0)}
    assert made.ended[1, 0].at == pytest.approx(3 + alone_s, abs=STEP_S + EACH_S + 1e-5)


@pytest.mark.parametrize("kill_after_s", [0.05, 5.0])
def test_killed_in_prefill_or_decoding_it_loses_its_batch_and_its_cache_and_serves_again_when_started(
    kill_after_s: float,
) -> None:
    @in_virtual_time
    async def scenario() -> None:
        load = workload(trajectory(1000, 1))
        replica = SimulatedReplica("a", 64, load, LAW, prefix_caching=True)
        made = Bench(replica)
        async with anyio.create_task_group() as engine:
            replica.serve_in(engine)
            await replica.start()
            async with anyio.create_task_group() as turns:
                turns.start_soon(expect_lost, made)
                await anyio.sleep(kill_after_s)
                replica.kill()
                assert await replica.wait_lost() == "a was killed"
            assert anyio.current_time() == kill_after_s
            await expect_lost(made)
            await replica.start()
            await made.ask(0)
            engine.cancel_scope.cancel()

        assert made.ended[0, 0].at == pytest.approx(kill_after_s + 0.1 + steps_s(LAW, 1000, 1, 1800))
        assert made.ended[0, 0].completion.cached_tokens == 0

    scenario()


async def expect_lost(made: Bench) -> None:
    with pytest.raises(ReplicaLostError):
        await made.ask(0)


@pytest.mark.parametrize(("batch", "context"), [(1, 600), (16, 40_000), (64, 3_000_000)])
def test_steps_within_a_time_is_the_inverse_of_the_time_of_steps(batch: int, context: int) -> None:
    for steps in (1, 2, 7, 400, 4096):
        exactly_s = steps_s(LAW, steps, batch, context)
        assert steps_within(LAW, exactly_s, batch, context) == steps
        assert steps_within(LAW, exactly_s - 1e-4, batch, context) == steps
        assert steps_within(LAW, exactly_s + 1e-4, batch, context) == steps + 1
    assert steps_within(LAW, 0.0, batch, context) == 0
