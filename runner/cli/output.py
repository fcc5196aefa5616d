"""Consoles of the command line. Highlighting is off: it is quadratic in what models can write."""

import io
import os
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text
from typing_extensions import override

from runner.clean import clean_text


class _PatientConsole(Console):
    """A console whose reader may go away, or whose disk may fill: a run does not end because nobody looks."""

    @override
    def print(self, *objects: Any, **options: Any) -> None:
        try:
            super().print(*objects, **options)
        except OSError:
            self.on_broken_pipe()

    @override
    def on_broken_pipe(self) -> None:
        self.quiet = True
        # What Python still holds for the pipe goes nowhere at exit, instead of failing there.
        with Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), self.file.fileno())


def prepare_streams() -> None:
    """Show what a stream's encoding lacks as `?`: a sign such as ± must not end a run."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


out = _PatientConsole(highlight=False, soft_wrap=False)
err = _PatientConsole(stderr=True, highlight=False, soft_wrap=True)


def errors(message: str, remedy: str | None = None) -> None:
    """Print an error and its remedy to stderr, cleaned of anything a terminal could act on."""
    err.print(Text("error: ", style="bold red") + Text(clean_text(message, keep_lines=True)))
    if remedy:
        err.print(Text(f"  remedy: {clean_text(remedy, keep_lines=True)}"))


def line(text: str) -> None:
    """Print one line to stdout as it is (cleaned already), unwrapped."""
    out.print(Text(text), soft_wrap=True)


def log_of_no_run(text: str) -> None:
    """Print to stderr what libraries and children said (cleaned) before a run that never began."""
    err.print(Text(f"what was logged before:\n{text}", style="dim"))
