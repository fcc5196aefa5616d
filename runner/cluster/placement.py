"""Which engine stands where in a cluster. Pure: from what nodes have to a berth for each engine.

A berth is one GPU, or for an engine without one a CPU, and what a placement group reserves. Engines that
share a GPU share a berth, so they are on one node and on one GPU of it; berths are spread over the nodes,
since what engines need of the rest of a machine (memory bandwidth, network, sandboxes) is then spread too.
What stands already is never moved: a moved engine loses its turns.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from runner.cluster.nodes import Node

_SLACK = 1e-9
"""Three thirds of a GPU are one GPU."""
_ID_CHARS = 6


@dataclass(frozen=True)
class Share:
    """What one engine takes: of a GPU a fraction, or a whole CPU where `gpu_fraction` is 0.

    `berths_a_node` bounds how many berths a node has, whatever it could hold.
    """

    gpu_fraction: float
    berths_a_node: int | None = None

    @property
    def of_gpu(self) -> bool:
        """Whether engines have GPUs."""
        return self.gpu_fraction > 0

    @property
    def engines_a_berth(self) -> int:
        """How many engines share a berth."""
        return int(1 / self.gpu_fraction + _SLACK) if self.of_gpu else 1

    def berths_of(self, resources: Mapping[str, float]) -> int:
        """Return how many berths such resources make."""
        berths = int(resources.get("GPU" if self.of_gpu else "CPU", 0.0) + _SLACK)
        return berths if self.berths_a_node is None else min(berths, self.berths_a_node)


@dataclass(frozen=True)
class Room:
    """How many berths of a node engines may take, those that they have already included."""

    node: str
    """Ray's id of the node."""
    berths: int


@dataclass(frozen=True, order=True)
class Berth:
    """A place for as many engines as share a GPU. `number` tells those of a node apart and is no GPU's."""

    node: str
    number: int


def place(
    engines: Iterable[str], rooms: Sequence[Room], share: Share, taken: Mapping[str, Berth] | None = None
) -> dict[str, Berth]:
    """Return a berth for each of `engines` that finds one, in their order; the rest have to wait.

    `taken` are the berths of engines that stand already. Berths that are open and not full are filled first;
    then the node with the fewest berths in use opens another, of several the one with the most left, of those
    the first by id.
    """
    plan = _Plan(rooms, share, (taken or {}).values())
    found: dict[str, Berth] = {}
    for name in engines:
        berth = plan.next()
        if berth is None:
            break
        found[name] = berth
        plan.count(berth)
    return found


class _Plan:
    """What is in use so far, kept up engine by engine: a cluster may hold thousands."""

    def __init__(self, rooms: Sequence[Room], share: Share, taken: Iterable[Berth]) -> None:
        self._rooms = rooms
        self._nodes = {one.node for one in rooms}
        self._each = share.engines_a_berth
        self._engines: Counter[Berth] = Counter()
        self._on_node: Counter[str] = Counter()
        self._numbers: dict[str, set[int]] = {}
        self._not_full: set[Berth] = set()
        for berth in taken:
            self.count(berth)

    def count(self, berth: Berth) -> None:
        self._engines[berth] += 1
        self._on_node[berth.node] += 1
        self._numbers.setdefault(berth.node, set()).add(berth.number)
        if self._engines[berth] < self._each and berth.node in self._nodes:
            self._not_full.add(berth)
        else:
            self._not_full.discard(berth)

    def next(self) -> Berth | None:
        if self._not_full:
            return min(self._not_full, key=lambda one: (self._on_node[one.node], one))
        free = [one for one in self._rooms if self._in_use(one.node) < one.berths]
        if not free:
            return None
        node = min(free, key=self._cost).node
        numbers = self._numbers.get(node, set())
        return Berth(node, next(one for one in range(len(numbers) + 1) if one not in numbers))

    def _in_use(self, node: str) -> int:
        return len(self._numbers.get(node, ()))

    def _cost(self, room: Room) -> tuple[int, int, str]:
        in_use = self._in_use(room.node)
        return in_use, in_use - room.berths, room.node


def capacity(rooms: Iterable[Room], share: Share) -> int:
    """Return how many engines the rooms hold."""
    return sum(one.berths for one in rooms) * share.engines_a_berth


def node_names(nodes: Iterable[Node]) -> dict[str, str]:
    """Return what people call each node, by Ray's id: its address, with the id's beginning where several
    nodes have one address."""
    listed = list(nodes)
    times = Counter(one.address for one in listed)
    return {
        one.id: one.address if times[one.address] == 1 else f"{one.address}#{one.id[:_ID_CHARS]}"
        for one in listed
    }
