"""The raw stream of an attached container: bytes to its stdin, its stdout out of the engine's framing.

Reading needs no thread: the socket is waited for on the event loop, so thousands of commands in flight cost
no threads, and a cancelled reader is gone at once.
"""

from __future__ import annotations

import socket
import struct

import anyio

# The engine's multiplexing header: stream, three zero bytes, length.
_HEADER = struct.Struct(">BxxxI")
_STDOUT = 1
READ_BYTES = 256 * 1024


class Demultiplexer:
    """Takes the engine's 8-byte headers off; only stdout is kept, since only the agent writes there."""

    def __init__(self) -> None:
        self._header = bytearray()
        self._stream = 0
        self._left = 0

    def feed(self, data: bytes) -> bytes:
        """The payload of stdout in `data`; memory is bounded by `data` itself, whatever a header claims."""
        payload = bytearray()
        at = 0
        while at < len(data):
            if self._left == 0:
                wanted = _HEADER.size - len(self._header)
                self._header += data[at : at + wanted]
                at += wanted
                if len(self._header) < _HEADER.size:
                    break
                self._stream, self._left = _HEADER.unpack(self._header)
                self._header.clear()
                continue
            part = data[at : at + self._left]
            at += len(part)
            self._left -= len(part)
            if self._stream == _STDOUT:
                payload += part
        return bytes(payload)


class AttachedStream:
    """Both directions of one attached container. Closing it ends the container's stdin, and so the agent."""

    def __init__(self, raw: socket.socket) -> None:
        raw.setblocking(False)
        self._socket = raw
        self._demultiplexer = Demultiplexer()

    async def send(self, data: bytes) -> None:
        """Write all of `data` to the container's stdin."""
        view = memoryview(data)
        while view:
            try:
                view = view[self._socket.send(view) :]
            except BlockingIOError:
                await anyio.wait_writable(self._socket)

    async def receive(self) -> bytes | None:
        """The next bytes of the container's stdout (possibly none yet), None at the end."""
        while True:
            try:
                data = self._socket.recv(READ_BYTES)
            except BlockingIOError:
                await anyio.wait_readable(self._socket)
                continue
            except ConnectionError:
                return None
            return self._demultiplexer.feed(data) if data else None

    def is_quiet(self) -> bool:
        """Whether the peer is there and has said nothing that was not read."""
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def close(self) -> None:
        """Hang up; idempotent."""
        self._socket.close()
