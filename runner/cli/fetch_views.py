"""A fetch on the terminal: bars where there is one, plain lines elsewhere."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
)

from runner.artifacts.errors import in_words
from runner.artifacts.progress import FetchListener, FileDone, FileProgress
from runner.clean import clean_text

LINE_EVERY_S = 10.0
"""Seconds between two lines of one file: a log shall show that it gets on, not how."""


@contextmanager
def fetch_listener(console: Console, line: Callable[[str], None]) -> Iterator[FetchListener]:
    """Yield bars if the console is a terminal, else lines."""
    if not console.is_terminal:
        yield LineListener(line)
        return
    with Progress(
        TextColumn("{task.fields[phase]:<8}"),
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TextColumn("{task.fields[rest]}"),
        console=console,
        transient=True,
    ) as bars:
        yield BarListener(bars, line)


class BarListener:
    """A bar for each file that is being worked on, a line for each that is done."""

    def __init__(self, bars: Progress, line: Callable[[str], None]) -> None:
        """`line` prints above the bars."""
        self._bars, self._line = bars, line
        self._tasks: dict[str, TaskID] = {}

    def progress(self, progress: FileProgress) -> None:
        """Move the file's bar."""
        phase, rest = progress.phase.value, _rest(progress)
        task = self._tasks.get(progress.name)
        if task is None:
            name = clean_text(progress.name.rpartition("/")[2], keep_lines=False)
            task = self._bars.add_task(
                escape(name),
                total=progress.total_bytes,
                completed=progress.done_bytes,
                phase=phase,
                rest=rest,
            )
            self._tasks[progress.name] = task
            return
        self._bars.update(
            task, completed=progress.done_bytes, total=progress.total_bytes, phase=phase, rest=rest
        )

    def done(self, done: FileDone) -> None:
        """Replace the bar by a line."""
        task = self._tasks.pop(done.name, None)
        if task is not None:
            self._bars.remove_task(task)
        self._line(done_line(done))

    def note(self, text: str) -> None:
        """Print it above the bars."""
        self._line(clean_text(text, keep_lines=False))


class LineListener:
    """A line when a file is begun, one every ten seconds, one when it is done."""

    def __init__(self, line: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        """`line` prints one."""
        self._line, self._clock = line, clock
        self._next_s: dict[tuple[str, str], float] = {}

    def progress(self, progress: FileProgress) -> None:
        """Print a line if it is time for one."""
        key, now = (progress.name, progress.phase.value), self._clock()
        due = self._next_s.setdefault(key, now + LINE_EVERY_S)
        if now >= due:
            self._next_s[key] = now + LINE_EVERY_S
            self._line(progress_line(progress))

    def done(self, done: FileDone) -> None:
        """Print what became of the file."""
        self._line(done_line(done))

    def note(self, text: str) -> None:
        """Print it."""
        self._line(clean_text(text, keep_lines=False))


def progress_line(progress: FileProgress) -> str:
    """Return a file's progress in one line."""
    name = clean_text(progress.name, keep_lines=False)
    done = in_words(progress.done_bytes)
    if progress.total_bytes:
        share = 100 * progress.done_bytes / progress.total_bytes
        done = f"{share:.0f} % of {in_words(progress.total_bytes)}"
    rest = _rest(progress)
    return f"{progress.phase.value} {name}: {done}{', ' if rest else ''}{rest}"


def _rest(progress: FileProgress) -> str:
    """Speed and time left, as far as they are known."""
    parts = []
    if progress.bytes_per_s:
        parts.append(f"{in_words(progress.bytes_per_s)}/s")
    if progress.left_s is not None:
        parts.append(f"{progress.left_s:.0f} s left")
    return ", ".join(parts)


def done_line(done: FileDone) -> str:
    """Return what became of a file in one line."""
    pinned = "" if done.pinned else " (no published hash)"
    return (
        f"{clean_text(done.name, keep_lines=False)}: {clean_text(done.how, keep_lines=False)},"
        f" {in_words(done.size_bytes)}, SHA-256 {done.sha256}{pinned}"
    )
