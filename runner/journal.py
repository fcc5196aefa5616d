"""The run's append-only record: one JSON event a line, one writer, and the truth about the run.

Every line carries a hash of itself and of what stands before it (`chain.py`). A full disk leaves the journal
as it was before the line that found no room; `patient.py` waits for room.
"""

import errno
import fcntl
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

from pydantic import ValidationError
from typing_extensions import Self

from runner.chain import SEAL_BYTES, chain_of, seal
from runner.errors import JournalWriteError, UserError
from runner.events import (
    EVENT_ADAPTER,
    AnyEvent,
    Event,
    RunEnded,
    RunStarted,
    Terminated,
    Unfinished,
)
from runner.state import RunState, StateError

JOURNAL_NAME = "journal.jsonl"
_BLOCK_BYTES = 1 << 16
_DURABLE = (RunStarted, Terminated, Unfinished, RunEnded)
"""Events that must survive a power cut; losing another costs at most one trajectory's turns."""
_LOCK_TRIES = 5
_LOCK_WAIT_S = 0.05
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
_NO_ROOM_REMEDY = "make room, then run again"


class NoRoomError(JournalWriteError):
    """The disk, or a quota on it, is full: the event was not written, and may be once there is room."""


class JournalWriter:
    """Appends events; holds the journal's lock for as long as it is open.

    Synchronous on purpose: an event is a few kB, written in microseconds, and an order that follows
    from program order is worth more than a thread.
    """

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.time) -> None:
        """Create or continue the journal at `path`; raise `UserError` if another run is writing it.

        Raises `JournalWriteError` where it cannot be opened.
        """
        self.path = path
        self.torn_bytes = 0
        """Of a last line that a crash tore. It stays until something is written in its place."""
        self._clock = clock
        self._failure: OSError | None = None
        try:
            there = path.exists()
            # Unbuffered: what a full disk refused must not be written a second time by closing the file.
            self._file: FileIO = path.open("r+b" if there else "x+b", buffering=0)
        except OSError as error:
            raise self._write_error(error) from error
        try:
            # The lock keeps the journal at one writer; it ends with the process, however that ends.
            _lock(self._file)
            if not there:
                _sync_directory(path.parent)
            self._end = _end_of_whole_lines(self._file)
            self.torn_bytes = self._file.seek(0, os.SEEK_END) - self._end
            self._chain = _chain_before(self._file, self._end)
        except BlockingIOError as error:
            self._file.close()
            raise UserError(
                f"{path} is being written by another run", remedy="wait for it, or name another --out"
            ) from error
        except OSError as error:
            self._file.close()
            raise self._write_error(error) from error

    def append(self, event: Event) -> Event:
        """Stamp and write one event; return it as written. Raises as `write` does."""
        return self.write(self.stamp(event))

    def stamp(self, event: Event) -> Event:
        """Return an event with the moment in it."""
        return event.model_copy(update={"at": round(self._clock(), 6)})

    def write(self, stamped: Event) -> Event:
        """Write one event, given to the kernel whole; return it.

        Raises `NoRoomError` where the disk is full, and what was written of the line is taken back. Raises
        `JournalWriteError` where the disk refuses otherwise, and from then on always: behind a line that was
        written in part, or that the disk took and then lost, a whole one would be damaged too.
        """
        if self._failure is not None:
            raise self._write_error(self._failure)
        body = json.dumps(stamped.model_dump(mode="python"), separators=(",", ":"), default=_plain)
        chain, line = seal(self._chain, body)
        try:
            if self.torn_bytes:
                self._file.truncate(self._end)
                self.torn_bytes = 0
            self._file.seek(self._end)
            self._write_whole(line.encode("ascii"))
            if isinstance(stamped, _DURABLE):
                os.fsync(self._file.fileno())
        except OSError as error:
            self._failure = error
            raise self._write_error(error) from error
        self._end += len(line)
        self._chain = chain
        return stamped

    def _write_whole(self, line: bytes) -> None:
        left = memoryview(line)
        try:
            while left:
                left = left[self._file.write(left) :]
        except OSError as error:
            if error.errno not in _NO_ROOM or not self._take_back():
                raise
            raise NoRoomError(
                f"cannot write {self.path}: {error.strerror or error}", remedy=_NO_ROOM_REMEDY
            ) from error

    def _take_back(self) -> bool:
        """Cut off what was written of a line; say whether that worked."""
        try:
            self._file.truncate(self._end)
        except OSError:
            return False
        return True

    def _write_error(self, error: OSError) -> JournalWriteError:
        remedy = _NO_ROOM_REMEDY if error.errno in _NO_ROOM else "see what is wrong with the disk"
        return JournalWriteError(f"cannot write {self.path}: {error.strerror or error}", remedy=remedy)

    def close(self) -> None:
        """Release the file and its lock."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _lock(file: FileIO) -> None:
    """Take the lock; raise `BlockingIOError` where another writer has it.

    Whoever asks whether a run is at work (`is_being_written`) holds it for a moment, which is waited for.
    """
    for _ in range(_LOCK_TRIES):
        with suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        time.sleep(_LOCK_WAIT_S)
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _sync_directory(directory: Path) -> None:
    """Make a new file's name survive a power cut; its own sync keeps no more than what is in it."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _end_of_whole_lines(file: FileIO) -> int:
    """Return where the last whole line ends: behind it stands what a crash tore."""
    keep = file.seek(0, os.SEEK_END)
    while keep > 0:
        start = max(keep - _BLOCK_BYTES, 0)
        file.seek(start)
        newline = file.read(keep - start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        keep = start
    return 0


def _chain_before(file: FileIO, end: int) -> str:
    """Return the hash that the line which ends at `end` carries."""
    file.seek(max(end - SEAL_BYTES, 0))
    return chain_of(file.read(min(SEAL_BYTES, end)))


def _plain(value: object) -> object:
    raise TypeError(f"{type(value).__name__} does not belong into a journal")


FOREIGN_REMEDY = (
    "if another version of Recount wrote it, read it with that one"
    " (an image may be older than its checkout: docker compose build)"
)
DAMAGED_REMEDY = "restore the file from a copy; recount verify run RUN names every line that was changed"


class JournalError(UserError):
    """A journal that cannot be read; the message names file and line."""


@dataclass(frozen=True)
class JournalFacts:
    """What a journal is as a file, a torn last line left out: what derived files name it by."""

    events: int
    sha256: str
    chain: str
    """The hash that its last line carries; empty for one that was written without."""


def read_journal(path: Path) -> Iterator[AnyEvent]:
    """Yield the events of a journal in order.

    A last line without a line end was torn by a crash and is dropped; anything else that is not an
    event raises `JournalError`.
    """
    for number, raw in read_lines(path):
        yield _read_event(raw, path, number)


def read_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the whole lines of a journal and their numbers, from 1; raise `JournalError`."""
    try:
        with path.open("rb") as file:
            for number, raw in enumerate(file, start=1):
                if not raw.endswith(b"\n"):
                    return
                yield number, raw
    except OSError as error:
        raise JournalError(f"{path}: {error.strerror or error}") from error


def read_state(path: Path) -> RunState:
    """Return the state after all of a journal; raise `JournalError` also for events that cannot be so."""
    return read_run(path)[0]


def read_run(path: Path) -> tuple[RunState, JournalFacts]:
    """Return the state after all of a journal, and what the file is; raise as `read_state` does."""
    state, digest, events, chain = RunState(), hashlib.sha256(), 0, ""
    for number, raw in read_lines(path):
        try:
            state.apply(_read_event(raw, path, number))
        except StateError as error:
            raise JournalError(f"{path}:{number}: {error}") from error
        digest.update(raw)
        events, chain = number, chain_of(raw)
    if state.started is None:
        raise JournalError(f"{path}: the run never started: there is no run_started in it")
    return state, JournalFacts(events, digest.hexdigest(), chain)


def is_being_written(path: Path) -> bool:
    """Say whether a run holds the journal's lock."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError as error:
        raise JournalError(f"{path}: {error.strerror or error}") from error
    return False


def _read_event(raw: bytes, path: Path, number: int) -> AnyEvent:
    try:
        return EVENT_ADAPTER.validate_python(json.loads(raw))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise JournalError(
            f"{path}:{number}: no event of this journal version: {place}: {first['msg']}",
            remedy=FOREIGN_REMEDY,
        ) from error
    except (ValueError, RecursionError) as error:
        raise JournalError(f"{path}:{number}: damaged: {error}", remedy=DAMAGED_REMEDY) from error
