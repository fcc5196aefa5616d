"""An engine on a node of a cluster: its settings are the node's, and it is lost with the node."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from test_vllm_replica import FACTS, GENERATED, REQUEST, FakeRay, FakeRuntime

from runner.cluster.nodes import Node
from runner.cluster.placement import Berth
from runner.engines.replica import ReplicaLostError, ReplicaStartError
from runner.engines.vllm.admission import Admitted
from runner.engines.vllm.berths import Held
from runner.engines.vllm.replica import ReplicaSettings, StartLocks, VllmReplica
from runner.engines.vllm.wire import Device, EngineConfig, Failure, FailureKind

pytestmark = pytest.mark.anyio


class PlacedRay(FakeRay):
    """A Ray that remembers where tasks are pinned, and answers for the node's log."""

    def __init__(self) -> None:
        super().__init__()
        self.pinned: list[Any] = []
        strategies = SimpleNamespace(
            PlacementGroupSchedulingStrategy=lambda group, placement_group_bundle_index: (
                group,
                placement_group_bundle_index,
            ),
            NodeAffinitySchedulingStrategy=lambda node, soft: (node, soft),
        )
        self.util = SimpleNamespace(scheduling_strategies=strategies)

    def remote(self, what: Any) -> SimpleNamespace:
        if isinstance(what, type):
            return super().remote(what)

        def options(**options: Any) -> SimpleNamespace:
            self.pinned.append(options["scheduling_strategy"])

            async def read(_: str) -> str:
                return "last words on the node"

            return SimpleNamespace(remote=read)

        return SimpleNamespace(options=options)


class PlacedRuntime(FakeRuntime):
    name = "recount-1-ab"
    own_node = "own"

    def __init__(self) -> None:
        super().__init__()
        self.ray = PlacedRay()


class FakeBerths:
    """Gives one berth after another."""

    def __init__(self, *nodes: str) -> None:
        self.held = [
            Held(
                Berth(name, 0),
                Admitted(
                    Node(name, name, is_head=False, resources={}, facts=None), f"addr-{name}", f"/m/{name}"
                ),
                f"group-{name}",
                cpu_threads=3,
            )
            for name in nodes
        ]
        self.back: list[str] = []

    def has(self, _: str) -> bool:
        return not self.held[0].gone

    async def find(self, _: str, __: Callable[[], None]) -> None:
        await anyio.lowlevel.checkpoint()
        while len(self.held) > 1 and self.held[0].gone:
            self.held.pop(0)

    async def hold(self, _: str) -> Held:
        return self.held[0]

    def give_back(self, engine: str) -> None:
        self.back.append(engine)


def placed(runtime: PlacedRuntime, berths: FakeBerths, tmp_path: Path) -> VllmReplica:
    config = EngineConfig(
        model="m",
        device=Device.CPU,
        dtype="float32",
        context_tokens=10,
        max_num_seqs=3,
        seed=0,
        log_path=str(tmp_path / "engine0.log"),
    )
    return VllmReplica(
        "engine0",
        config,
        ReplicaSettings(0.5, 5.0),
        runtime=runtime,  # type: ignore[arg-type]
        locks=StartLocks(),
        berths=berths,  # type: ignore[arg-type]
    )


async def test_its_settings_are_the_node_s_and_it_stands_in_its_group(tmp_path: Path) -> None:
    runtime, berths = PlacedRuntime(), FakeBerths("far", "own")
    one = placed(runtime, berths, tmp_path)

    await one.start()

    actor = runtime.ray.actors[0]
    assert (actor.options["scheduling_strategy"], actor.options["num_gpus"]) == (("group-far", 0), 0.5)
    assert (actor.config.model, actor.config.cpu_threads) == ("/m/far", 3)
    assert actor.config.log_path == "recount-engines/recount-1-ab/engine0.log"
    assert one.node == "addr-far"
    assert (await one.generate(REQUEST)).text == GENERATED.text


async def test_a_turn_ends_with_its_node_and_the_next_life_is_on_another(tmp_path: Path) -> None:
    runtime, berths = PlacedRuntime(), FakeBerths("far", "own")
    one = placed(runtime, berths, tmp_path)
    await one.start()
    runtime.ray.answers["generate"] = lambda _: anyio.sleep(60)
    runtime.ray.answers["wait_dead"] = lambda: anyio.sleep(60)
    lost: list[str] = []

    async def watch() -> None:
        lost.append(await one.wait_lost())

    async def work() -> None:
        with pytest.raises(ReplicaLostError, match="engine0: its node addr-far is gone"):
            await one.generate(REQUEST)

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch)
            tasks.start_soon(work)
            await anyio.sleep(0.05)
            berths.held[0].lose()
    assert lost == ["engine0: its node addr-far is gone"]
    assert not one.has_place

    runtime.ray.answers["generate"] = lambda _: GENERATED
    await one.wait_place(lambda: None)
    await one.start()

    assert runtime.ray.actors[0].killed
    assert (one.node, runtime.ray.actors[1].config.model) == ("addr-own", "/m/own")
    assert runtime.ray.actors[1].config.log_path == str(tmp_path / "engine0.log")
    assert (await one.generate(REQUEST)).text == GENERATED.text


async def test_a_failed_start_is_told_with_the_log_that_lies_on_the_node(tmp_path: Path) -> None:
    runtime = PlacedRuntime()
    runtime.ray.answers["start"] = lambda: Failure(FailureKind.ENGINE, "RuntimeError: see above")

    with pytest.raises(ReplicaStartError, match=r"(?s)engine0\.log on addr-far:\nlast words on the node"):
        await placed(runtime, FakeBerths("far"), tmp_path).start()
    assert set(runtime.ray.pinned) == {("far", False)}


async def test_a_closed_engine_gives_its_berth_back(tmp_path: Path) -> None:
    runtime, berths = PlacedRuntime(), FakeBerths("far")
    one = placed(runtime, berths, tmp_path)
    await one.start()
    assert one.facts == FACTS

    await one.close()

    assert berths.back == ["engine0"]
