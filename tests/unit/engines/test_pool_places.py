"""Replicas that have to wait for a node, and replicas that come in the middle of a run. In virtual time."""

from collections.abc import Callable

import anyio
import pytest
from support.fake_replica import FakePool, FakeReplica, in_virtual_time, request
from typing_extensions import override

from runner.engines.base import EngineUnavailableError
from runner.engines.pool import RestartPolicy
from runner.engines.replica import ReplicaStartError
from runner.engines.reports import ReplicaDown, ReplicaReport, ReplicaState, ReplicaUp


class Homeless(FakeReplica):
    """Has a place once it is told so; loses it when it dies with its node."""

    def __init__(self, name: str = "h", *, placed: bool = False, **options: float) -> None:
        super().__init__(name, **options)  # type: ignore[arg-type] # seconds, all of them
        self._placed = anyio.Event()
        if placed:
            self._placed.set()

    def give_place(self) -> None:
        self._placed.set()

    def lose_node(self) -> None:
        self._placed = anyio.Event()
        self.kill()

    @property
    @override
    def node(self) -> str | None:
        return "n1"

    @property
    @override
    def has_place(self) -> bool:
        return self._placed.is_set()

    @override
    async def wait_place(self, waits: Callable[[], None]) -> None:
        if not self._placed.is_set():
            waits()
        await self._placed.wait()


async def states(pool: FakePool) -> dict[str, ReplicaState]:
    return {one.name: one.state for one in (await pool.snapshot()).replicas}


@in_virtual_time
async def test_a_run_begins_with_those_that_have_a_place_and_the_others_come_later() -> None:
    waiting = Homeless(start_s=20)
    async with FakePool([FakeReplica("a"), waiting]) as pool:
        assert anyio.current_time() == 0
        assert await states(pool) == {"a": ReplicaState.SERVING, "h": ReplicaState.WAITING}

        await anyio.sleep(7200)
        waiting.give_place()
        await anyio.sleep(10)
        assert (await states(pool))["h"] is ReplicaState.STARTING
        await anyio.sleep(10)
        assert (await states(pool))["h"] is ReplicaState.SERVING


@in_virtual_time
async def test_waiting_for_a_node_counts_as_no_start_and_nobody_gives_it_up() -> None:
    one = Homeless(placed=True)
    reports: list[ReplicaReport] = []
    async with FakePool([one], policy=RestartPolicy(starts=1)) as pool:
        pool.report_to(reports.append)
        await pool.generate(request())
        one.lose_node()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(pool.generate, request("p1"))
            await anyio.sleep(3000)
            assert (await states(pool))["h"] is ReplicaState.WAITING
            one.give_place()
        assert one.asked == ["p0", "p1"]

    (down,) = [one for one in reports if isinstance(one, ReplicaDown)]
    assert not down.given_up
    assert [(one.starts, one.node) for one in reports if isinstance(one, ReplicaUp)] == [(1, "n1"), (2, "n1")]


@in_virtual_time
async def test_that_the_node_is_gone_may_be_found_out_only_when_a_place_is_looked_for() -> None:
    class Unsuspecting(Homeless):
        @property
        @override
        def has_place(self) -> bool:
            return True

    one = Unsuspecting(placed=True)
    async with FakePool([one]) as pool:
        one.lose_node()
        await anyio.sleep(100)
        assert await states(pool) == {"h": ReplicaState.WAITING}
        one.give_place()
        await anyio.sleep(100)
        assert await states(pool) == {"h": ReplicaState.SERVING}


@in_virtual_time
async def test_a_turn_does_not_wait_for_ever_for_a_node_that_never_comes() -> None:
    one = Homeless(placed=True)
    async with FakePool([one], policy=RestartPolicy(place_timeout_s=600)) as pool:
        one.lose_node()
        with pytest.raises(EngineUnavailableError, match=r"no engine had room within 600 s \(h waiting\)"):
            await pool.generate(request())


@in_virtual_time
async def test_a_replica_that_comes_in_the_middle_takes_turns_and_is_closed_with_the_others() -> None:
    first, later = FakeReplica("a", slots=1, turn_s=10), FakeReplica("b", slots=1, turn_s=10, start_s=5)
    async with FakePool([first]) as pool:
        async with anyio.create_task_group() as tasks:
            for index in range(4):
                tasks.start_soon(pool.generate, request(f"p{index}"))
            await anyio.sleep(1)
            pool.add(later)
        assert anyio.current_time() == 26.0  # a: 0 to 20; b: 6 to 26
        assert [len(one.asked) for one in (first, later)] == [2, 2]
    assert later.closed


@in_virtual_time
async def test_a_replica_that_comes_in_the_middle_and_does_not_start_ends_nothing() -> None:
    def fail(_: int) -> None:
        raise ReplicaStartError("no memory")

    broken = FakeReplica("b", on_start=fail)
    async with FakePool([FakeReplica("a")], policy=RestartPolicy(starts=3)) as pool:
        pool.add(broken)
        await anyio.sleep(100)
        assert (await pool.generate(request())).engine == "a"
        assert await states(pool) == {"a": ReplicaState.SERVING, "b": ReplicaState.GIVEN_UP}
    assert len(broken.started_at) == 3


@in_virtual_time
async def test_what_tends_the_pool_ends_it_when_it_fails() -> None:
    class Headless(FakePool):
        @override
        async def tend(self) -> None:
            await anyio.sleep(50)
            raise EngineUnavailableError("the head is gone")

    with pytest.raises(EngineUnavailableError, match="the head is gone"):
        async with Headless([FakeReplica("a")]):
            await anyio.sleep(1000)
    assert anyio.current_time() == 50.0
