"""The run's append-only record: one JSON event a line, one writer, and the truth about the run.

Every line carries a hash of itself and of what stands before it (`chain.py`).
"""

import fcntl
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

from pydantic import ValidationError
from typing_extensions import Self

from runner.chain import SEAL_BYTES, chain_of, seal
from runner.errors import JournalWriteError, UserError
from runner.events import EVENT_ADAPTER, AnyEvent, Event, RunEnded, RunStarted, Terminated, Unfinished
from runner.state import RunState, StateError

JOURNAL_NAME = "journal.jsonl"
_BLOCK_BYTES = 1 << 16
_DURABLE = (RunStarted, Terminated, Unfinished, RunEnded)
"""Events that must survive a power cut; losing another costs at most one trajectory's turns."""


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
        self._clock = clock
        self._failure: OSError | None = None
        self._chain = ""
        try:
            # Unbuffered: what a full disk refused must not be written a second time by closing the file.
            self._file: FileIO = path.open("r+b" if path.exists() else "x+b", buffering=0)
        except OSError as error:
            raise self._write_error(error) from error
        try:
            # The lock keeps the journal at one writer; it ends with the process, however that ends.
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _cut_torn_line(self._file)
            self._chain = _last_chain(self._file)
        except BlockingIOError as error:
            self._file.close()
            raise UserError(
                f"{path} is being written by another run", remedy="wait for it, or name another --out"
            ) from error
        except OSError as error:
            self._file.close()
            raise self._write_error(error) from error

    def append(self, event: Event) -> Event:
        """Stamp and write one event, given to the kernel whole; return it as written.

        Raises `JournalWriteError` if the disk refuses it, and from then on always: behind a line that
        was written in part, a whole one would be damaged too.
        """
        if self._failure is not None:
            raise self._write_error(self._failure)
        stamped = event.model_copy(update={"at": round(self._clock(), 6)})
        body = json.dumps(stamped.model_dump(mode="python"), separators=(",", ":"), default=_plain)
        self._chain, line = seal(self._chain, body)
        left = memoryview(line.encode("ascii"))
        try:
            while left:
                left = left[self._file.write(left) :]
            if isinstance(event, _DURABLE):
                os.fsync(self._file.fileno())
        except OSError as error:
            self._failure = error
            raise self._write_error(error) from error
        return stamped

    def _write_error(self, error: OSError) -> JournalWriteError:
        return JournalWriteError(
            f"cannot write {self.path}: {error.strerror or error}", remedy="make room, then run again"
        )

    def close(self) -> None:
        """Release the file and its lock."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _cut_torn_line(file: FileIO) -> None:
    """Leave `file` at its end, a last line that a crash tore cut off: the next event begins a line."""
    end = file.seek(0, os.SEEK_END)
    keep = end
    while keep > 0:
        start = max(keep - _BLOCK_BYTES, 0)
        file.seek(start)
        newline = file.read(keep - start).rfind(b"\n")
        keep = start if newline < 0 else start + newline + 1
        if newline >= 0:
            break
    if keep < end:
        file.truncate(keep)
    file.seek(keep)


def _last_chain(file: FileIO) -> str:
    """Return the hash that the last line carries, and leave `file` behind it."""
    end = file.seek(0, os.SEEK_CUR)
    file.seek(max(end - SEAL_BYTES, 0))
    chain = chain_of(file.read(SEAL_BYTES)) if end else ""
    file.seek(end)
    return chain


def _plain(value: object) -> object:
    raise TypeError(f"{type(value).__name__} does not belong into a journal")


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
            f"{path}:{number}: no event of this journal version: {place}: {first['msg']}"
        ) from error
    except (ValueError, RecursionError) as error:
        raise JournalError(f"{path}:{number}: damaged: {error}") from error
