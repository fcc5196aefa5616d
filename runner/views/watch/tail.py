"""Following a journal that may be growing: whole lines from where the last look ended.

Every look opens the file anew and reads from the start of the first line that was not whole, so nothing has
to be remembered of a torn line: whether its writer completes it, cuts it off (as a run that is continued
does) or never comes back, the next look is right. No lock is taken.
"""

import json
import os
import zlib
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from io import FileIO
from pathlib import Path

from pydantic import ValidationError

from runner.events import EVENT_ADAPTER, AnyEvent

CHUNK_BYTES = 1 << 17
"""Read in one look: some 4 ms of parsing, after which the screen gets its turn."""
LONGEST_LINE_BYTES = 64 << 20
"""A line beyond this is damage: a turn's texts are limited to far less."""
_HEAD_BYTES = 256
"""Of the first line; the moment and the id of the run stand in it, so another run's differ."""


class JournalPresence(str, Enum):
    """What a look found."""

    ABSENT = "absent"
    UNREADABLE = "unreadable"
    PRESENT = "present"


@dataclass(frozen=True)
class Located:
    """An event and where its line stands. `line` counts from 1."""

    event: AnyEvent
    line: int
    offset: int


@dataclass(frozen=True)
class Damage:
    """A line that is no event of this journal version."""

    line: int
    reason: str


@dataclass(frozen=True)
class Look:
    """What one look found. With `replaced` everything before it is void; with `more`, look again at once.

    `data` are whole lines, the first of them at `line` and `offset`; `skipped` is a line too long to be read.
    `torn_bytes` stand behind the last whole line; `size_bytes` is the whole file.
    """

    presence: JournalPresence
    data: bytes = b""
    line: int = 1
    offset: int = 0
    skipped: Damage | None = None
    replaced: bool = False
    more: bool = False
    size_bytes: int = 0
    torn_bytes: int = 0
    problem: str = ""

    @property
    def read_bytes(self) -> int:
        """Up to where the journal has been read."""
        return self.offset + len(self.data)

    @cached_property
    def found(self) -> tuple[Located | Damage, ...]:
        """The events, and lines that are none.

        Parsed when first asked for, by whoever looks on: the thread that reads hands bytes over. Parsing
        holds the interpreter either way, and texts that one thread makes and another drops fragment memory.
        """
        found: list[Located | Damage] = [] if self.skipped is None else [self.skipped]
        offset = self.offset
        for line, raw in enumerate(self.data.split(b"\n")[:-1], start=self.line):
            found.append(parse_line(raw, line, offset))
            offset += len(raw) + 1
        return tuple(found)


class JournalTail:
    """Where reading a journal has got to."""

    def __init__(self, path: Path, *, chunk_bytes: int = CHUNK_BYTES) -> None:
        """Begin at the start of `path`, which need not exist yet."""
        self.path = path
        self._chunk_bytes = chunk_bytes
        self._offset = 0
        self._line = 0
        self._identity: tuple[int, int] | None = None
        self._head: tuple[int, int] | None = None
        """Length and checksum of the beginning of the first whole line."""

    def look(self) -> Look:
        """Return the whole lines that came, at most about a chunk of them; waits for the disk alone."""
        try:
            with self.path.open("rb", buffering=0) as file:
                return self._look(file)
        except FileNotFoundError:
            return Look(JournalPresence.ABSENT)
        except OSError as error:
            return Look(JournalPresence.UNREADABLE, problem=error.strerror or type(error).__name__)

    def _look(self, file: FileIO) -> Look:
        status = os.fstat(file.fileno())
        replaced = self._offset > 0 and self._is_another(file, status)
        if replaced:
            self._offset, self._line, self._head = 0, 0, None
        self._identity = (status.st_dev, status.st_ino)
        line, offset = self._line + 1, self._offset
        data = self._read_whole_lines(file)
        self._line += data.count(b"\n")
        self._offset += len(data)
        if self._head is None and self._offset > 0:
            head = os.pread(file.fileno(), min(_HEAD_BYTES, self._offset), 0)
            self._head = (len(head), zlib.crc32(head))
        size = os.fstat(file.fileno()).st_size
        torn = max(size - self._offset, 0)
        skipped = self._skip_line(file) if not data and torn > LONGEST_LINE_BYTES else None
        return Look(
            JournalPresence.PRESENT,
            data=data,
            line=line,
            offset=offset if skipped is None else self._offset,
            skipped=skipped,
            replaced=replaced,
            more=(bool(data) or skipped is not None) and self._offset < size,
            size_bytes=size,
            torn_bytes=max(size - self._offset, 0),
        )

    def _is_another(self, file: FileIO, status: os.stat_result) -> bool:
        """Say whether what was read is no longer what stands there: another file, cut short, or rewritten."""
        if self._identity != (status.st_dev, status.st_ino) or status.st_size < self._offset:
            return True
        length, checksum = self._head or (0, 0)
        return zlib.crc32(os.pread(file.fileno(), length, 0)) != checksum

    def _read_whole_lines(self, file: FileIO) -> bytes:
        """Return from the offset to the last line end within a chunk, or to the first one behind it."""
        parts: list[bytes] = []
        length = 0
        position = self._offset
        while length <= LONGEST_LINE_BYTES:
            part = os.pread(file.fileno(), self._chunk_bytes, position)
            end = part.rfind(b"\n")
            if end >= 0:
                return b"".join((*parts, part[: end + 1]))
            if not part:
                break
            parts.append(part)
            length += len(part)
            position += len(part)
        return b""

    def _skip_line(self, file: FileIO) -> Damage | None:
        """Go past a line that is too long to be one, if its end is there already."""
        position = self._offset
        while part := os.pread(file.fileno(), self._chunk_bytes, position):
            end = part.find(b"\n")
            if end >= 0:
                self._line += 1
                self._offset = position + end + 1
                return Damage(self._line, f"longer than {LONGEST_LINE_BYTES} bytes")
            position += len(part)
        return None


def parse_line(raw: bytes, line: int, offset: int) -> Located | Damage:
    """Return the event of one line, or what is wrong with it."""
    try:
        return Located(EVENT_ADAPTER.validate_python(json.loads(raw)), line, offset)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        return Damage(line, f"no event of this journal version: {place}: {first['msg']}")
    except (ValueError, RecursionError) as error:
        return Damage(line, f"damaged: {error}")
