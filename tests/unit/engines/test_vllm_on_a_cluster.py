"""How many engines a cluster gets: what the profile asks for, or what its GPUs hold, more when nodes join."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import anyio
import pytest

from runner.artifacts.progress import SilentListener
from runner.cluster.checkpoints import Refused, WantedCheckpoint
from runner.cluster.nodes import Node
from runner.engines.vllm import engine as engine_module
from runner.engines.vllm.admission import Admitted
from runner.engines.vllm.berths import Berths
from runner.engines.vllm.checkpoint import Checkpoint
from runner.engines.vllm.engine import VllmEngine
from runner.engines.vllm.gpu import Gpu
from runner.engines.vllm.settings import VllmSettings
from runner.engines.vllm.sizes import ModelSize
from runner.errors import UserError

pytestmark = pytest.mark.anyio

GIB = 1 << 30
A100 = Gpu("A100", 80 * GIB, (8, 0))
SIZE = ModelSize(weights_bytes=8 * GIB, kv_bytes_a_token=32 * 1024)
REPORT = VllmSettings(
    model="somebody/model",
    context_tokens=131_072,
    engines=8,
    gpu_fraction=0.5,
    gpu_memory_utilization=0.42,
)


class Notes(SilentListener):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def note(self, text: str) -> None:
        self.lines.append(text)


class FakeAdmission:
    refuses: ClassVar[dict[str, str]] = {}

    def __init__(self, *_: object) -> None:
        self.least_gpu_bytes = 0

    async def ask(self, node: Node, name: str) -> Admitted | Refused:
        if name in self.refuses:
            return Refused(self.refuses[name])
        return Admitted(node, name, "/m", (A100,) * int(node.gpus))


class FakeRuntime:
    """Answers what berths ask of Ray, and starts nothing."""

    def __init__(self, **gpus: int) -> None:
        self.gpus = gpus
        self.ray = self
        self.is_own = False
        self.own_node = "own"
        self.name = "run"

    async def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        await anyio.lowlevel.checkpoint()
        return function(*arguments)

    @property
    def _private(self) -> Any:
        class Nothing:
            state = object()

        return Nothing()

    def nodes(self) -> list[dict[str, Any]]:
        return [
            {
                "NodeID": name,
                "NodeManagerAddress": name,
                "Alive": True,
                "Resources": {"GPU": float(count), "CPU": 8.0},
            }
            for name, count in self.gpus.items()
        ]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeRuntime:
    async def described(*_: object, **__: object) -> WantedCheckpoint:
        return WantedCheckpoint("/m", {})

    runtime = FakeRuntime(a=4, b=4)
    monkeypatch.setitem(os.environ, "RAY_ADDRESS", "10.0.0.1:6379")
    monkeypatch.setattr(engine_module, "RayRuntime", lambda **_: runtime)
    monkeypatch.setattr(engine_module, "Admission", FakeAdmission)
    monkeypatch.setattr(engine_module, "describe_checkpoint", described)
    monkeypatch.setattr(engine_module, "measure", lambda *_, **__: SIZE)
    monkeypatch.setattr(FakeAdmission, "refuses", {})
    return runtime


async def spread(
    settings: VllmSettings = REPORT, *, fixed: frozenset[str] | None = None
) -> tuple[VllmEngine, list[str]]:
    notes = Notes()
    engine = VllmEngine(settings, fixed=fixed, checkpoint=Checkpoint(Path("/m"), None))
    engine.show_nodes_to(notes)
    await engine._spread(Path("/m"))
    return engine, notes.lines


def berths_of(engine: VllmEngine) -> Berths:
    assert engine._berths is not None
    return engine._berths


async def test_a_fitted_profile_has_as_many_engines_as_the_cluster_s_gpus_hold(cluster: FakeRuntime) -> None:
    engine, notes = await spread(fixed=frozenset())

    assert berths_of(engine).nodes == {"a": 8, "b": 8}
    assert engine.fit is not None
    assert engine.fit.engines == 16
    assert engine.identity()["engines"] == 16
    assert engine.identity()["nodes"] == {"engines": {"a": 8, "b": 8}, "refused": {}}
    assert notes == []


async def test_a_node_that_joins_gets_engines_and_smaller_gpus_are_for_the_admission_to_refuse(
    cluster: FakeRuntime,
) -> None:
    engine, _ = await spread(fixed=frozenset())
    berths = berths_of(engine)
    assert berths._admission.least_gpu_bytes == 80 * GIB

    cluster.gpus["c"] = 2
    async with anyio.create_task_group() as tasks:
        await berths._look()
        for node in berths._new_nodes():
            await berths._ask(node)
        engine._add_replicas(berths.capacity())
        tasks.cancel_scope.cancel()
    for one in engine._replicas[16:]:
        with anyio.fail_after(1):
            await one.wait_place(lambda: None)

    assert berths.nodes == {"a": 8, "b": 8, "c": 4}


async def test_engines_that_somebody_chose_stay_and_are_spread(cluster: FakeRuntime) -> None:
    engine, _ = await spread(
        VllmSettings(
            model="m", context_tokens=131_072, engines=4, gpu_fraction=0.5, gpu_memory_utilization=0.42
        ),
        fixed=frozenset({"engines"}),
    )

    assert berths_of(engine).nodes == {"a": 2, "b": 2}


async def test_more_engines_than_there_is_room_for_wait_and_that_is_told(cluster: FakeRuntime) -> None:
    cluster.gpus = {"a": 2, "b": 1}
    engine, notes = await spread()

    assert berths_of(engine).nodes == {"a": 4, "b": 2}
    assert [one.has_place for one in engine._replicas] == [True] * 6 + [False] * 2
    assert notes == [
        "6 of 8 engines have a place in the cluster; the others start when a node joins that has room"
    ]


async def test_a_cluster_without_a_node_for_engines_is_told_with_every_reason(
    cluster: FakeRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    why = {"a": "vLLM 0.19.0, the driver's is 0.19.1", "b": "its checkpoint is another"}
    monkeypatch.setattr(FakeAdmission, "refuses", why)

    with pytest.raises(
        UserError, match=r"(?s)a: vLLM 0\.19\.0, the driver's is 0\.19\.1\n  b: its checkpoint is another"
    ):
        await spread()


async def test_a_cluster_without_gpus_is_told_what_to_join(cluster: FakeRuntime) -> None:
    cluster.gpus = {"a": 0}

    with pytest.raises(UserError, match=r"has a free GPU.*\n.*ray status"):
        await spread()
