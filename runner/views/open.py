"""From a command line and its surroundings to the display of a run."""

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from runner.events import Event, RunStarted
from runner.journal import JOURNAL_NAME
from runner.logs import RunLog, run_log
from runner.views.choice import Ui, choose_ui, wants_color
from runner.views.display import Display, Labels
from runner.views.panels import ASCII_GLYPHS, Glyphs
from runner.views.terminal import Terminal

WATCH_VARIABLE = "RECOUNT_WATCH"
"""How a person opens the viewer of this run from outside: in a container only whoever wrote the Compose file
knows."""


@contextmanager
def open_display(
    ui: Ui,
    *,
    run_id: str,
    title: str,
    results_dir: Path,
    write_line: Callable[[str], None],
    write_error: Callable[[str], None],
    environment: Mapping[str, str] | None = None,
) -> Iterator["RunDisplay"]:
    """Show a run while the body runs, its libraries' output kept from the screen.

    `write_line` takes lines where standard output is no file descriptor; `write_error` the log's end of a run
    that never began.
    """
    environment = os.environ if environment is None else environment
    chosen = choose_ui(ui, environment, is_terminal=_is_terminal())
    journal = results_dir / run_id / JOURNAL_NAME
    labels = Labels(title, str(journal), environment.get(WATCH_VARIABLE) or f"recount watch {run_id}")
    with run_log(results_dir, run_id, tell=write_error) as log:
        terminal = None if log.terminal_fd is None else Terminal(log.terminal_fd)
        with Display(
            chosen,
            labels,
            terminal=terminal,
            write_line=write_line,
            color=wants_color(environment),
            glyphs=_glyphs(),
            log=log,
        ) as display:
            yield RunDisplay(run_id, display, log, journal.parent)


class RunDisplay:
    """A run's display, and its log, which moves into the run's directory once there is one."""

    def __init__(self, run_id: str, display: Display, log: RunLog, run_dir: Path) -> None:
        """Both are open."""
        self.run_id = run_id
        self.phase, self.note, self.stopping = display.phase, display.note, display.stopping
        self.note_command, self.note_engine = display.note_command, display.note_engine
        self.catch_up, self.brief = display.catch_up, display.brief
        self._display, self._log, self._run_dir = display, log, run_dir

    @property
    def ui(self) -> Ui:
        """How the run is shown by now."""
        return self._display.ui

    def __call__(self, event: Event) -> None:
        """Take in an event of the run."""
        if isinstance(event, RunStarted):
            self._log.move_to(self._run_dir)
        self._display(event)


def _is_terminal() -> bool:
    try:
        return sys.stdout.isatty()
    except (ValueError, AttributeError):
        return False


def _glyphs() -> Glyphs:
    encoding = (getattr(sys.stdout, "encoding", None) or "ascii").lower().replace("-", "")
    return Glyphs() if encoding == "utf8" else ASCII_GLYPHS
