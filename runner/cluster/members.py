"""The nodes that serve a run, as they come and go: joined, compared, watched, and lost."""

from collections.abc import Callable

import anyio
from anyio.abc import TaskGroup

from runner.cluster.host import ClusterLostError, Host, join, kill
from runner.cluster.nodes import Node, facts_here, live_nodes
from runner.engines.vllm.ray_runtime import ADDRESS_VARIABLE, RayRuntime
from runner.fingerprint import compare_sandboxes
from runner.groups import first_error_only
from sandbox import SandboxError, SandboxInfrastructureError, SandboxPrerequisiteError

NODES_INTERVAL_S = 2.0
"""How soon a node that joined is used."""
REJOIN_PAUSE_S = 10.0
"""Before a node is asked again whose agent or broker failed."""
LEAVE_TIMEOUT_S = 210.0
LEAVE_LOST_CLUSTER_TIMEOUT_S = 10.0


class NodeDiffersError(SandboxPrerequisiteError):
    """A node on which a command could end otherwise than on the others."""


class Members:
    """Keeps a host for every node of the cluster that has a broker and is what the first one is."""

    def __init__(
        self,
        run_id: str,
        runtime: RayRuntime,
        *,
        tell: Callable[[str], None],
        head_silence_s: float,
    ) -> None:
        """`tell` is given what a person should know. Nothing is started."""
        self.identity: dict[str, str] = {}
        """What commands run in, by the node that answered first."""
        self.capture_bytes = 0
        self.used: set[str] = set()
        """Addresses of all nodes that were ever joined."""
        self.lost: ClusterLostError | None = None
        """Set once the head says nothing any more."""
        self.changed = anyio.Event()
        """Set, and another one in its place, whenever room, a node or the end may have come."""
        self._run_id = run_id
        self._runtime = runtime
        self._tell = tell
        self._head_silence_s = head_silence_s
        self._hosts: dict[str, Host] = {}
        self._joining: set[str] = set()
        self._refused: set[str] = set()
        self._tasks: TaskGroup | None = None

    @property
    def hosts(self) -> list[Host]:
        """The nodes that workspaces can be opened on, by address."""
        return sorted(self._hosts.values(), key=lambda one: (one.node.address, one.node.id))

    def announce(self) -> None:
        """Wake whoever waits for a change."""
        self.changed.set()
        self.changed = anyio.Event()

    async def begin(self, tasks: TaskGroup) -> None:
        """Join all nodes that are there, and watch from then on, in `tasks`.

        Raises `SandboxPrerequisiteError` where one is another than the others, or none serves.
        """
        self._tasks = tasks
        nodes = [one for one in await self._nodes() if one.has_broker]
        failures: list[SandboxError] = []

        async def one(node: Node) -> None:
            try:
                await self._join(node)
            except SandboxError as error:
                failures.append(error)

        with first_error_only():
            async with anyio.create_task_group() as joining:
                for node in nodes:
                    joining.start_soon(one, node)
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
        tasks.start_soon(self._watch)

    async def leave(self) -> None:
        """Give every lease back, within a bound. Whoever calls it has stopped the watching."""
        limit_s = LEAVE_TIMEOUT_S if self.lost is None else LEAVE_LOST_CLUSTER_TIMEOUT_S
        hosts, self._hosts = self.hosts, {}
        with anyio.move_on_after(limit_s, shield=True):
            async with anyio.create_task_group() as leaving:
                for host in hosts:
                    leaving.start_soon(host.leave)

    async def _join(self, node: Node) -> None:
        """Make a node a host, unless it differs."""
        self._joining.add(node.id)
        try:
            host = await join(self._runtime, node, self._run_id)
            differences = self._differences(host)
            if differences:
                self._refused.add(node.id)
                with anyio.CancelScope(shield=True):
                    await host.leave()
                raise NodeDiffersError(
                    f"node {node.address} differs: " + "; ".join(differences),
                    remedy="install the same there, or stop its `recount node`",
                )
            if not self.identity:
                self.identity = dict(host.welcome.identity)
                self.capture_bytes = host.welcome.capture_bytes
            self._hosts[node.id] = host
            self.used.add(node.address)
            if self._tasks is not None:
                self._tasks.start_soon(self._watch_host, host)
            self.announce()
        finally:
            self._joining.discard(node.id)

    def _differences(self, host: Host) -> list[str]:
        """Say in what a node is not what the driver is, and the first node was."""
        welcome = host.welcome
        found = [f"{one} (at the run)" for one in welcome.facts.differences(facts_here(None))]
        if self.identity:
            refused = compare_sandboxes(self.identity, welcome.identity).refused
            found += [f"{one.what}: there {one.now}, elsewhere {one.then}" for one in refused]
            if welcome.capture_bytes < self.capture_bytes:
                found.append(
                    f"it keeps {welcome.capture_bytes} bytes of an output's ends, not {self.capture_bytes}"
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
        self._lose(host, await host.wait_lost())
        # Whatever is left of it holds the lease that the next agent there needs.
        await kill(self._runtime, host.actor)

    def _lose(self, host: Host, error: SandboxError) -> None:
        if self._hosts.get(host.node.id) is not host:
            return
        del self._hosts[host.node.id]
        host.lose(error)
        self.announce()
        where = "" if host.node.address in error.message else f"node {host.node.address}: "
        self._tell(f"{where}{error.message}: {host.open} workspaces were open there")

    def _lose_cluster(self, error: ClusterLostError) -> None:
        self.lost = error
        for host in self.hosts:
            host.lose(error)
        self.announce()
        self._tell(f"{error.message}: the run ends, and can be gone on with")
