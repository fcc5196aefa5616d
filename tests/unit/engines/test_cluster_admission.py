"""A node is asked by a process of its own, and admitted or refused in time, over a Ray that is a stand-in."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from runner.artifacts.progress import FileProgress, Phase, SilentListener
from runner.cluster.checkpoints import NodeCheckpoint, NodeProgress, Refused, WantedCheckpoint
from runner.cluster.nodes import Node
from runner.engines.vllm import admission as admission_module
from runner.engines.vllm.admission import Admission, Admitted, NodeReport
from runner.engines.vllm.gpu import Gpu
from runner.engines.vllm.versions import versions_here

pytestmark = pytest.mark.anyio

GIB = 1 << 30
NODE = Node("aaaa", "10.0.0.2", is_head=False, resources={"GPU": 2.0}, facts=None)
WANTED = WantedCheckpoint("/models/m", {"config.json": "0" * 64})
GPUS = tuple(Gpu("A100", 80 * GIB, (8, 0), index=index) for index in range(4))


class RayError(Exception):
    """As Ray's."""


class FakeRay:
    """Answers for the node's keeper; `answers` may be coroutines."""

    exceptions = SimpleNamespace(RayError=RayError)

    def __init__(self) -> None:
        self.answers: dict[str, Callable[..., Any]] = {
            "report": lambda: NodeReport(versions_here(), GPUS),
            "ready": lambda wanted: NodeCheckpoint(wanted.directory),
            "progress": lambda: NodeProgress(Phase.HASHING, 50, 100),
        }
        self.options: dict[str, Any] = {}
        self.killed = 0
        affinity = lambda node, soft: (node, soft)  # noqa: E731 - as Ray's class is called
        self.util = SimpleNamespace(
            scheduling_strategies=SimpleNamespace(NodeAffinitySchedulingStrategy=affinity)
        )

    def remote(self, _: type) -> SimpleNamespace:
        def options(**options: Any) -> SimpleNamespace:
            self.options = options
            return SimpleNamespace(remote=lambda: self)

        return SimpleNamespace(options=options)

    def __getattr__(self, name: str) -> SimpleNamespace:
        async def answer(*arguments: Any) -> Any:
            found = self.answers[name](*arguments)
            return await found if asyncio.iscoroutine(found) else found

        return SimpleNamespace(remote=answer)

    def kill(self, _: Any, *, no_restart: bool) -> None:
        self.killed += 1


class FakeRuntime:
    def __init__(self) -> None:
        self.ray = FakeRay()

    async def call(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        await anyio.lowlevel.checkpoint()
        return function(*arguments, **named)


class Shown(SilentListener):
    def __init__(self) -> None:
        self.names: list[str] = []

    def progress(self, progress: FileProgress) -> None:
        self.names.append(progress.name)


def admission(
    runtime: FakeRuntime, wanted: WantedCheckpoint | None = WANTED, listener: SilentListener | None = None
) -> Admission:
    return Admission(runtime, wanted, listener or SilentListener())  # type: ignore[arg-type]


@pytest.fixture
def runtime() -> FakeRuntime:
    return FakeRuntime()


async def test_a_node_like_the_driver_s_is_admitted_with_the_gpus_that_ray_has_of_it(
    runtime: FakeRuntime,
) -> None:
    answer = await admission(runtime).ask(NODE, "10.0.0.2")

    assert answer == Admitted(NODE, "10.0.0.2", "/models/m", GPUS[:2])
    assert (runtime.ray.options["scheduling_strategy"], runtime.ray.options["num_cpus"]) == (
        ("aaaa", False),
        0,
    )
    assert runtime.ray.killed == 1


async def test_other_versions_are_refused_before_a_byte_is_fetched(runtime: FakeRuntime) -> None:
    asked: list[object] = []
    runtime.ray.answers["report"] = lambda: NodeReport(versions_here() | {"Recount": "0.0.1"}, ())
    runtime.ray.answers["ready"] = asked.append

    answer = await admission(runtime).ask(NODE, "n")

    assert isinstance(answer, Refused)
    assert answer.reason.startswith("Recount 0.0.1, the driver's is ")
    assert (asked, runtime.ray.killed) == ([], 1)


async def test_the_checkpoint_s_refusal_is_the_node_s(runtime: FakeRuntime) -> None:
    runtime.ray.answers["ready"] = lambda _: Refused("another file")

    assert await admission(runtime).ask(NODE, "n") == Refused("another file")


async def test_a_node_without_recount_or_that_dies_is_refused_with_ray_s_cause(runtime: FakeRuntime) -> None:
    async def fail() -> None:
        raise RayError("Traceback\n  File x\nModuleNotFoundError: No module named 'runner'")

    runtime.ray.answers["report"] = fail

    assert await admission(runtime).ask(NODE, "n") == Refused(
        "it cannot answer: RayError: ModuleNotFoundError: No module named 'runner'"
    )


async def test_a_node_that_does_not_answer_is_refused_in_time(
    runtime: FakeRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission_module, "FACTS_TIMEOUT_S", 0.05)
    runtime.ray.answers["report"] = lambda: anyio.sleep(60)

    answer = await admission(runtime).ask(NODE, "n")

    assert isinstance(answer, Refused)
    assert "did not answer within" in answer.reason
    assert runtime.ray.killed == 1


async def test_progress_is_shown_and_a_checkpoint_that_comes_no_further_is_given_up(
    runtime: FakeRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission_module, "PROGRESS_POLL_S", 0.02)
    monkeypatch.setattr(admission_module, "STALL_TIMEOUT_S", 0.2)
    runtime.ray.answers["ready"] = lambda _: anyio.sleep(60)
    shown = Shown()

    with anyio.fail_after(5):
        answer = await admission(runtime, listener=shown).ask(NODE, "10.0.0.2")

    assert isinstance(answer, Refused)
    assert "came no further for" in answer.reason
    assert shown.names == ["checkpoint on nodes: 10.0.0.2 50 %"]


async def test_smaller_gpus_than_the_engines_were_fitted_to_are_refused(runtime: FakeRuntime) -> None:
    asks = admission(runtime)
    asks.least_gpu_bytes = 141 * GIB

    answer = await asks.ask(NODE, "n")

    assert isinstance(answer, Refused)
    assert "its GPUs of 80.0 GiB are smaller than those of 141.0 GiB" in answer.reason


async def test_engines_without_a_checkpoint_ask_for_versions_alone(runtime: FakeRuntime) -> None:
    assert await admission(runtime, None).ask(NODE, "n") == Admitted(NODE, "n", "", GPUS[:2])
