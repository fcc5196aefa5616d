"""The run's append-only record: one JSON event a line, one writer, and the truth about the run."""

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from io import FileIO
from pathlib import Path

from pydantic import ValidationError
from typing_extensions import Self

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
        try:
            # Unbuffered: what a full disk refused must not be written a second time by closing the file.
            self._file: FileIO = path.open("r+b" if path.exists() else "x+b", buffering=0)
        except OSError as error:
            raise self._write_error(error) from error
        try:
            # The lock keeps the journal at one writer; it ends with the process, however that ends.
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _cut_torn_line(self._file)
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
        line = json.dumps(stamped.model_dump(mode="python"), separators=(",", ":"), default=_plain) + "\n"
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


def _plain(value: object) -> object:
    raise TypeError(f"{type(value).__name__} does not belong into a journal")


class JournalError(UserError):
    """A journal that cannot be read; the message names file and line."""


def read_journal(path: Path) -> Iterator[AnyEvent]:
    """Yield the events of a journal in order.

    A last line without a line end was torn by a crash and is dropped; anything else that is not an
    event raises `JournalError`.
    """
    try:
        with path.open("rb") as file:
            for number, raw in enumerate(file, start=1):
                if not raw.endswith(b"\n"):
                    return
                yield _read_event(raw, path, number)
    except OSError as error:
        raise JournalError(f"{path}: {error.strerror or error}") from error


def read_state(path: Path) -> RunState:
    """Return the state after all of a journal; raise `JournalError` also for events that cannot be so."""
    state = RunState()
    for number, event in enumerate(read_journal(path), start=1):
        try:
            state.apply(event)
        except StateError as error:
            raise JournalError(f"{path}:{number}: {error}") from error
    if state.started is None:
        raise JournalError(f"{path}: the run never started: there is no run_started in it")
    return state


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
