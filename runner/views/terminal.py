"""The terminal (or pipe, or file) that a display writes to, below all buffers of Python's."""

import fcntl
import os
import select
import struct
import termios

from runner.views.screen import Size

_WAIT_MS = 500


class Terminal:
    """A file descriptor that takes bytes. Blocks as long as its reader does: not for the run's own thread."""

    def __init__(self, fd: int) -> None:
        """`fd` stays the caller's."""
        self._fd = fd

    def size(self) -> Size | None:
        """Return the size, or None where there is none; 0x0 is what `docker compose up` gives."""
        try:
            packed = fcntl.ioctl(self._fd, termios.TIOCGWINSZ, b"\0" * 8)
        except OSError:
            return None
        rows, columns, _, _ = struct.unpack("HHHH", packed)
        return Size(columns, rows) if rows > 0 and columns > 0 else None

    def write(self, data: bytes) -> None:
        """Write all of `data`; raise `OSError` where nobody reads any more."""
        left = memoryview(data)
        while left:
            try:
                left = left[os.write(self._fd, left) :]
            except BlockingIOError:
                # Somebody who shares it has made it non-blocking.
                poll = select.poll()
                poll.register(self._fd, select.POLLOUT)
                poll.poll(_WAIT_MS)
