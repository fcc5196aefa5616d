"""Sandboxes on the nodes of a cluster: the interface of any other, over one agent a node.

A workspace is opened on the node that has the most room for its size and stays there. A lost node takes its
workspaces with it: whoever uses them is told of a failure of ours, and begins again elsewhere. A node that
joins is used within seconds.
"""

from collections.abc import Callable
from dataclasses import replace
from types import TracebackType

import anyio
from anyio.abc import TaskGroup
from typing_extensions import Self, override

from runner.cluster.host import ClusterLostError, Host
from runner.cluster.members import Members
from runner.engines.vllm.ray_runtime import RayRuntime
from sandbox import ActionResult, Capacity, Sandbox, SandboxInfrastructureError, Workspace
from sandbox.frames import check_script

HEAD_SILENCE_S = 30.0
"""A head that says nothing for this long is lost. Ray would end this process later, and not in order."""
NO_NODE_TIMEOUT_S = 30.0
"""Before a workspace is given up that no node is there for: one may just be coming back."""
ROOM_TIMEOUT_S = 1800.0
"""For a workspace to end somewhere; a trajectory takes minutes, and whoever asks waits an hour at most."""
RESTING_INTERVAL_S = 2.0
"""How soon it is seen that a node has rested, while nothing else changes."""
NODES_KEY = "nodes"
"""In a sandbox's identity: where commands ran. It changes no result."""


class ClusterSandbox(Sandbox):
    """Workspaces on the nodes of the cluster that `RAY_ADDRESS` names. Enter and leave it in one task."""

    def __init__(
        self,
        run_id: str,
        *,
        tell: Callable[[str], None] = lambda _: None,
        runtime: RayRuntime | None = None,
        head_silence_s: float = HEAD_SILENCE_S,
    ) -> None:
        """`tell` is given what a person should know of nodes that come and go. Nothing is started."""
        self.capture_bytes = 0
        self._runtime = runtime or RayRuntime()
        self._members = Members(run_id, self._runtime, tell=tell, head_silence_s=head_silence_s)
        self._tasks: TaskGroup | None = None

    @override
    async def __aenter__(self) -> Self:
        await self._runtime.start()
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        try:
            await self._members.begin(self._tasks)
        except BaseException as error:
            await self._leave(error)
            raise
        self.capture_bytes = self._members.capture_bytes
        return self

    @override
    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Give every lease back; the brokers remove all that was opened."""
        await self._leave(exc)

    @override
    async def close(self) -> None:
        await self._leave(None)

    @override
    async def identity(self) -> dict[str, str]:
        """Return what commands run in, which is the same on all nodes, and the nodes that were used."""
        return {**self._members.identity, NODES_KEY: " ".join(sorted(self._members.used))}

    @override
    async def capacity(self) -> Capacity:
        """Return the sum over the nodes that are there now."""
        hosts = self._members.hosts
        return Capacity(
            sum(one.welcome.actions_at_once or 0 for one in hosts),
            sum(one.slots for one in hosts),
            tuple(note for one in hosts for note in one.welcome.notes),
        )

    @override
    async def open(self, workspace_id: str) -> Workspace:
        """Open a workspace on the least loaded node, waiting for room within bounds."""
        host = await self._room()
        name = host.new_name()
        try:
            await host.open_workspace(name, workspace_id)
        except BaseException as error:
            if isinstance(error, SandboxInfrastructureError):
                host.rest()
            self.closed(host)
            raise
        return _ClusterWorkspace(self, host, name)

    def closed(self, host: Host) -> None:
        """Give a workspace's place back. Called by the workspace, once."""
        host.open -= 1
        self._members.announce()

    async def _room(self) -> Host:
        """Return a node with a place taken on it."""
        try:
            with anyio.fail_after(ROOM_TIMEOUT_S):
                while True:
                    self._check_cluster()
                    if not self._members.hosts:
                        await self._some_host()
                    host = least_loaded(self._members.hosts, anyio.current_time())
                    if host is not None:
                        host.open += 1
                        return host
                    with anyio.move_on_after(RESTING_INTERVAL_S):
                        await self._members.changed.wait()
        except TimeoutError as error:
            raise SandboxInfrastructureError(
                f"waiting for room for a workspace on any of {len(self._members.hosts)} nodes took more than"
                f" {ROOM_TIMEOUT_S:g} s"
            ) from error

    async def _some_host(self) -> None:
        with anyio.move_on_after(NO_NODE_TIMEOUT_S):
            while not self._members.hosts:
                self._check_cluster()
                await self._members.changed.wait()
        if not self._members.hosts:
            raise SandboxInfrastructureError(
                "no node of the cluster has a sandbox broker that serves this run",
                remedy="see what `recount node` and `recount broker` say on the nodes",
            )

    def _check_cluster(self) -> None:
        lost = self._members.lost
        if lost is not None:
            raise ClusterLostError(lost.message, lost.remedy)

    async def _leave(self, error: BaseException | None) -> None:
        tasks, self._tasks = self._tasks, None
        if tasks is None:
            return
        tasks.cancel_scope.cancel()
        try:
            await self._members.leave()
        finally:
            with anyio.CancelScope(shield=True):
                await self._runtime.stop()
            # A task group wraps what its body raised; it has to see a cancellation only.
            seen = error if isinstance(error, anyio.get_cancelled_exc_class()) else None
            await tasks.__aexit__(type(seen) if seen else None, seen, seen.__traceback__ if seen else None)


class _ClusterWorkspace(Workspace):
    """A workspace on one node."""

    def __init__(self, sandbox: ClusterSandbox, host: Host, name: str) -> None:
        self._sandbox = sandbox
        self._host = host
        self._name = name
        self._is_closed = False

    @override
    async def run(self, script: str | bytes, timeout_s: float) -> ActionResult:
        try:
            result = await self._host.run(self._name, check_script(script), timeout_s)
        except SandboxInfrastructureError:
            self._host.rest()
            raise
        self._host.works()
        return replace(result, node=self._host.node.address)

    @override
    async def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        try:
            await self._host.close_workspace(self._name)
        finally:
            self._sandbox.closed(self._host)


def least_loaded(hosts: list[Host], now: float) -> Host | None:
    """Return the host with room that is least in use for its size, or None if all are full.

    One that just failed is passed over as long as another works, full or not: since its workspaces fail, it
    would always be the least loaded.
    """
    working = [one for one in hosts if one.resting_until <= now] or hosts
    return min((one for one in working if one.has_room), key=lambda one: one.load, default=None)
