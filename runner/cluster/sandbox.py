"""Sandboxes on the nodes of a cluster: the interface of any other, over one agent a node.

A workspace is opened on the node that has the most room for its size and stays there. A lost node takes its
workspaces with it: whoever uses them is told of a failure of ours, and begins again elsewhere. A node that
joins is used within seconds.
"""

from collections.abc import Callable
from types import TracebackType

import anyio
from anyio.abc import TaskGroup
from typing_extensions import Self, override

from runner.cluster.host import ClusterLostError, Host, join
from runner.cluster.nodes import Node, facts_here, live_nodes
from runner.engines.vllm.ray_runtime import ADDRESS_VARIABLE, RayRuntime
from runner.fingerprint import compare_sandboxes
from runner.groups import first_error_only
from sandbox import (
    ActionResult,
    Capacity,
    Sandbox,
    SandboxError,
    SandboxInfrastructureError,
    SandboxPrerequisiteError,
    Workspace,
)
from sandbox.frames import check_script

NODES_INTERVAL_S = 2.0
"""How soon a node that joined is used."""
HEAD_SILENCE_S = 30.0
"""A head that says nothing for this long is lost. Ray would end this process later, and not in order."""
REJOIN_PAUSE_S = 10.0
"""Before a node is asked again whose agent or broker failed."""
NO_NODE_TIMEOUT_S = 30.0
"""Before a workspace is given up that no node is there for: one may just be coming back."""
ROOM_TIMEOUT_S = 1800.0
"""For a workspace to end somewhere; a trajectory takes minutes, and whoever asks waits an hour at most."""
LEAVE_TIMEOUT_S = 210.0
LEAVE_LOST_CLUSTER_TIMEOUT_S = 10.0
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
        self.run_id = run_id
        self.capture_bytes = 0
        self._tell = tell
        self._runtime = runtime or RayRuntime()
        self._head_silence_s = head_silence_s
        self._hosts: dict[str, Host] = {}
        self._joining: set[str] = set()
        self._refused: set[str] = set()
        self._identity: dict[str, str] = {}
        self._used: set[str] = set()
        self._tasks: TaskGroup | None = None
        self._changed = anyio.Event()
        self._lost: ClusterLostError | None = None

    @override
    async def __aenter__(self) -> Self:
        await self._runtime.start()
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        try:
            await self._join_first()
            self._tasks.start_soon(self._watch)
        except BaseException as error:
            await self._leave(error)
            raise
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
        return {**self._identity, NODES_KEY: " ".join(sorted(self._used))}

    @override
    async def capacity(self) -> Capacity:
        """Return the sum over the nodes that are there now."""
        granted = [host.welcome for host in self.hosts]
        notes = tuple(note for one in granted for note in one.notes)
        return Capacity(
            sum(one.actions_at_once or 0 for one in granted), sum(host.slots for host in self.hosts), notes
        )

    @property
    def hosts(self) -> list[Host]:
        """The nodes that workspaces can be opened on, by address."""
        return sorted(self._hosts.values(), key=lambda one: (one.node.address, one.node.id))

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
            self._release(host)
            raise
        host.works()
        return _ClusterWorkspace(self, host, name)

    def closed(self, host: Host) -> None:
        """Take note that a workspace is gone. Called by the workspace, once."""
        self._release(host)

    # ── room ─────────────────────────────────────────────────────────────────────────────────────────────

    async def _room(self) -> Host:
        """Return a node with a place taken on it."""
        try:
            with anyio.fail_after(ROOM_TIMEOUT_S):
                while True:
                    self._check_cluster()
                    if not self._hosts:
                        await self._some_host()
                    host = least_loaded(self.hosts, anyio.current_time())
                    if host is not None:
                        host.open += 1
                        return host
                    with anyio.move_on_after(NODES_INTERVAL_S):  # one that rests is taken again then
                        await self._changed.wait()
        except TimeoutError as error:
            raise SandboxInfrastructureError(
                f"waiting for room for a workspace on any of {len(self._hosts)} nodes took more than"
                f" {ROOM_TIMEOUT_S:g} s"
            ) from error

    async def _some_host(self) -> None:
        with anyio.move_on_after(NO_NODE_TIMEOUT_S):
            while not self._hosts:
                self._check_cluster()
                await self._changed.wait()
        if not self._hosts:
            raise SandboxInfrastructureError(
                "no node of the cluster has a sandbox broker that serves this run",
                remedy="see `ray status` at the head, and the log of `recount node` on the nodes",
            )

    def _release(self, host: Host) -> None:
        host.open -= 1
        self._announce()

    def _announce(self) -> None:
        """Wake whoever waits for room, a node or the end."""
        self._changed.set()
        self._changed = anyio.Event()

    def _check_cluster(self) -> None:
        if self._lost is not None:
            raise ClusterLostError(self._lost.message, self._lost.remedy)

    # ── nodes that come and go ───────────────────────────────────────────────────────────────────────────

    async def _join_first(self) -> None:
        """Join all nodes that are there. One that is another than the others is an error before the run."""
        nodes = [one for one in await self._nodes() if one.has_broker]
        failures: list[SandboxError] = []

        async def one(node: Node) -> None:
            try:
                await self._join(node)
            except SandboxError as error:
                failures.append(error)

        with first_error_only():
            async with anyio.create_task_group() as tasks:
                for node in nodes:
                    tasks.start_soon(one, node)
        for failure in failures:
            if isinstance(failure, NodeDiffersError):
                raise failure
        if not self._hosts:
            raise SandboxPrerequisiteError(
                "no node of the cluster serves sandboxes" + "".join(f"\n  {one.message}" for one in failures),
                remedy="join one with a broker: docker compose up -d node; or recount broker, recount node",
            )
        for failure in failures:
            self._tell(f"{failure.message}; the run begins without it")

    async def _join(self, node: Node) -> None:
        """Make a node a host, unless it differs."""
        self._joining.add(node.id)
        try:
            host = await join(self._runtime, node, self.run_id)
            differences = self._differences(host)
            if differences:
                self._refused.add(node.id)
                with anyio.CancelScope(shield=True):
                    await host.leave()
                raise NodeDiffersError(
                    f"node {node.address} differs: " + "; ".join(differences),
                    remedy="install the same there, or stop its `recount node`",
                )
            if not self._identity:
                self._identity = dict(host.welcome.identity)
                self.capture_bytes = host.welcome.capture_bytes
            self._hosts[node.id] = host
            self._used.add(node.address)
            if self._tasks is not None:
                self._tasks.start_soon(self._watch_host, host)
            self._announce()
        finally:
            self._joining.discard(node.id)

    def _differences(self, host: Host) -> list[str]:
        """Say in what a node is not what the driver is, and the first node was."""
        here = facts_here(None)
        found = [f"{one} (at the run)" for one in host.welcome.facts.differences(here)]
        if self._identity:
            refused = compare_sandboxes(self._identity, host.welcome.identity).refused
            found += [f"{one.what}: there {one.now}, elsewhere {one.then}" for one in refused]
            if host.welcome.capture_bytes < self.capture_bytes:
                found.append(
                    f"it keeps {host.welcome.capture_bytes} bytes of an output's ends, not"
                    f" {self.capture_bytes}"
                )
        return found

    async def _watch(self) -> None:
        """Look at the list of nodes now and then; an answer is also the head's sign of life."""
        while True:
            await anyio.sleep(NODES_INTERVAL_S)
            try:
                nodes = await self._nodes()
            except ClusterLostError as error:
                self._lose_cluster(error)
                return
            alive = {one.id for one in nodes}
            for host in self.hosts:
                if host.node.id not in alive:
                    self._lose(host, SandboxInfrastructureError(f"node {host.node.address} is gone"))
            for node in nodes:
                known = node.id in self._hosts or node.id in self._joining or node.id in self._refused
                if node.has_broker and not known and self._tasks is not None:
                    self._joining.add(node.id)
                    self._tasks.start_soon(self._join_later, node)

    async def _nodes(self) -> tuple[Node, ...]:
        """Ask the head for the nodes; raise `ClusterLostError` where it says nothing in time."""
        try:
            with anyio.fail_after(self._head_silence_s):
                while True:
                    try:
                        return await self._runtime.call(live_nodes, self._runtime.ray)
                    except (self._runtime.ray.exceptions.RayError, OSError, RuntimeError):
                        await anyio.sleep(NODES_INTERVAL_S)
        except TimeoutError as error:
            raise ClusterLostError(
                f"the head of the Ray cluster said nothing for {self._head_silence_s:g} s",
                remedy=f"start it again ({ADDRESS_VARIABLE} names it), join the nodes, and go on with"
                " `recount eval --resume RUN`",
            ) from error

    async def _join_later(self, node: Node) -> None:
        """Join a node that came while the run goes on; what fails there is told, and tried again later."""
        try:
            await self._join(node)
        except NodeDiffersError as error:
            self._tell(f"{error.message}; it is not used ({error.remedy})")
        except SandboxError as error:
            self._tell(f"{error.message}; it is asked again")
            self._joining.add(node.id)
            try:
                await anyio.sleep(REJOIN_PAUSE_S)
            finally:
                self._joining.discard(node.id)
        else:
            self._tell(f"node {node.address} joined: {self._hosts[node.id].slots} workspaces")

    async def _watch_host(self, host: Host) -> None:
        self._lose(host, await host.wait_ended())

    def _lose(self, host: Host, error: SandboxError) -> None:
        if self._hosts.get(host.node.id) is not host:
            return
        del self._hosts[host.node.id]
        host.lose(error)
        self._announce()
        self._tell(f"{_with_address(error, host.node)}: {host.open} workspaces were open there")

    def _lose_cluster(self, error: ClusterLostError) -> None:
        self._lost = error
        for host in self.hosts:
            host.lose(error)
        self._announce()
        self._tell(f"{error.message}: the run ends, and can be gone on with")

    async def _leave(self, error: BaseException | None) -> None:
        tasks, self._tasks = self._tasks, None
        if tasks is None:
            return
        limit_s = LEAVE_TIMEOUT_S if self._lost is None else LEAVE_LOST_CLUSTER_TIMEOUT_S
        hosts, self._hosts = self.hosts, {}
        tasks.cancel_scope.cancel()
        try:
            with anyio.move_on_after(limit_s, shield=True):
                async with anyio.create_task_group() as leaving:
                    for host in hosts:
                        leaving.start_soon(host.leave)
        finally:
            with anyio.CancelScope(shield=True):
                await self._runtime.stop()
            # A task group wraps what its body raised; it has to see a cancellation only.
            seen = error if isinstance(error, anyio.get_cancelled_exc_class()) else None
            await tasks.__aexit__(type(seen) if seen else None, seen, seen.__traceback__ if seen else None)


class NodeDiffersError(SandboxPrerequisiteError):
    """A node on which a command could end otherwise than on the others."""


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
            return await self._host.run(self._name, check_script(script), timeout_s)
        except SandboxInfrastructureError:
            self._host.rest()
            raise

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
    return min((one for one in working if one.open < one.slots), key=lambda one: one.load, default=None)


def _with_address(error: SandboxError, node: Node) -> str:
    return error.message if node.address in error.message else f"node {node.address}: {error.message}"
