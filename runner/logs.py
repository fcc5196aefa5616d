"""What libraries and child processes write, kept in the run's directory and off the screen.

Standard output and error are taken at the level of file descriptors, since children and C libraries know no
other; a display writes to the terminal by a descriptor of its own. The file exists before the run's directory
does: engines start first, and what they say when they fail is what one wants to read.
"""

import logging
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from typing_extensions import override

from runner.clean import clean_text

LOG_NAME = "runner.log"
TAIL_LINES = 20
"""Shown of the log of a run that never began, whose directory never was."""

_STDOUT, _STDERR = 1, 2
_READ_BYTES = 1 << 16
"""Looked through at a time for errors; of what comes faster only the end is."""
_LINE_CHARS = 500
_MOST_ERRORS = 5
_IS_ERROR = re.compile(
    r"\b(?:ERROR|CRITICAL|FATAL)\b|^(?:\w+\.){0,9}\w{0,60}(?:Error|Exception)\b"
    r"|Segmentation fault|out of memory"
)


class RunLog:
    """The log of one run, and the terminal as it was before."""

    def __init__(self, path: Path, fd: int, terminal_fd: int | None) -> None:
        """`terminal_fd` is where standard output went; None where Python's is no file."""
        self.path = path
        self.terminal_fd = terminal_fd
        self.in_run_dir = False
        self._fd = fd
        self._read_to = 0

    @property
    def fd(self) -> int:
        """Where to write; it stays the same when the file moves."""
        return self._fd

    def move_to(self, run_dir: Path) -> None:
        """Move the log into the run's directory, with all that was written; at worst it stays where it is."""
        target = run_dir / LOG_NAME
        with suppress(OSError):
            try:
                self.path.replace(target)
            except OSError:
                # Another file system. Who was started before goes on writing to the old file.
                shutil.copyfile(self.path, target)
                self._take_over(os.open(target, _FLAGS, 0o644))
                self.path.unlink()
            target.chmod(0o644)
            self.path, self.in_run_dir = target, True

    def _take_over(self, fd: int) -> None:
        for other in (self._fd, _STDERR, *(() if self.terminal_fd is None else (_STDOUT,))):
            os.dup2(fd, other)
        os.close(fd)

    def new_errors(self) -> list[str]:
        """Return lines that tell of errors, written since the last call; the last few, cut and raw."""
        try:
            with self.path.open("rb") as file:
                end = file.seek(0, os.SEEK_END)
                file.seek(max(self._read_to, end - _READ_BYTES))
                data = file.read(_READ_BYTES)
        except OSError:
            return []
        whole = data.rpartition(b"\n")[0]
        self._read_to = end - len(data) + (len(whole) + 1 if whole or data.startswith(b"\n") else 0)
        lines = (line.decode("utf-8", errors="replace")[:_LINE_CHARS] for line in whole.split(b"\n"))
        return [line for line in lines if _IS_ERROR.search(line)][-_MOST_ERRORS:]

    def tail(self) -> str:
        """Return the last lines, clean."""
        try:
            with self.path.open("rb") as file:
                end = file.seek(0, os.SEEK_END)
                file.seek(max(end - _READ_BYTES, 0))
                text = file.read(_READ_BYTES).decode("utf-8", errors="replace")
        except OSError:
            return ""
        lines = [line[:_LINE_CHARS] for line in text.splitlines()[-TAIL_LINES:]]
        return clean_text("\n".join(lines), keep_lines=True)


_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC


class _LogHandler(logging.Handler):
    """Writes records to a descriptor: standard error may be anything by then."""

    def __init__(self, fd: int) -> None:
        super().__init__(logging.WARNING)
        self._fd = fd
        formatter = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
        formatter.converter = time.gmtime
        self.setFormatter(formatter)

    @override
    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = f"{self.format(record)}\n"
            os.write(self._fd, line.encode("utf-8", errors="backslashreplace"))
        except Exception:  # noqa: BLE001 - a full disk, a bad format: logging must not end a run
            self.handleError(record)


@contextmanager
def run_log(results_dir: Path, run_id: str, *, tell: Callable[[str], None]) -> Iterator[RunLog]:
    """Send what is written to the standard streams, logged or warned of to a file while the body runs.

    The caller moves it (`move_to`) once there is a run. If there never is one, the file's end goes to `tell`
    and the file is removed. A log of nothing is removed too.
    """
    path, fd = _create(results_dir, run_id)
    _flush()
    saved_err = os.dup(_STDERR)
    saved_out = os.dup(_STDOUT) if _is_descriptor_1() else None
    os.dup2(fd, _STDERR)
    if saved_out is not None:
        os.dup2(fd, _STDOUT)
    handler, root = _LogHandler(fd), logging.getLogger()
    root.addHandler(handler)
    logging.captureWarnings(capture=True)
    log = RunLog(path, fd, saved_out)
    try:
        yield log
    finally:
        logging.captureWarnings(capture=False)
        root.removeHandler(handler)
        _flush()
        os.dup2(saved_err, _STDERR)
        os.close(saved_err)
        if saved_out is not None:
            os.dup2(saved_out, _STDOUT)
            os.close(saved_out)
        _close(log, tell)


def _close(log: RunLog, tell: Callable[[str], None]) -> None:
    size_bytes = os.fstat(log.fd).st_size
    os.close(log.fd)
    if log.in_run_dir and size_bytes:
        return
    if not log.in_run_dir and (end := log.tail().strip()):
        tell(end)
    with suppress(OSError):
        log.path.unlink()


def _create(results_dir: Path, run_id: str) -> tuple[Path, int]:
    """Create the file, where possible on the file system that the run's directory will be on."""
    if results_dir.is_dir():
        path = results_dir / f".{run_id}.log"
        with suppress(OSError):
            return path, os.open(path, _FLAGS | os.O_EXCL, 0o600)
    fd, name = tempfile.mkstemp(prefix="recount-", suffix=".log")
    os.close(fd)
    return Path(name), os.open(name, _FLAGS)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()


def _is_descriptor_1() -> bool:
    try:
        return sys.stdout.fileno() == _STDOUT
    except (OSError, ValueError, AttributeError):
        return False
