"""What the pool keeps of a replica and of a turn: state, what is in the batch, how it has been used."""

import heapq
import itertools
from dataclasses import dataclass, field

import anyio

from runner.engines.base import Completion, EngineUnavailableError
from runner.engines.dispatch import Turn
from runner.engines.replica import Replica
from runner.engines.reports import ReplicaSnapshot, ReplicaState, ReplicaStats


@dataclass(eq=False)
class Ticket:
    """A turn that waits for a place or has one. `gone`: nobody waits any more."""

    turn: Turn
    placed: anyio.Event = field(default_factory=anyio.Event)
    member: "Member | None" = None
    refused: EngineUnavailableError | None = None
    gone: bool = False
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)


class Use:
    """How much a replica has been used: integrals over time of its batch."""

    def __init__(self) -> None:
        """Begin at nothing."""
        self.turns = 0
        self.prompt_tokens = 0
        self.completion_tokens = 0
        self.serving_s = 0.0
        self.busy_s = 0.0
        self.batch_s = 0.0
        self._since: float | None = None
        self._running = 0

    def up(self) -> None:
        """It serves from now on."""
        self._since = anyio.current_time()

    def down(self) -> None:
        """It serves no more."""
        self.count(0)
        self._since = None

    def count(self, running: int) -> None:
        """From now on `running` turns are in the batch."""
        if self._since is not None:
            now = anyio.current_time()
            passed_s, self._since = now - self._since, now
            self.serving_s += passed_s
            self.busy_s += passed_s if self._running else 0.0
            self.batch_s += passed_s * self._running
        self._running = running

    def done(self, completion: Completion) -> None:
        """Count a turn."""
        self.turns += 1
        self.prompt_tokens += completion.prompt_tokens
        self.completion_tokens += completion.completion_tokens


class Member:
    """One replica and what the pool knows of it."""

    def __init__(self, index: int, replica: Replica) -> None:
        """`index` is the replica's place in pool and dispatcher."""
        self.index = index
        self.replica = replica
        self.state = ReplicaState.STARTING
        self.tickets: set[Ticket] = set()
        self.use = Use()
        self.starts = 0
        self.fruitless_starts = 0
        self.lost = anyio.Event()
        self.revived = anyio.Event()
        self.cause = ""

    def report_lost(self, cause: str, *, of_start: int) -> bool:
        """Take note that it is gone, whoever found out; return whether that is news.

        `of_start` is `starts` as it was when the finder began: what a turn of an earlier life learns late
        says nothing of this one.
        """
        if self.state is not ReplicaState.SERVING or of_start != self.starts or self.lost.is_set():
            return False
        self.cause = cause
        self.lost.set()
        return True

    def snapshot(self, stats: ReplicaStats | None) -> ReplicaSnapshot:
        """Tell how it has been used; `stats` is what it told of itself."""
        use = self.use
        use.count(len(self.tickets))
        return ReplicaSnapshot(
            name=self.replica.name,
            state=self.state,
            running=len(self.tickets),
            turns=use.turns,
            prompt_tokens=use.prompt_tokens,
            completion_tokens=use.completion_tokens,
            serving_s=use.serving_s,
            busy_s=use.busy_s,
            batch_s=use.batch_s,
            starts=self.starts,
            stats=stats,
            node=self.replica.node,
        )


class WaitingTurns:
    """Turns without a place. First come those of trajectories that have come least far, which may be last."""

    def __init__(self) -> None:
        """Begin empty."""
        self._heap: list[tuple[int, int, Ticket]] = []
        self._count = itertools.count()

    def __len__(self) -> int:
        return sum(not ticket.gone for _, _, ticket in self._heap)

    def add(self, ticket: Ticket) -> None:
        """Put a turn behind those that are as far."""
        heapq.heappush(self._heap, (ticket.turn.number, next(self._count), ticket))

    def first(self) -> Ticket | None:
        """Return the next one without taking it; None if nobody waits."""
        while self._heap and self._heap[0][2].gone:
            heapq.heappop(self._heap)
        return self._heap[0][2] if self._heap else None

    def take(self) -> Ticket | None:
        """Take the next one out."""
        return None if self.first() is None else heapq.heappop(self._heap)[2]
