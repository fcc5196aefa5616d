"""HTTP requests over a Unix socket, as few steps as that takes.

An action through the broker costs two messages here and a few milliseconds there; a general HTTP client adds
as much again for every request that follows some seconds of silence, which is every action of a trajectory
(benchmarks/README.md). h11 speaks the protocol; this keeps connections and bounds.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import anyio
import h11
from anyio.abc import SocketStream

# Four captures of the largest size that a policy allows, in base64, and room.
MAX_REPLY_BYTES = 128 << 20
READ_BYTES = 64 << 10


class UnreachableError(Exception):
    """No connection: nothing was asked."""


class BrokenError(Exception):
    """The connection broke, or what came over it is no HTTP: what was asked may have been done."""


@dataclass(frozen=True)
class Reply:
    """Status and body of an answer."""

    status: int
    body: bytes


@dataclass
class _Connection:
    stream: SocketStream
    protocol: h11.Connection
    idle_since: float = 0.0


class UnixHttp:
    """Requests to the server on one socket; connections are kept and reused."""

    def __init__(self, path: Path, *, connect_timeout_s: float, keep_alive_s: float) -> None:
        """`keep_alive_s` must be less than the server's, so that it does not hang up under a request."""
        self._path = str(path)
        self._connect_timeout_s = connect_timeout_s
        self._keep_alive_s = keep_alive_s
        self._idle: list[_Connection] = []

    async def request(self, method: str, target: str, content: bytes, *, timeout_s: float) -> Reply:
        """Ask once and return the answer, whatever its status.

        Raises `UnreachableError` or `BrokenError`. Cancelling hangs up, which cancels the work at the server.
        """
        connection = await self._reused() or await self._connected()
        try:
            with anyio.fail_after(timeout_s):
                reply = await _exchange(connection, method, target, content)
        except (OSError, anyio.BrokenResourceError, anyio.EndOfStream, h11.ProtocolError) as error:
            await anyio.aclose_forcefully(connection.stream)
            if isinstance(error, TimeoutError):
                raise BrokenError(f"no answer within {timeout_s:g} s") from error
            raise BrokenError(f"{type(error).__name__} {error}".strip()) from error
        except BaseException:
            await anyio.aclose_forcefully(connection.stream)
            raise
        await self._keep(connection)
        return reply

    async def forget_idle(self) -> None:
        """Close the connections that nobody uses: their server may have been another one."""
        idle, self._idle = self._idle, []
        for connection in idle:
            await anyio.aclose_forcefully(connection.stream)

    async def _connected(self) -> _Connection:
        try:
            with anyio.fail_after(self._connect_timeout_s):
                stream = await anyio.connect_unix(self._path)
        except OSError as error:  # a time-out is one
            raise UnreachableError(str(error) or "no connection in time") from error
        return _Connection(stream, h11.Connection(h11.CLIENT))

    async def _reused(self) -> _Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if anyio.current_time() - connection.idle_since < self._keep_alive_s:
                return connection
            await anyio.aclose_forcefully(connection.stream)
        return None

    async def _keep(self, connection: _Connection) -> None:
        protocol = connection.protocol
        if protocol.our_state is not h11.DONE or protocol.their_state is not h11.DONE:
            await anyio.aclose_forcefully(connection.stream)
            return
        protocol.start_next_cycle()
        connection.idle_since = anyio.current_time()
        self._idle.append(connection)


async def _exchange(connection: _Connection, method: str, target: str, content: bytes) -> Reply:
    protocol, stream = connection.protocol, connection.stream
    headers = [("Host", "broker"), ("Content-Length", str(len(content)))]
    parts = [protocol.send(h11.Request(method=method, target=target, headers=headers))]
    if content:
        parts.append(protocol.send(h11.Data(data=content)))
    parts.append(protocol.send(h11.EndOfMessage()))
    await stream.send(b"".join(part for part in parts if part))
    status, body = 0, bytearray()
    while True:
        event = protocol.next_event()
        if event is h11.NEED_DATA:
            protocol.receive_data(await stream.receive(READ_BYTES))
        elif isinstance(event, h11.Response):
            status = event.status_code
        elif isinstance(event, h11.Data):
            body += event.data
            if len(body) > MAX_REPLY_BYTES:
                raise h11.RemoteProtocolError(f"an answer of more than {MAX_REPLY_BYTES} bytes")
        elif isinstance(event, h11.EndOfMessage):
            return Reply(status, bytes(body))
        elif isinstance(event, h11.ConnectionClosed):
            raise h11.RemoteProtocolError("the connection ended before the answer did")
