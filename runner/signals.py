"""Stopping a run by SIGINT, SIGTERM or SIGHUP: once in order, twice at once."""

import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

import anyio

from runner.errors import ExitCode
from runner.groups import first_error_only


def _watched() -> tuple[signal.Signals, ...]:
    """A hang-up that is ignored already stays so: that is what `nohup` is for."""
    stopping = (signal.SIGINT, signal.SIGTERM)
    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return stopping if ignored else (*stopping, signal.SIGHUP)


@dataclass
class Stop:
    """Which signal came, if one did, and what it cancels."""

    received: str = ""
    listener: Callable[[str], None] | None = None
    """Is told the first signal before anything is cancelled."""
    _scopes: list[anyio.CancelScope] = field(default_factory=list)

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Cancel what runs inside when a signal comes, or at once if one has; leave without error.

        Guards nest: a signal cancels the innermost alone, so that what is around it can end in order.
        """
        with anyio.CancelScope() as scope:
            self._scopes.append(scope)
            if self.received:
                scope.cancel()
            try:
                yield
            finally:
                self._scopes.remove(scope)

    def stop(self, name: str) -> None:
        """Note a signal and cancel what the innermost guard holds."""
        if self.listener is not None:
            self.listener(name)
        self.received = name
        if self._scopes:
            self._scopes[-1].cancel()


@asynccontextmanager
async def watch_signals() -> AsyncIterator[Stop]:
    """Watch for signals inside; they no longer kill the process, they stop what is guarded.

    A second signal ends the process where it stands. The sandbox's containers end with it, since each
    lives only as long as its client.
    """
    stop = Stop()
    with first_error_only():
        async with anyio.create_task_group() as tasks:
            with anyio.open_signal_receiver(*_watched()) as signals:

                async def watch() -> None:
                    async for received in signals:
                        if stop.received:
                            os._exit(ExitCode.INTERRUPTED)
                        stop.stop(signal.Signals(received).name)

                tasks.start_soon(watch)
                try:
                    yield stop
                finally:
                    tasks.cancel_scope.cancel()
