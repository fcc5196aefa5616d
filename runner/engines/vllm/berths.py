"""Where engines stand in a cluster: nodes that come and go, berths on them, and engines that wait for one.

A berth (`runner/cluster/placement.py`) is reserved by a placement group (`groups.py`) that is pinned to its
node. Which node may have berths is settled by `admission.py`, once a node.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import anyio

from runner.cluster.checkpoints import Refused
from runner.cluster.nodes import Node, live_nodes
from runner.cluster.placement import Berth, Room, Share, capacity, node_names, place
from runner.engines.base import EngineUnavailableError
from runner.engines.replica import ReplicaStartError
from runner.engines.vllm.admission import Admission, Admitted
from runner.engines.vllm.gpu import Gpu
from runner.engines.vllm.groups import Groups
from runner.engines.vllm.ray_runtime import RayRuntime
from runner.engines.vllm.wire import Foreign
from runner.groups import first_error_only

LOOK_INTERVAL_S = 5.0
"""How soon a node that joined is found; one that is lost is found by its engines, mostly sooner."""
LOOK_TIMEOUT_S = 20.0
FRESH_S = 1.0
"""All engines of a lost node look at once, and one look does for all."""
HEAD_TIMEOUT_S = 60.0
"""Without an answer from the cluster's head for so long the run ends, in order and to be resumed."""


@dataclass(eq=False)
class Held:
    """A berth that an engine holds, on a node that lives until `gone`."""

    berth: Berth
    node: Admitted
    group: Foreign
    cpu_threads: int
    gone: bool = False
    _scopes: set[anyio.CancelScope] = field(default_factory=set)

    @contextmanager
    def while_there(self) -> Iterator[anyio.CancelScope]:
        """Enter a scope that is cancelled when the node is lost: Ray may take half a minute to say so."""
        scope = anyio.CancelScope()
        if self.gone:
            scope.cancel()
        self._scopes.add(scope)
        try:
            with scope:
                yield scope
        finally:
            self._scopes.discard(scope)

    def lose(self) -> None:
        """The node is gone."""
        self.gone = True
        for scope in self._scopes:
            scope.cancel()


class Berths:
    """The nodes that engines may stand on, and which engine stands where."""

    def __init__(
        self, runtime: RayRuntime, admission: Admission, share: Share, *, tell: Callable[[str], None]
    ) -> None:
        """`tell` hears of nodes that are refused and lost, a line each. Nothing is asked yet."""
        self._runtime, self._admission, self._tell = runtime, admission, tell
        self.share = share
        """May be changed as long as nothing is placed."""
        self.refused: dict[str, str] = {}
        """Nodes that hold no engine, by name, and why."""
        self._admitted: dict[str, Admitted] = {}
        self._names: dict[str, str] = {}
        self._asked: set[str] = set()
        self._free: dict[str, dict[str, float]] = {}
        self._of_engine: dict[str, Berth] = {}
        self._waiting: dict[str, None] = {}
        self._groups = Groups(runtime)
        self._held: dict[str, Held] = {}
        self._changed = anyio.Event()
        self._looking = anyio.Lock()
        self._looked_at = float("-inf")
        self._nodes: Sequence[Node] = ()
        self._standing: Counter[Berth] = Counter()

    # ── nodes ────────────────────────────────────────────────────────────────────────────────────────────

    async def open(self) -> None:
        """Ask all nodes that are there; returns when each is admitted or refused."""
        with first_error_only():
            async with anyio.create_task_group() as tasks:
                await self._look()
                for node in self._new_nodes():
                    tasks.start_soon(self._ask, node)

    async def follow(self, grown: Callable[[], None]) -> None:
        """Keep up with the cluster until cancelled; `grown` is called when there is more room.

        Raises `EngineUnavailableError` where the head does not answer any more.
        """
        answered_at = anyio.current_time()

        async def ask(node: Node) -> None:
            await self._ask(node)
            grown()

        with first_error_only():
            async with anyio.create_task_group() as tasks:
                while True:
                    await anyio.sleep(LOOK_INTERVAL_S)
                    try:
                        await self._look()
                    except EngineUnavailableError:
                        if anyio.current_time() - answered_at > HEAD_TIMEOUT_S:
                            raise
                        continue
                    answered_at = anyio.current_time()
                    for node in self._new_nodes():
                        tasks.start_soon(ask, node)
                    await self._groups.sweep()

    async def _look(self, *, not_older_s: float = 0.0) -> None:
        """Take note of the nodes that there are; of those that are gone, with all that is behind it."""
        async with self._looking:  # who waits for a look has it done
            if anyio.current_time() - self._looked_at < not_older_s:
                return
            self._nodes = await self._ask_head()
            self._looked_at = anyio.current_time()
            self._names |= node_names(self._nodes)
            alive = {one.id for one in self._nodes}
            for node_id in [one for one in self._admitted if one not in alive]:
                self._lose(node_id)
            self._assign()

    def _new_nodes(self) -> list[Node]:
        """Return the nodes that nobody has asked yet, and take them for asked."""
        new = [
            one
            for one in self._nodes
            # Not by what is free: whoever holds it now may leave.
            if one.id not in self._asked and self.share.berths_of(one.resources) > 0
        ]
        self._asked |= {one.id for one in new}
        return new

    async def _ask_head(self) -> Sequence[Node]:
        def ask() -> tuple[Sequence[Node], dict[str, dict[str, float]]]:
            ray = self._runtime.ray
            return live_nodes(ray), free_resources(ray)

        try:
            with anyio.fail_after(LOOK_TIMEOUT_S):
                nodes, self._free = await self._runtime.call(ask)
        except Exception as error:
            # Ray says it with many classes, some of them Python's own.
            raise EngineUnavailableError(
                f"the Ray cluster does not say which nodes it has: {type(error).__name__}: {error}",
                remedy="see whether its head node lives, or unset RAY_ADDRESS",
            ) from error
        return nodes

    async def _ask(self, node: Node) -> None:
        name = self._names[node.id]
        answer = await self._admission.ask(node, name)
        if isinstance(answer, Refused):
            self.refused[name] = answer.reason
            self._tell(f"node {name} gets no engine: {answer.reason}")
            return
        self._admitted[node.id] = answer
        self._assign()

    def _lose(self, node_id: str) -> None:
        lost = self._admitted.pop(node_id)
        self._tell(f"node {lost.name} is gone")
        for held in self._held.values():
            if held.node is lost:
                held.lose()
        self._groups.lose(node_id)

    @property
    def nodes(self) -> dict[str, int]:
        """How many engines stand on each admitted node, by name."""
        counts = {one.name: 0 for one in self._admitted.values()}
        for berth in self._of_engine.values():
            if berth.node in self._admitted:
                counts[self._admitted[berth.node].name] += 1
        return counts

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """The GPUs of all admitted nodes, as far as they are told."""
        return tuple(gpu for one in self._admitted.values() for gpu in one.gpus)

    def capacity(self) -> int:
        """Return how many engines the admitted nodes hold."""
        return capacity(self._rooms(), self.share)

    def _rooms(self) -> list[Room]:
        """Return the berths of each node: ours, and what nobody holds. Others use the cluster too."""
        ours = self._groups.of_nodes()
        rooms = []
        for one in self._admitted.values():
            berths = self.share.berths_of(one.node.resources)
            free = self._free.get(one.node.id)
            if free is not None:
                berths = min(berths, ours[one.node.id] + self.share.berths_of(free))
            rooms.append(Room(one.node.id, berths))
        return rooms

    # ── engines ──────────────────────────────────────────────────────────────────────────────────────────

    def place(self, engines: Sequence[str]) -> None:
        """Give berths to as many of these engines as find one, before any of them starts."""
        found = place(engines, self._rooms(), self.share, self._of_engine)
        self._of_engine |= found
        self._standing.update(found.values())

    def has(self, engine: str) -> bool:
        """Say whether an engine has a berth on a node that lives."""
        berth = self._of_engine.get(engine)
        return berth is not None and berth.node in self._admitted

    async def find(self, engine: str, waits: Callable[[], None]) -> None:
        """Return once an engine has a berth; waits for a node as long as it takes, and says so first."""
        with suppress(EngineUnavailableError):
            # What is lost is to be known before what it held is believed.
            await self._look(not_older_s=FRESH_S)
        if self.has(engine):
            return
        self._drop(engine)
        self._waiting[engine] = None
        try:
            self._assign()
            if not self.has(engine):
                waits()
            while not self.has(engine):
                await self._changed.wait()
        finally:
            self._waiting.pop(engine, None)

    def _assign(self) -> None:
        """Give berths to those that wait, the longest first."""
        waiting = [one for one in self._waiting if not self.has(one)]
        if waiting:
            self.place(waiting)
        self._changed.set()
        self._changed = anyio.Event()

    async def hold(self, engine: str) -> Held:
        """Return an engine's berth, reserved in the cluster. Raises `ReplicaStartError`."""
        berth = self._of_engine.get(engine)
        node = None if berth is None else self._admitted.get(berth.node)
        if berth is None or node is None:
            raise ReplicaStartError(f"{engine} has no place: its node is gone")
        bundle = {"GPU": 1.0} if self.share.of_gpu else {"CPU": 1.0}
        group = await self._groups.hold(berth, bundle, node.name)
        held = Held(berth, node, group, self._threads(node))
        self._held[engine] = held
        if node.node.id not in self._admitted:
            held.lose()
        return held

    def _threads(self, node: Admitted) -> int:
        """Return how many CPUs of its node an engine without a GPU gets."""
        engines = sum(berth.node == node.node.id for berth in self._of_engine.values())
        return max(1, int(node.node.resources.get("CPU", 1.0)) // max(1, engines))

    def give_back(self, engine: str) -> None:
        """An engine is given up, or closed: others may stand there."""
        self._held.pop(engine, None)
        self._drop(engine)
        self._assign()

    def _drop(self, engine: str) -> None:
        berth = self._of_engine.pop(engine, None)
        if berth is None:
            return
        self._standing[berth] -= 1
        if self._standing[berth] == 0:
            del self._standing[berth]
            self._groups.drop(berth)

    async def close(self) -> None:
        """Give everything back; bounded."""
        self._of_engine.clear()
        self._standing.clear()
        await self._groups.close()


def free_resources(ray: Foreign) -> dict[str, dict[str, float]]:
    """Return what is free on each node by its id; empty where this Ray does not tell. Blocks."""
    ask: Any = getattr(ray._private.state, "available_resources_per_node", None)  # noqa: SLF001 - no other way
    return {} if ask is None else dict(ask())
