"""Nodes that come and go, and the placement groups that engines stand in, over a Ray that is a stand-in."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from support.fake_replica import in_virtual_time

from runner.cluster.checkpoints import Refused
from runner.cluster.nodes import Node
from runner.cluster.placement import Share
from runner.engines.base import EngineUnavailableError
from runner.engines.replica import ReplicaStartError
from runner.engines.vllm.admission import Admitted
from runner.engines.vllm.berths import HEAD_TIMEOUT_S, LOOK_INTERVAL_S, Berths
from runner.engines.vllm.groups import GROUP_TIMEOUT_S
from runner.groups import first_error_only


class FakeGroup:
    def __init__(self, bundles: list[dict[str, float]], **options: Any) -> None:
        self.bundles, self.options = bundles, options
        self.removed = False
        self.slow = False

    async def ready(self) -> None:
        await (anyio.sleep_forever() if self.slow else anyio.lowlevel.checkpoint())


class FakeCluster:
    """Ray, as far as berths ask it; `nodes` may be changed at any time."""

    class exceptions:  # noqa: N801 - as Ray has it
        class RayError(Exception):
            pass

    def __init__(self, **nodes: dict[str, float]) -> None:
        self.members = dict(nodes)
        self.free: dict[str, dict[str, float]] | None = None
        self.groups: list[FakeGroup] = []
        self.slow_groups = False
        self.silent = False
        self._private = SimpleNamespace(state=SimpleNamespace(available_resources_per_node=self._free))
        self.util = SimpleNamespace(
            placement_group=self._group,
            remove_placement_group=lambda group: setattr(group, "removed", True),
        )

    def _free(self) -> dict[str, dict[str, float]]:
        return self.members if self.free is None else self.free

    def _group(self, bundles: list[dict[str, float]], **options: Any) -> FakeGroup:
        self.groups.append(FakeGroup(bundles, **options))
        self.groups[-1].slow = self.slow_groups
        return self.groups[-1]

    def nodes(self) -> list[dict[str, Any]]:
        if self.silent:
            raise ConnectionError("no answer")
        return [
            {
                "NodeID": name,
                "NodeManagerAddress": f"addr-{name}",
                "Alive": True,
                "Resources": resources,
                "Labels": {},
            }
            for name, resources in self.members.items()
        ]

    @property
    def standing(self) -> list[str]:
        """The nodes of the groups that are not removed."""
        left = [one for one in self.groups if not one.removed]
        return sorted(one.options["bundle_label_selector"][0]["ray.io/node-id"] for one in left)


class FakeRuntime:
    def __init__(self, ray: FakeCluster) -> None:
        self.ray = ray

    async def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        await anyio.lowlevel.checkpoint()
        return function(*arguments)


class FakeAdmission:
    """Admits a node after `takes_s`, or refuses it for the reason in `refuses`."""

    def __init__(self, *, takes_s: float = 0.0, **refuses: str) -> None:
        self.takes_s, self.refuses = takes_s, refuses
        self.asked: list[str] = []
        self.at_once = self.most_at_once = 0

    async def ask(self, node: Node, name: str) -> Admitted | Refused:
        self.asked.append(node.id)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await anyio.sleep(self.takes_s)
        self.at_once -= 1
        if node.id in self.refuses:
            return Refused(self.refuses[node.id])
        return Admitted(node, name, f"/models/{node.id}")


def berths_of(
    ray: FakeCluster, admission: FakeAdmission | None = None, *, fraction: float = 1.0
) -> tuple[Berths, list[str]]:
    told: list[str] = []
    berths = Berths(
        FakeRuntime(ray),  # type: ignore[arg-type]
        admission or FakeAdmission(),  # type: ignore[arg-type]
        Share(fraction),
        tell=told.append,
    )
    return berths, told


def gpus(count: float) -> dict[str, float]:
    return {"GPU": count, "CPU": 8.0}


@in_virtual_time
async def test_all_nodes_are_asked_at_once_and_a_refused_one_holds_no_engine_and_is_told_by_name() -> None:
    admission = FakeAdmission(takes_s=60, b="its checkpoint is another")
    berths, told = berths_of(FakeCluster(a=gpus(2), b=gpus(2), c={"CPU": 4.0}), admission)

    await berths.open()
    berths.place(["engine0", "engine1", "engine2"])

    assert (anyio.current_time(), admission.most_at_once, admission.asked) == (60.0, 2, ["a", "b"])
    assert [berths.has(f"engine{index}") for index in range(3)] == [True, True, False]
    assert told == ["node addr-b gets no engine: its checkpoint is another"]
    assert berths.refused == {"addr-b": "its checkpoint is another"}
    assert berths.nodes == {"addr-a": 2}


@in_virtual_time
async def test_engines_of_one_gpu_make_one_group_pinned_to_its_node() -> None:
    ray = FakeCluster(a=gpus(1), b=gpus(1))
    berths, _ = berths_of(ray, fraction=0.5)
    await berths.open()
    engines = [f"engine{index}" for index in range(4)]
    berths.place(engines)

    async with anyio.create_task_group() as tasks:
        for one in engines:
            tasks.start_soon(berths.hold, one)

    assert ray.standing == ["a", "b"]
    assert [one.bundles for one in ray.groups] == [[{"GPU": 1.0}]] * 2
    assert ray.groups[0].options["strategy"] == "STRICT_PACK"


@in_virtual_time
async def test_a_berth_s_group_is_removed_with_the_last_engine_in_it_and_all_at_the_end() -> None:
    ray = FakeCluster(a=gpus(1), b=gpus(1))
    berths, _ = berths_of(ray, fraction=0.5)
    await berths.open()
    engines = [f"engine{index}" for index in range(4)]
    berths.place(engines)
    for one in engines:
        await berths.hold(one)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(berths.follow, lambda: None)
        berths.give_back("engine0")
        await anyio.sleep(LOOK_INTERVAL_S + 1)
        assert ray.standing == ["a", "b"]
        berths.give_back("engine1")
        await anyio.sleep(LOOK_INTERVAL_S)
        assert ray.standing == ["b"]
        tasks.cancel_scope.cancel()
    await berths.close()

    assert ray.standing == []


@in_virtual_time
async def test_a_lost_node_takes_its_engines_with_it_and_they_wait_for_one_that_joins() -> None:
    ray = FakeCluster(a=gpus(1), b=gpus(1))
    berths, told = berths_of(ray)
    grown: list[float] = []
    await berths.open()
    berths.place(["engine0", "engine1"])
    held = {name: await berths.hold(name) for name in ("engine0", "engine1")}
    interrupted: list[bool] = []

    async def work() -> None:
        with held["engine1"].while_there() as scope:
            await anyio.sleep_forever()
        interrupted.append(scope.cancelled_caught)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(berths.follow, lambda: grown.append(anyio.current_time()))
        tasks.start_soon(work)
        await anyio.sleep(1)
        del ray.members["b"]
        await anyio.sleep(2 * LOOK_INTERVAL_S)
        assert (interrupted, held["engine1"].gone, held["engine0"].gone) == ([True], True, False)
        assert (berths.has("engine1"), ray.standing) == (False, ["a"])
        with pytest.raises(ReplicaStartError, match="its node is gone"):
            await berths.hold("engine1")

        joined_at = anyio.current_time() + 1000
        tasks.start_soon(join_after, 1000, ray)
        waited: list[float] = []
        await berths.find("engine1", lambda: waited.append(anyio.current_time()))
        assert waited == [joined_at - 1000]
        assert anyio.current_time() - joined_at <= LOOK_INTERVAL_S
        assert (await berths.hold("engine1")).node.directory == "/models/c"
        tasks.cancel_scope.cancel()

    assert told == ["node addr-b is gone"]
    assert len(grown) == 1


async def join_after(seconds: float, ray: FakeCluster) -> None:
    await anyio.sleep(seconds)
    ray.members["c"] = gpus(1)


@in_virtual_time
async def test_gpus_that_others_hold_are_left_to_them() -> None:
    ray = FakeCluster(a=gpus(4))
    ray.free = {"a": gpus(1)}
    berths, _ = berths_of(ray)
    await berths.open()
    berths.place(["engine0", "engine1"])

    assert (berths.has("engine0"), berths.has("engine1"), berths.capacity()) == (True, False, 1)


@in_virtual_time
async def test_a_place_that_the_cluster_does_not_reserve_is_told_in_time_and_its_group_removed() -> None:
    ray = FakeCluster(a=gpus(1))
    ray.slow_groups = True
    berths, _ = berths_of(ray)
    await berths.open()
    berths.place(["engine0"])

    with pytest.raises(ReplicaStartError, match="reserved no place on addr-a within"):
        await berths.hold("engine0")
    assert anyio.current_time() == GROUP_TIMEOUT_S
    await berths.close()
    assert ray.standing == []


@in_virtual_time
async def test_engines_without_a_gpu_share_their_node_s_cpus() -> None:
    ray = FakeCluster(a={"CPU": 8.0}, b={"CPU": 2.0})
    berths, _ = berths_of(ray, fraction=0.0)
    await berths.open()
    berths.place([f"engine{index}" for index in range(4)])

    held = [await berths.hold(f"engine{index}") for index in range(4)]

    assert sorted((one.node.node.id, one.cpu_threads) for one in held) == [
        ("a", 4),
        ("a", 4),
        ("b", 1),
        ("b", 1),
    ]
    assert [one.bundles for one in ray.groups] == [[{"CPU": 1.0}]] * 4


@in_virtual_time
async def test_a_head_that_stops_answering_ends_it_after_a_while_and_not_before() -> None:
    ray = FakeCluster(a=gpus(1))
    berths, _ = berths_of(ray)
    await berths.open()

    async def silent_for_a_moment() -> None:
        ray.silent = True
        await anyio.sleep(HEAD_TIMEOUT_S / 2)
        ray.silent = False
        await anyio.sleep(HEAD_TIMEOUT_S)
        ray.silent = True

    async def follow() -> None:
        with first_error_only():
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(silent_for_a_moment)
                await berths.follow(lambda: None)

    with pytest.raises(EngineUnavailableError, match=r"does not say which nodes it has: ConnectionError"):
        await follow()
    assert anyio.current_time() >= 2.5 * HEAD_TIMEOUT_S


@in_virtual_time
async def test_a_cluster_that_does_not_answer_at_the_beginning_is_told_at_once() -> None:
    ray = FakeCluster()
    ray.silent = True
    berths, _ = berths_of(ray)

    with pytest.raises(EngineUnavailableError, match="see whether its head node lives"):
        await berths.open()
