"""Engines that were given up are tried again while the run is paused; no turn waits for ever for a place."""

import anyio
import pytest
from support.fake_replica import FakePool, FakeReplica, in_virtual_time, request

from runner.engines.base import EngineUnavailableError
from runner.engines.pool import RestartPolicy
from runner.engines.replica import ReplicaStartError
from runner.engines.reports import ReplicaState


def fails_from_2_to(last: int) -> FakeReplica:
    def on_start(number: int) -> None:
        if 2 <= number <= last:
            raise ReplicaStartError(f"start {number} failed")

    return FakeReplica("a", slots=1, on_start=on_start, start_s=10)


@in_virtual_time
async def test_a_replica_that_was_given_up_serves_again_once_it_is_revived_and_comes_up() -> None:
    async with FakePool([fails_from_2_to(3)], policy=RestartPolicy(starts=3)) as pool:
        replica = pool._members[0].replica
        assert isinstance(replica, FakeReplica)
        replica.kill()
        await anyio.sleep(100)
        with pytest.raises(EngineUnavailableError, match="no engine is left"):
            await pool.generate(request())

        pool.revive()
        done = await pool.generate(request())  # waits for the start's end

        assert done.engine == "a"
        assert (await pool.snapshot()).replicas[0].state is ReplicaState.SERVING


@in_virtual_time
async def test_a_revival_that_fails_refuses_the_turns_that_waited_for_it_and_can_be_repeated() -> None:
    async with FakePool([fails_from_2_to(5)], policy=RestartPolicy(starts=3)) as pool:
        replica = pool._members[0].replica
        assert isinstance(replica, FakeReplica)
        replica.kill()
        await anyio.sleep(100)
        for start in (4, 5):
            pool.revive()
            with pytest.raises(EngineUnavailableError, match=f"start {start} failed"):
                await pool.generate(request())
        pool.revive()
        assert (await pool.generate(request())).engine == "a"


@in_virtual_time
async def test_reviving_what_serves_changes_nothing() -> None:
    replica = FakeReplica("a")
    async with FakePool([replica]) as pool:
        pool.revive()
        await anyio.sleep(10)
        await pool.generate(request())

    assert replica.started_at == [0.0]


@in_virtual_time
async def test_a_turn_without_a_place_gives_up_in_time_and_says_how_the_engines_are() -> None:
    hangs = FakeReplica("a", slots=1, turn_s=1e6)
    policy = RestartPolicy(place_timeout_s=60)
    async with FakePool([hangs], policy=policy) as pool, anyio.create_task_group() as tasks:
        tasks.start_soon(pool.generate, request("p0"))
        await anyio.sleep(1)
        with pytest.raises(EngineUnavailableError, match=r"no engine had room within 60 s \(a serving\)"):
            await pool.generate(request("p1"))
        assert (await pool.snapshot()).queued == 0
        tasks.cancel_scope.cancel()
