"""The HTTP server in front of the broker: uvicorn, with bounds on what a peer may keep waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp
from typing_extensions import override
from uvicorn.protocols.http.h11_impl import H11Protocol

# From the first byte of a request, or the connection, to the end of its headers.
HEAD_TIMEOUT_S = 10.0
MAX_HEAD_BYTES = 16 << 10
# Longer than a client keeps its idle connections, so that none is closed under a request.
KEEP_ALIVE_S = 300
# Leases, the only long answers, have ended by then.
GRACEFUL_STOP_S = 10


class _Protocol(H11Protocol):
    """Hangs up on a peer that does not finish what it began to ask: uvicorn itself would wait for ever."""

    _deadline: asyncio.TimerHandle | None = None

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn's
        super().connection_made(transport)
        self._deadline = self.loop.call_later(HEAD_TIMEOUT_S, self._hang_up)

    @override
    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:  # type: ignore[redundant-expr] # None at first
            self._cancel_deadline()
        elif self._deadline is None and not self.transport.is_closing():
            self._deadline = self.loop.call_later(HEAD_TIMEOUT_S, self._hang_up)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_deadline()
        super().connection_lost(exc)

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _hang_up(self) -> None:
        self._deadline = None
        self.transport.abort()


class Server(uvicorn.Server):
    """A server whose end is its owner's decision: signals are not its concern."""

    @override
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def http_server(app: ASGIApp) -> Server:
    """Return a server for `app`, to be given a listening socket."""
    return Server(
        uvicorn.Config(
            app,
            http=_Protocol,
            ws="none",
            loop="asyncio",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            timeout_graceful_shutdown=GRACEFUL_STOP_S,
            timeout_keep_alive=KEEP_ALIVE_S,
            h11_max_incomplete_event_size=MAX_HEAD_BYTES,
        )
    )
