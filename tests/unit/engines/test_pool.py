"""Where the pool puts turns, how it begins and ends, and what it tells of its replicas."""

from collections import Counter

import anyio
import pytest
from support.fake_replica import FakePool, FakeReplica, in_virtual_time, key, request
from support.pools import four, generate_all
from typing_extensions import override

from runner.engines import pool as pool_module
from runner.engines.base import (
    Completion,
    GenerationRequest,
    GenerationTiming,
    PromptTooLongError,
    RequestRefusedError,
)
from runner.engines.replica import ReplicaLostError, ReplicaStartError
from runner.engines.reports import ReplicaState, ReplicaStats
from runner.errors import UserError


@in_virtual_time
async def test_turns_that_come_together_are_spread_over_the_replicas() -> None:
    replicas = [FakeReplica("a"), FakeReplica("b")]
    async with FakePool(replicas) as pool:
        done = await generate_all(pool, *four())

    assert Counter(one.engine for one in done) == {"a": 2, "b": 2}
    assert [one.text for one in done] == ["p0/0", "p1/0", "p2/0", "p3/0"]


@in_virtual_time
async def test_no_replica_is_given_more_than_its_slots_and_who_waits_gets_the_next_free_one() -> None:
    replica = FakeReplica(slots=2)
    async with FakePool([replica]) as pool:
        done = await generate_all(pool, *four(), request("p4"))
        ended = anyio.current_time()

    assert (replica.most_running, ended) == (2, 3.0)
    assert [one.timing for one in done] == [GenerationTiming(queue_s=float(index // 2)) for index in range(5)]


@in_virtual_time
async def test_the_wait_in_the_pool_is_added_to_the_replica_s_own() -> None:
    async def answer(asked: GenerationRequest) -> Completion:
        await anyio.sleep(2)
        return Completion("x", 1, 1, "stop", "", timing=GenerationTiming(queue_s=0.5, prefill_s=0.25))

    async with FakePool([FakeReplica(slots=1, on_turn=answer)]) as pool:
        _, second = await generate_all(pool, request("p0"), request("p1"))

    assert second.timing == GenerationTiming(queue_s=2.5, prefill_s=0.25)


@in_virtual_time
async def test_of_waiting_turns_those_of_trajectories_that_have_come_least_far_are_first() -> None:
    replica = FakeReplica(slots=1)
    async with FakePool([replica]) as pool:
        await generate_all(
            pool, request("running"), request("far", 9), request("new", 0), request("middle", 4)
        )

    assert replica.asked == ["running", "new", "middle", "far"]


@in_virtual_time
async def test_with_a_prefix_cache_a_trajectory_goes_back_to_its_replica() -> None:
    replicas = [FakeReplica("a"), FakeReplica("b")]
    async with FakePool(replicas, prefix_caching=True) as pool:
        requests = [request(f"p{index}", prompt_tokens=9000) for index in range(4)]
        first = await generate_all(pool, *requests)
        again = [request(f"p{index}", 1, prompt_tokens=9100) for index in (3, 2, 1, 0)]
        second = await generate_all(pool, *again)

    assert [one.engine for one in second] == [one.engine for one in reversed(first)]


@in_virtual_time
async def test_an_ended_trajectory_is_forgotten_by_the_dispatcher() -> None:
    async with FakePool([FakeReplica()], prefix_caching=True) as pool:
        await pool.generate(request("p0", prompt_tokens=9000))
        pool.ended(key("p0"))

        assert [load.seen_tokens for load in pool.dispatcher._loads] == [{}]


@pytest.mark.parametrize("error", [PromptTooLongError("9 > 8"), RequestRefusedError("ValueError: no")])
def test_the_trajectory_s_own_errors_pass_through_and_do_not_count_against_the_replica(
    error: Exception,
) -> None:
    async def refuse(_: GenerationRequest) -> Completion:
        raise error

    @in_virtual_time
    async def scenario() -> None:
        replica = FakeReplica(slots=1, on_turn=refuse)
        async with FakePool([replica]) as pool:
            for _ in range(5):
                with pytest.raises(type(error)) as caught:
                    await pool.generate(request())
                assert caught.value is error
            snapshot = await pool.snapshot()

        assert (snapshot.replicas[0].state, snapshot.replicas[0].starts) == (ReplicaState.SERVING, 1)
        assert (snapshot.replicas[0].running, snapshot.queued) == (0, 0)

    scenario()


@in_virtual_time
async def test_replicas_start_side_by_side() -> None:
    async with FakePool([FakeReplica(start_s=7), FakeReplica(start_s=5)]):
        assert anyio.current_time() == 7.0


@pytest.mark.parametrize("error", [ReplicaStartError("no memory"), UserError("no checkpoint")])
def test_a_first_start_that_fails_is_raised_as_it_is_and_everything_is_closed(error: Exception) -> None:
    def fail(_: int) -> None:
        raise error

    @in_virtual_time
    async def scenario() -> None:
        replicas = [FakeReplica("a", start_s=1, on_start=fail), FakeReplica("b", start_s=60)]
        pool = FakePool(replicas)
        with pytest.raises(type(error)) as caught:
            async with pool:
                pytest.fail("it must not be entered")

        assert caught.value is error
        assert all(one.closed for one in replicas)
        assert pool.life == ["prepared", "released"]
        assert anyio.current_time() == 1.0

    scenario()


@in_virtual_time
async def test_leaving_closes_the_replicas_and_then_gives_back_what_they_needed() -> None:
    replicas = [FakeReplica("a"), FakeReplica("b")]
    async with FakePool(replicas) as pool:
        assert pool.life == ["prepared"]

    assert [len(one.closed_at) for one in replicas] == [1, 1]
    assert pool.life == ["prepared", "released"]


@in_virtual_time
async def test_an_error_of_the_body_comes_out_unwrapped_and_everything_is_closed() -> None:
    replica = FakeReplica()
    with pytest.raises(ZeroDivisionError):
        async with FakePool([replica]):
            raise ZeroDivisionError

    assert replica.closed


@in_virtual_time
async def test_a_cancelled_run_closes_its_replicas() -> None:
    replica = FakeReplica(turn_s=100)
    pool = FakePool([replica])
    with anyio.move_on_after(5) as scope:
        async with pool:
            await pool.generate(request())

    assert scope.cancelled_caught
    assert replica.closed
    assert pool.life == ["prepared", "released"]


@in_virtual_time
async def test_a_start_that_is_cancelled_closes_what_it_took() -> None:
    replica = FakeReplica(start_s=100)
    pool = FakePool([replica])
    with anyio.move_on_after(5) as scope:
        async with pool:
            pytest.fail("it must not be entered")

    assert scope.cancelled_caught
    assert replica.closed
    assert pool.life == ["prepared", "released"]


@in_virtual_time
async def test_a_replica_that_does_not_close_holds_the_end_up_for_a_bounded_time_only() -> None:
    class Stubborn(FakeReplica):
        @override
        async def close(self) -> None:
            await anyio.sleep_forever()

    async with FakePool([Stubborn()]):
        pass

    assert anyio.current_time() == pool_module.CLOSE_TIMEOUT_S


@in_virtual_time
async def test_a_snapshot_tells_how_each_replica_was_used() -> None:
    replica = FakeReplica("a", slots=2, turn_s=4)
    async with FakePool([replica]) as pool:
        await anyio.sleep(3)
        await generate_all(pool, *four()[:3])
        await anyio.sleep(5)
        snapshot = await pool.snapshot()

    (told,) = snapshot.replicas
    # Idle for 3 s, two turns for 4 s, one for 4 s, idle for 5 s.
    assert (told.serving_s, told.busy_s, told.batch_s) == (16.0, 8.0, 12.0)
    assert (told.turns, told.prompt_tokens, told.completion_tokens) == (3, 300, 30)
    assert (told.state, told.starts, told.running) == (ReplicaState.SERVING, 1, 0)


@in_virtual_time
async def test_a_snapshot_tells_what_runs_and_what_waits() -> None:
    replica = FakeReplica("a", slots=1, turn_s=4)
    async with FakePool([replica]) as pool, anyio.create_task_group() as tasks:
        for one in four():
            tasks.start_soon(pool.generate, one)
        await anyio.sleep(1)
        snapshot = await pool.snapshot()

    assert (snapshot.queued, snapshot.replicas[0].running) == (3, 1)
    assert snapshot.replicas[0].stats is not None
    assert snapshot.replicas[0].stats.running == 1


@in_virtual_time
async def test_a_replica_too_slow_to_tell_its_figures_is_told_of_without_them() -> None:
    class Silent(FakeReplica):
        @override
        async def stats(self) -> ReplicaStats:
            await anyio.sleep_forever()
            return ReplicaStats()

    async with FakePool([Silent("a"), FakeReplica("b")]) as pool:
        snapshot = await pool.snapshot()

        assert anyio.current_time() == pool_module.STATS_TIMEOUT_S
    assert [one.stats is None for one in snapshot.replicas] == [True, False]


@in_virtual_time
async def test_a_replica_found_dead_while_it_is_asked_for_its_figures_is_started_again() -> None:
    class Dying(FakeReplica):
        @override
        async def stats(self) -> ReplicaStats:
            raise ReplicaLostError("no answer")

    replica = Dying("a")
    async with FakePool([replica]) as pool:
        await pool.snapshot()
        await anyio.sleep(10)

    assert replica.started_at == [0.0, 1.0]
