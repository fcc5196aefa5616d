"""Waiting for room on a full disk: events are kept in memory, and no turn begins until they are written.

What runs when the disk fills goes on to its turn's end, whose events wait; then everything stands at the
gate. So what waits is bounded by what is in flight. The display is told of an event when it is written: what
is not in the journal did not happen.
"""

import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from types import TracebackType

import anyio
from typing_extensions import Self, override

from runner.errors import JournalWriteError
from runner.events import DiskWasFull, Event
from runner.groups import first_error_only
from runner.journal import JournalWriter, NoRoomError

MOST_KEPT = 50_000
"""Events in memory: three each of more trajectories than a run has in flight. More is a fault of ours."""


@dataclass(frozen=True)
class Patience:
    """How a run waits for room, in seconds."""

    retry_s: float = 3.0
    give_up_s: float = 1800.0
    """Half an hour: long enough for a person to see it, short of a night on a rented node."""
    tell: Callable[[str], None] | None = None
    """Is told when the disk is full and when it is not any more."""


class PatientJournal:
    """Writes events in order, now or when there is room; the gate is shut for as long as any wait."""

    def __init__(
        self,
        journal: JournalWriter,
        listener: Callable[[Event], object],
        *,
        patience: Patience | None = None,
        hurried: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`hurried` says that the run is being stopped: room is looked for once then, and not waited for."""
        self._journal = journal
        self._listener = listener
        self._patience = patience or Patience()
        self._tell = self._patience.tell or (lambda _: None)
        self._hurried = hurried
        self._clock = clock
        self._kept: deque[Event] = deque()
        self._full_since = 0.0
        self._full = anyio.Event()
        self._room = anyio.Event()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Self]:
        """Wait for room while the body runs, and at its end until everything is written.

        Raises `JournalWriteError` where there is none in time; what the journal holds by then is whole.
        """
        with first_error_only():
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._watch)
                yield self
                await self.room()
                tasks.cancel_scope.cancel()

    def emit(self, event: Event) -> None:
        """Write an event, or keep it where the disk is full. Raises `JournalWriteError` for other faults."""
        stamped = self._journal.stamp(event)
        if self._kept:
            self._keep(stamped)
            return
        try:
            self._journal.write(stamped)
        except NoRoomError as error:
            self._full_since = self._clock()
            self._room, full = anyio.Event(), self._full
            self._keep(stamped)
            full.set()
            self._tell(
                f"{error.message}: no turn begins until there is room;"
                f" looked for every {self._patience.retry_s:g} s, for {self._patience.give_up_s:g} s"
            )
        else:
            self._listener(stamped)

    async def room(self) -> None:
        """Return when no event waits to be written."""
        while self._kept:
            await self._room.wait()

    def gated(self, permit: AbstractAsyncContextManager[object]) -> AbstractAsyncContextManager[object]:
        """Return a permit that is given only while there is room."""
        return _Gated(self, permit)

    def _keep(self, stamped: Event) -> None:
        if len(self._kept) >= MOST_KEPT:
            raise JournalWriteError(
                f"{self._journal.path}: {len(self._kept)} events wait for room on the disk",
                remedy="make room, then go on with `recount eval --resume`",
            )
        self._kept.append(stamped)

    async def _watch(self) -> None:
        while True:
            await self._full.wait()
            await self._wait_for_room()
            self._full = anyio.Event()
            self._room.set()

    async def _wait_for_room(self) -> None:
        told = False
        while self._kept:
            await anyio.sleep(self._patience.retry_s)
            waited_s, kept = self._clock() - self._full_since, len(self._kept)
            try:
                self._write_kept()
                if not told:
                    told = True
                    self._tell(f"{self._journal.path}: room again after {waited_s:.0f} s, the run goes on")
                    self._keep(self._journal.stamp(DiskWasFull(waited_s=round(waited_s, 6), events=kept)))
                    self._write_kept()
            except NoRoomError as error:
                if self._hurried() or waited_s >= self._patience.give_up_s:
                    raise self._given_up(error, waited_s) from error

    def _write_kept(self) -> None:
        while self._kept:
            self._journal.write(self._kept[0])
            self._listener(self._kept.popleft())

    def _given_up(self, error: NoRoomError, waited_s: float) -> JournalWriteError:
        lost = len(self._kept)
        return JournalWriteError(
            f"{error.message}, for {waited_s:.0f} s: the newest {lost} events are lost,"
            " everything before them is kept",
            remedy=f"make room, then go on with `recount eval --resume {self._journal.path.parent}`",
        )


class _Gated(AbstractAsyncContextManager[object]):
    """A permit behind the gate. Entered by many at once, as the permit is."""

    def __init__(self, journal: PatientJournal, permit: AbstractAsyncContextManager[object]) -> None:
        self._journal = journal
        self._permit = permit

    @override
    async def __aenter__(self) -> object:
        await self._journal.room()
        return await self._permit.__aenter__()

    @override
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._permit.__aexit__(kind, error, trace)
