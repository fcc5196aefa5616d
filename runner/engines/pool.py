"""Several replicas of a checkpoint as one engine: queue, placement, and life after a loss.

A turn waits here until some replica has room, goes where it costs least (`dispatch.py`), and, if that
replica is lost, waits again: the conversation is in our hands, so nothing but the turn is lost. A lost
replica is started again with growing pauses. Only when none is left, or when one turn has seen several
replicas die, does the failure leave this file.
"""

from abc import abstractmethod
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from types import TracebackType

import anyio
from anyio.abc import TaskGroup, TaskStatus
from typing_extensions import Self, override

from runner.engines.base import (
    Completion,
    Engine,
    EngineUnavailableError,
    GenerationRequest,
    GenerationTiming,
    TrajectoryKey,
)
from runner.engines.dispatch import Dispatcher, Turn
from runner.engines.membership import Member, Ticket, WaitingTurns
from runner.engines.replica import Replica, ReplicaLostError
from runner.engines.reports import (
    PoolSnapshot,
    ReplicaDown,
    ReplicaReport,
    ReplicaState,
    ReplicaStats,
    ReplicaUp,
)
from runner.errors import UserError
from runner.groups import first_error_only

CLOSE_TIMEOUT_S = 8.0
"""All replicas together; below the ten seconds within which Ctrl-C ends a run."""

STATS_TIMEOUT_S = 5.0
_MOST_NAMED = 16
"""Replicas that a message names one by one; a cluster may have thousands."""


@dataclass(frozen=True)
class RestartPolicy:
    """How often a replica is started again, and when a turn is given up.

    `starts` bounds starts in a row without one turn done in between. `losses_a_turn` bounds how many replicas
    one turn may see die under it, since it may be what kills them. Times in seconds.
    """

    starts: int = 5
    wait_s: float = 1.0
    wait_cap_s: float = 60.0
    losses_a_turn: int = 3
    generation_timeout_s: float = 1800.0
    place_timeout_s: float = 3600.0
    """For a turn that no replica has room for: that long all of them were lost, or hang."""


class EnginePool(Engine):
    """An engine made of replicas. Subclasses say how a prompt is rendered and what the engine is."""

    def __init__(
        self,
        replicas: Sequence[Replica],
        *,
        dispatcher: Dispatcher,
        policy: RestartPolicy | None = None,
    ) -> None:
        """`dispatcher` knows the replicas by their place in `replicas`, and their slots."""
        self._policy = policy or RestartPolicy()
        self._members = [Member(index, replica) for index, replica in enumerate(replicas)]
        self._dispatcher = dispatcher
        self._queue = WaitingTurns()
        self._reports: list[ReplicaReport] = []
        self._listeners: list[Callable[[ReplicaReport], None]] = []
        self._stack = AsyncExitStack()
        self._keepers: TaskGroup | None = None

    # ── life ─────────────────────────────────────────────────────────────────────────────────────────────

    @abstractmethod
    async def prepare(self) -> None:
        """Make ready what the replicas need before the first of them starts."""

    @abstractmethod
    async def release(self) -> None:
        """Give back what `prepare` took; the replicas are closed by then. Bounded; may be called again."""

    @override
    async def __aenter__(self) -> Self:
        with first_error_only():
            async with AsyncExitStack() as stack:
                stack.push_async_callback(self._close_in_time)
                tasks = await stack.enter_async_context(anyio.create_task_group())
                stack.callback(tasks.cancel_scope.cancel)
                await self.prepare()
                tasks.start_soon(self.tend)
                async with anyio.create_task_group() as starts:
                    for member in self._members:
                        starts.start_soon(tasks.start, self._keep_serving, member)
                self._keepers = tasks
                self._stack = stack.pop_all()
        return self

    async def tend(self) -> None:
        """Look after what the replicas stand on, from `prepare` to the pool's end, which cancels it.

        What it raises ends the pool.
        """

    def add(self, replica: Replica) -> None:
        """Take in one replica more: in `prepare` as one of the first, later to be started beside the run."""
        member = Member(len(self._members), replica)
        self._members.append(member)
        self._dispatcher.add(replica.slots)
        if self._keepers is not None:
            self._keepers.start_soon(self._keep_serving, member)

    @override
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # The body's error is not shown to the task group, which would wrap it.
        with first_error_only():
            await self._stack.aclose()

    async def _close_in_time(self) -> None:
        # Shielded: what was taken is given back also by a run that is stopped.
        with anyio.move_on_after(CLOSE_TIMEOUT_S, shield=True):
            await self.close()

    @override
    async def start(self) -> None:
        """Nothing: entering is what starts a pool, since its replicas are watched from then on."""

    @override
    async def close(self) -> None:
        async with anyio.create_task_group() as tasks:
            for member in self._members:
                tasks.start_soon(member.replica.close)
        await self.release()

    async def _keep_serving(
        self, member: Member, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        """Start a replica, and again after every loss.

        The first start has to succeed where the pool's own waits for it. Nobody waits for a replica that has
        to wait itself, or that came later: it may fail as after a loss.
        """
        if member.replica.has_place and self._keepers is None:
            await self._start(member)
            task_status.started()
            cause = await self._wait_lost(member)
        else:
            task_status.started()
            cause = await self._live(member)
        while True:
            if self._went_down(member, cause):
                member.revived = anyio.Event()
                await member.replica.close()
                await member.revived.wait()
            else:
                await anyio.sleep(self._pause_s(member.fruitless_starts))
            cause = await self._live(member)

    async def _live(self, member: Member) -> str:
        """Start a replica and return why it is gone again, or did not come up."""
        try:
            await self._start(member)
        except (EngineUnavailableError, UserError) as error:
            return str(error)
        return await self._wait_lost(member)

    @override
    def revive(self) -> None:
        """Start those that were given up once more; a turn that comes meanwhile waits for how that ends."""
        for member in self._members:
            if member.state is ReplicaState.GIVEN_UP:
                member.state = ReplicaState.STARTING
                member.revived.set()

    async def _start(self, member: Member) -> None:
        def waits() -> None:
            member.state = ReplicaState.WAITING

        await member.replica.wait_place(waits)
        member.state = ReplicaState.STARTING
        member.starts += 1
        member.fruitless_starts += 1
        began = anyio.current_time()
        await member.replica.start()
        member.lost = anyio.Event()
        member.state = ReplicaState.SERVING
        member.use.up()
        self._dispatcher.open(member.index)
        took_s = anyio.current_time() - began
        self._report(ReplicaUp(member.replica.name, took_s, member.starts, member.replica.node))
        self._place_waiting()

    async def _wait_lost(self, member: Member) -> str:
        """Return why, as soon as the replica's own watch or a turn finds it gone."""

        async def watch() -> None:
            self._found_lost(member, await member.replica.wait_lost(), member.starts)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch)
            await member.lost.wait()
            tasks.cancel_scope.cancel()
        return member.cause

    def _found_lost(self, member: Member, cause: str, of_start: int) -> None:
        """Wake who keeps it serving; until that has come about no turn may be placed in it."""
        if member.report_lost(cause, of_start=of_start):
            self._dispatcher.shut(member.index)

    def _went_down(self, member: Member, cause: str) -> bool:
        """Take note of a loss, let its turns wait for another place; return whether it is given up."""
        given_up = member.fruitless_starts >= self._policy.starts
        member.cause = cause
        member.state = ReplicaState.GIVEN_UP if given_up else ReplicaState.LOST
        self._dispatcher.shut(member.index)
        requeued = len(member.tickets)
        for ticket in tuple(member.tickets):
            ticket.scope.cancel()
        member.use.down()
        self._report(ReplicaDown(member.replica.name, cause, requeued, given_up))
        self._place_waiting()
        return given_up

    def _pause_s(self, fruitless_starts: int) -> float:
        if fruitless_starts == 0:
            return 0.0  # it did some work, and so may the next
        return min(self._policy.wait_cap_s, self._policy.wait_s * 2.0 ** (fruitless_starts - 1))

    # ── turns ────────────────────────────────────────────────────────────────────────────────────────────

    @override
    async def generate(self, request: GenerationRequest) -> Completion:
        turn = Turn(request.key, request.turn, request.prompt.tokens or 0)
        queued = anyio.current_time()
        losses = 0
        while True:
            ticket = Ticket(turn)
            try:
                async with self._place(ticket) as member:
                    queue_s = anyio.current_time() - queued
                    return _timed(await self._generate_in(member, ticket, request), queue_s)
            except ReplicaLostError as error:
                losses += 1
                if losses >= self._policy.losses_a_turn:
                    raise EngineUnavailableError(
                        f"{losses} engines in a row were lost while they worked on this turn"
                    ) from error

    async def _generate_in(self, member: Member, ticket: Ticket, request: GenerationRequest) -> Completion:
        """Generate in one replica; whatever shows that it is lost is a `ReplicaLostError`."""
        timeout_s = self._policy.generation_timeout_s
        start = member.starts
        try:
            with ticket.scope, anyio.fail_after(timeout_s):
                completion = await member.replica.generate(request)
                member.use.done(completion)
                member.fruitless_starts = 0
                self._settle(ticket, completion.completion_tokens)
                return completion
        except TimeoutError as error:
            cause = f"{member.replica.name} did not end a turn within {timeout_s:g} s"
            self._found_lost(member, cause, start)
            raise ReplicaLostError(cause) from error
        except ReplicaLostError as error:
            self._found_lost(member, str(error), start)
            raise
        # The scope was cancelled: the pool knows already.
        raise ReplicaLostError(f"{member.replica.name} was lost: {member.cause}")

    @asynccontextmanager
    async def _place(self, ticket: Ticket) -> AsyncIterator[Member]:
        """Hold a place in a replica; given back whatever happens, and at once to the next that waits."""
        self._queue.add(ticket)
        self._place_waiting()
        try:
            await self._wait_placed(ticket)
            if ticket.member is None:
                raise ticket.refused or EngineUnavailableError("no engine is left")
            yield ticket.member
        finally:
            ticket.gone = True
            self._settle(ticket, None)

    async def _wait_placed(self, ticket: Ticket) -> None:
        limit_s = self._policy.place_timeout_s
        try:
            with anyio.fail_after(limit_s):
                await ticket.placed.wait()
        except TimeoutError as error:
            raise EngineUnavailableError(
                f"no engine had room within {limit_s:g} s ({self._states()})"
            ) from error

    def _states(self) -> str:
        """Tell how the replicas are, one by one where that is read."""
        if len(self._members) <= _MOST_NAMED:
            return ", ".join(f"{one.replica.name} {one.state.value}" for one in self._members)
        counts = Counter(one.state.value for one in self._members)
        return ", ".join(f"{count} {state}" for state, count in counts.items())

    def _settle(self, ticket: Ticket, completion_tokens: int | None) -> None:
        member = ticket.member
        if member is None or ticket not in member.tickets:
            return
        member.tickets.remove(ticket)
        member.use.count(len(member.tickets))
        self._dispatcher.remove(ticket.turn, member.index, completion_tokens=completion_tokens)
        self._place_waiting()

    def _place_waiting(self) -> None:
        """Give places to turns that wait, as long as there are any of both."""
        while (ticket := self._queue.first()) is not None:
            if self._none_left:
                self._refuse(ticket)
            elif (index := self._dispatcher.choose(ticket.turn)) is not None:
                self._give(ticket, self._members[index])
            else:
                return
            self._queue.take()

    def _give(self, ticket: Ticket, member: Member) -> None:
        ticket.member = member
        member.tickets.add(ticket)
        member.use.count(len(member.tickets))
        self._dispatcher.place(ticket.turn, member.index)
        ticket.placed.set()

    def _refuse(self, ticket: Ticket) -> None:
        told = [f"{one.replica.name}: {one.cause}" for one in self._members[:_MOST_NAMED]]
        more = len(self._members) - len(told)
        causes = "; ".join([*told, *([f"and {more} more"] if more else [])])
        ticket.refused = EngineUnavailableError(f"no engine is left ({causes})")
        ticket.placed.set()

    @property
    def _none_left(self) -> bool:
        return all(one.state is ReplicaState.GIVEN_UP for one in self._members)

    @override
    def ended(self, key: TrajectoryKey) -> None:
        self._dispatcher.forget(key)

    # ── what it tells ────────────────────────────────────────────────────────────────────────────────────

    @override
    def report_to(self, listener: Callable[[ReplicaReport], None]) -> None:
        for report in self._reports:
            listener(report)
        self._listeners.append(listener)

    def _report(self, report: ReplicaReport) -> None:
        self._reports.append(report)
        for listener in self._listeners:
            listener(report)

    @override
    async def snapshot(self) -> PoolSnapshot:
        stats: dict[int, ReplicaStats] = {}

        async def ask(member: Member) -> None:
            start = member.starts
            # A replica that is lost or slow just now is told of by its state; its figures are missing.
            with anyio.move_on_after(STATS_TIMEOUT_S):
                try:
                    stats[member.index] = await member.replica.stats()
                except ReplicaLostError as error:
                    self._found_lost(member, str(error), start)

        async with anyio.create_task_group() as tasks:
            for member in self._members:
                if member.state is ReplicaState.SERVING:
                    tasks.start_soon(ask, member)
        return PoolSnapshot(
            queued=len(self._queue),
            replicas=tuple(one.snapshot(stats.get(one.index)) for one in self._members),
        )


def _timed(completion: Completion, queue_s: float) -> Completion:
    """Add the time in the pool's own queue to what the engine told of its own."""
    timing = completion.timing or GenerationTiming()
    own_s = timing.queue_s or 0.0
    return replace(completion, timing=replace(timing, queue_s=queue_s + own_s))
