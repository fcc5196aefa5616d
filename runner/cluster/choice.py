"""Which sandbox a run has: the cluster's where the cluster has any, this machine's otherwise."""

import importlib.util
import os
from collections.abc import Callable
from types import TracebackType

import anyio
from typing_extensions import Self, override

from runner.cluster.nodes import live_nodes
from runner.cluster.sandbox import HEAD_SILENCE_S, ClusterSandbox
from runner.cluster.token import use_token
from runner.engines.vllm.ray_runtime import ADDRESS_VARIABLE, RayRuntime
from runner.errors import InfrastructureError, UserError
from sandbox import Capacity, Sandbox, SandboxPrerequisiteError, Workspace


def cluster_address() -> str | None:
    """Return the address of the cluster to use; `local` is Ray's own word for none."""
    address = os.environ.get(ADDRESS_VARIABLE)
    return None if address in {None, "", "local"} else address


def use_cluster(address: str | None) -> None:
    """Have this process use a cluster: what `--ray-address` does. The token that is here is sent to it."""
    if address:
        os.environ[ADDRESS_VARIABLE] = address
    if cluster_address() is not None:
        use_token()


def sandbox_of_run(local: Sandbox, run_id: str, tell: Callable[[str], None]) -> Sandbox:
    """Return the sandbox of a run, not entered. `local` is this machine's; `tell` hears of nodes.

    Raises `UserError` where a cluster is named that cannot be reached from this environment.
    """
    if cluster_address() is None:
        return local
    check_ray()
    return ClusterOrLocalSandbox(local, run_id, tell)


def check_ray() -> None:
    """Raise `UserError` where a cluster is named and Ray is not there to reach it."""
    if importlib.util.find_spec("ray") is None:
        raise UserError(
            f"{ADDRESS_VARIABLE}={cluster_address()} names a Ray cluster, and there is no Ray here",
            remedy=f"pip install '.[gpu]' where Recount's source is, or unset {ADDRESS_VARIABLE}",
        )


class ClusterOrLocalSandbox(Sandbox):
    """The cluster's sandboxes, or `local` where none of its nodes has any when the run begins."""

    def __init__(
        self, local: Sandbox, run_id: str, tell: Callable[[str], None], *, runtime: RayRuntime | None = None
    ) -> None:
        """Nothing is started."""
        self.capture_bytes = 0
        self._local = local
        self._run_id = run_id
        self._tell = tell
        self._runtime = runtime or RayRuntime()
        self._inner: Sandbox | None = None

    @override
    async def __aenter__(self) -> Self:
        inner = await self._choose()
        await inner.__aenter__()
        self._inner, self.capture_bytes = inner, inner.capture_bytes
        return self

    @override
    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._chosen().__aexit__(exc_type, exc, traceback)

    @override
    async def open(self, workspace_id: str) -> Workspace:
        return await self._chosen().open(workspace_id)

    @override
    async def close(self) -> None:
        await self._chosen().close()

    @override
    async def identity(self) -> dict[str, str]:
        return await self._chosen().identity()

    @override
    async def capacity(self) -> Capacity:
        return await self._chosen().capacity()

    def _chosen(self) -> Sandbox:
        if self._inner is None:
            raise SandboxPrerequisiteError("the sandbox is not started", remedy="use `async with`")
        return self._inner

    async def _choose(self) -> Sandbox:
        await self._runtime.start()
        try:
            with anyio.fail_after(HEAD_SILENCE_S):
                nodes = await self._runtime.call(live_nodes, self._runtime.ray)
        except BaseException as error:
            with anyio.CancelScope(shield=True):
                await self._runtime.stop()
            if isinstance(error, TimeoutError):
                raise InfrastructureError(
                    f"the head of the Ray cluster did not say its nodes within {HEAD_SILENCE_S:g} s"
                ) from error
            raise
        if any(node.has_broker for node in nodes):
            return ClusterSandbox(self._run_id, tell=self._tell, runtime=self._runtime)
        self._tell("no node of the cluster has a sandbox broker: commands run in this machine's sandboxes")
        await self._runtime.stop()
        return self._local
