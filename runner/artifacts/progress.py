"""How far a fetch is, as callbacks: bars, lines and frames are views of the same few numbers."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

SMOOTHING_S = 5.0
"""Seconds over which the shown speed is averaged: shorter jumps about, longer lags behind a stall."""


class Phase(str, Enum):
    """What is being done with a file."""

    FETCHING = "fetching"
    COPYING = "copying"
    HASHING = "hashing"


@dataclass(frozen=True)
class FileProgress:
    """One file's progress; `total_bytes` and what follows from it are None until they are known."""

    name: str
    phase: Phase
    done_bytes: int
    total_bytes: int | None
    bytes_per_s: float | None
    left_s: float | None


@dataclass(frozen=True)
class FileDone:
    """A file that is in its place. `how` says in a word or two where it came from."""

    name: str
    sha256: str
    size_bytes: int
    how: str
    pinned: bool


class FetchListener(Protocol):
    """Who watches a fetch. Called on the event loop's thread, often: it has to be quick."""

    def progress(self, progress: FileProgress) -> None:
        """Take note of a file's progress."""

    def done(self, done: FileDone) -> None:
        """Take note of a file that is done."""

    def note(self, text: str) -> None:
        """Take note of something a person should know: a retry, a file put aside."""


class SilentListener:
    """For callers that only want the result."""

    def progress(self, progress: FileProgress) -> None:
        """Ignore it."""

    def done(self, done: FileDone) -> None:
        """Ignore it."""

    def note(self, text: str) -> None:
        """Ignore it."""


class Meter:
    """Counts the bytes of one file in one phase and reports them, with speed and time left."""

    def __init__(
        self,
        listener: FetchListener,
        name: str,
        phase: Phase,
        total_bytes: int | None,
        *,
        done_bytes: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`done_bytes` were there before and do not count for the speed."""
        self._listener, self._name, self._phase, self._clock = listener, name, phase, clock
        self.total_bytes, self.done_bytes = total_bytes, done_bytes
        self._bytes_per_s: float | None = None
        self._since_s, self._since_bytes = clock(), done_bytes

    def advance(self, count: int) -> None:
        """Report `count` more bytes."""
        self.done_bytes += count
        now = self._clock()
        elapsed = now - self._since_s
        if elapsed > 0:
            rate = (self.done_bytes - self._since_bytes) / elapsed
            weight = min(elapsed / SMOOTHING_S, 1.0)
            before = rate if self._bytes_per_s is None else self._bytes_per_s
            self._bytes_per_s = before + (rate - before) * weight
            self._since_s, self._since_bytes = now, self.done_bytes
        self.report()

    def restart(self, done_bytes: int, total_bytes: int | None) -> None:
        """Begin again from `done_bytes`, as after a cut connection."""
        self.done_bytes, self.total_bytes = done_bytes, total_bytes
        self._since_s, self._since_bytes = self._clock(), done_bytes
        self.report()

    def report(self) -> None:
        """Tell the listener where the file is."""
        left_s = None
        if self.total_bytes is not None and self._bytes_per_s:
            left_s = max(self.total_bytes - self.done_bytes, 0) / self._bytes_per_s
        self._listener.progress(
            FileProgress(
                self._name, self._phase, self.done_bytes, self.total_bytes, self._bytes_per_s, left_s
            )
        )
