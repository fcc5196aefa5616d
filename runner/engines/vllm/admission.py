"""What a node has to show before it gets an engine: the driver's versions and the driver's checkpoint.

One small actor a node answers for it, takes no GPU, and is gone when the node is admitted or refused. All
nodes are asked at once, since a checkpoint is gigabytes to fetch or to hash.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import anyio

from runner.artifacts.progress import FetchListener, FileProgress
from runner.cluster.checkpoints import (
    NodeCheckpoint,
    NodeProgress,
    ProgressKeeper,
    Refused,
    WantedCheckpoint,
    ready_checkpoint,
)
from runner.cluster.nodes import Node
from runner.engines.vllm.fit import GIB
from runner.engines.vllm.gpu import VISIBLE_DEVICES, Gpu, visible_gpus
from runner.engines.vllm.ray_runtime import RayRuntime
from runner.engines.vllm.versions import version_differences, versions_here
from runner.engines.vllm.wire import Foreign
from runner.groups import first_error_only

FACTS_TIMEOUT_S = 120.0
"""For Ray to start a process there; one that is busy with other people's work takes its time."""
PROGRESS_POLL_S = 1.0
STALL_TIMEOUT_S = 900.0
"""Without a byte more of the checkpoint, or a word of it: fetching has shorter limits of its own."""
CHECK_CPUS = 0
_SHOWN_NODES = 3
_CAUSE_CHARS = 300


@dataclass(frozen=True)
class NodeReport:
    """What a node's own process tells of it."""

    versions: dict[str, str]
    gpus: tuple[Gpu, ...]


@dataclass(frozen=True)
class Admitted:
    """A node that may hold engines. `name` is what people call it, `directory` where its checkpoint lies."""

    node: Node
    name: str
    directory: str
    gpus: tuple[Gpu, ...] = ()


class NodeKeeper:
    """Answers for a node. Nothing here is called in the driver."""

    def __init__(self) -> None:
        """Nothing is looked at yet."""
        # Ray hides the GPUs from whoever asks for none; this only reads what they are.
        os.environ.pop(VISIBLE_DEVICES, None)
        self._progress = ProgressKeeper()

    async def report(self) -> NodeReport:
        """Tell versions and GPUs."""
        return NodeReport(versions_here(), visible_gpus())

    async def ready(self, wanted: WantedCheckpoint) -> NodeCheckpoint | Refused:
        """Make the checkpoint ready: found, fetched, hashed."""
        return await ready_checkpoint(wanted, self._progress)

    async def progress(self) -> NodeProgress:
        """Tell how far that is."""
        return self._progress.now()


class Admission:
    """Asks nodes, and shows how far they are."""

    def __init__(self, runtime: RayRuntime, wanted: WantedCheckpoint | None, listener: FetchListener) -> None:
        """Without `wanted` the engines need no checkpoint.

        `listener` is told of all nodes' progress together, with each node's share in the name.
        """
        self._runtime = runtime
        self._wanted = wanted
        self._listener = listener
        self._under_way: dict[str, NodeProgress] = {}
        self.least_gpu_bytes = 0
        """What engines were fitted to: a node that joins later with smaller GPUs cannot hold them."""

    async def ask(self, node: Node, name: str) -> Admitted | Refused:
        """Return what a node is admitted with, or why it is not. Bounded; raises for neither."""
        ray = self._runtime.ray
        try:
            async with self._keeper(node) as keeper:
                with anyio.fail_after(FACTS_TIMEOUT_S):
                    report: NodeReport = await keeper.report.remote()
                differences = version_differences(versions_here(), report.versions)
                if differences:
                    return Refused("; ".join(differences))
                gpus = report.gpus[: int(node.gpus)]
                smallest = min((one.memory_bytes for one in gpus), default=self.least_gpu_bytes)
                if smallest < self.least_gpu_bytes - GIB:
                    return Refused(
                        f"its GPUs of {smallest / GIB:.1f} GiB are smaller than those of"
                        f" {self.least_gpu_bytes / GIB:.1f} GiB that the engines were fitted to"
                    )
                if self._wanted is None:
                    return Admitted(node, name, "", gpus)
                found = await self._ready(keeper, self._wanted, name)
        except TimeoutError:
            return Refused(f"it did not answer within {FACTS_TIMEOUT_S:.0f} s")
        except ray.exceptions.RayError as error:
            return Refused(f"it cannot answer: {_cause_of(error)}")
        finally:
            self._under_way.pop(name, None)
        return found if isinstance(found, Refused) else Admitted(node, name, found.directory, gpus)

    @asynccontextmanager
    async def _keeper(self, node: Node) -> AsyncIterator[Foreign]:
        """Hold a keeper on a node; it is gone afterwards, with whatever it was fetching."""
        ray = self._runtime.ray

        def make() -> Foreign:
            options = pinned(ray, node.id)
            return ray.remote(NodeKeeper).options(num_cpus=CHECK_CPUS, max_restarts=0, **options).remote()

        keeper = await self._runtime.call(make)
        try:
            yield keeper
        finally:
            with anyio.move_on_after(1.0, shield=True), suppress(ray.exceptions.RayError):
                await self._runtime.call(ray.kill, keeper, no_restart=True)

    async def _ready(self, keeper: Foreign, wanted: WantedCheckpoint, name: str) -> NodeCheckpoint | Refused:
        found: NodeCheckpoint | Refused = Refused(
            f"its checkpoint came no further for {STALL_TIMEOUT_S:.0f} s"
        )
        with first_error_only():
            async with anyio.create_task_group() as tasks:

                async def wait() -> None:
                    nonlocal found
                    found = await keeper.ready.remote(wanted)
                    tasks.cancel_scope.cancel()

                tasks.start_soon(wait)
                await self._follow(keeper, name)
                tasks.cancel_scope.cancel()
        return found

    async def _follow(self, keeper: Foreign, name: str) -> None:
        """Show how far a node is; return where it does not get any further."""
        moved_at = anyio.current_time()
        while anyio.current_time() - moved_at < STALL_TIMEOUT_S:
            await anyio.sleep(PROGRESS_POLL_S)
            now = None
            with anyio.move_on_after(STALL_TIMEOUT_S):
                now = await keeper.progress.remote()
            if now is not None and now != self._under_way.get(name):
                moved_at = anyio.current_time()
                self._under_way[name] = now
                self._listener.progress(progress_of(self._under_way))


def progress_of(nodes: dict[str, NodeProgress]) -> FileProgress:
    """Return the progress of several nodes as of one file: `10.0.0.2 34 %, 10.0.0.3 12 % and 5 more`."""
    told = [
        f"{name} {100 * one.done_bytes // one.total_bytes} %"
        for name, one in sorted(nodes.items())
        if one.total_bytes
    ]
    shown = ", ".join(told[:_SHOWN_NODES])
    more = f" and {len(told) - _SHOWN_NODES} more" if len(told) > _SHOWN_NODES else ""
    newest = list(nodes.values())[-1]
    return FileProgress(
        name=f"checkpoint on nodes: {shown}{more}" if told else "checkpoint on nodes",
        phase=newest.phase,
        done_bytes=sum(one.done_bytes for one in nodes.values()),
        total_bytes=sum(one.total_bytes for one in nodes.values()) or None,
        bytes_per_s=None,
        left_s=None,
    )


def pinned(ray: Foreign, node_id: str) -> dict[str, Foreign]:
    """Return the options that keep a task or an actor on a node, and let it fail where that is gone."""
    affinity = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
    return {"scheduling_strategy": affinity(node_id, soft=False)}


def _cause_of(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # The last line of a remote traceback is the error itself.
    return f"{type(error).__name__}: {(lines or [''])[-1]}"[:_CAUSE_CHARS]
