"""Bounded capture of one output stream in this process: the agent's capture.h, for commands on the host."""

from __future__ import annotations

import codecs

from sandbox.types import CapturedStream
from sandbox.utf8 import describe


class StreamCapture:
    """Keeps the first and last `limit_bytes` and decodes along, so memory stays flat whatever is printed."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._head = bytearray()
        self._tail = bytearray()
        self._decoder = codecs.getincrementaldecoder("utf-8")("strict")
        self._decode_error: str | None = None
        self.total_bytes = 0

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the stream."""
        self._decode(data, final=False)
        self.total_bytes += len(data)
        room = self._limit_bytes - len(self._head)
        self._head += data[:room]
        self._tail += data[room:] if room > 0 else data
        del self._tail[: max(0, len(self._tail) - self._limit_bytes)]

    def finish(self) -> CapturedStream:
        """What there is, once the stream has ended."""
        self._decode(b"", final=True)
        return CapturedStream(bytes(self._head), bytes(self._tail), self.total_bytes, self._decode_error)

    def _decode(self, data: bytes, *, final: bool) -> None:
        if self._decode_error is not None:
            return
        # Positions in the exception count from the decoder's unfinished sequence, not the stream's start.
        pending, _ = self._decoder.getstate()
        try:
            self._decoder.decode(data, final)
        except UnicodeDecodeError as error:
            offset = self.total_bytes - len(pending)
            self._decode_error = describe(
                error.object[error.start], offset + error.start, offset + error.end, error.reason
            )
