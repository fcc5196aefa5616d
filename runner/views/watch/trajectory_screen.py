"""One trajectory, turn by turn; it goes on while the trajectory does."""

from collections.abc import Callable
from copy import copy
from pathlib import Path
from typing import ClassVar

import anyio.to_thread
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import Static
from typing_extensions import override

from runner.views.watch.document import Line
from runner.views.watch.lines_scroll import LinesScroll
from runner.views.watch.palette import BOLD, DIM
from runner.views.watch.rows import Row, shown
from runner.views.watch.trajectory_page import trajectory_lines
from runner.views.watch.turns import Places, read_trajectory

_HINTS = "esc back  n/p next/previous  ]/[ turn  a all text  ? help  q quit"


class TrajectoryScreen(Screen[None]):
    """Reads the trajectory's turns from the journal when it opens, and again when there are more."""

    DEFAULT_CSS = """
    TrajectoryScreen Static { height: 1; text-wrap: nowrap; text-overflow: ellipsis; }
    TrajectoryScreen LinesScroll { height: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,backspace,left", "back", "back"),
        Binding("n", "step(1)", "next"),
        Binding("p", "step(-1)", "previous"),
        Binding("a", "whole", "all text"),
    ]

    def __init__(
        self, journal: Path, row: Row, step: Callable[[int], Row | None], clock: Callable[[], float]
    ) -> None:
        """`step` moves the table's cursor and gives the row it is on then."""
        super().__init__()
        self.row = row
        self.whole = False
        self._journal = journal
        self._step = step
        self._clock = clock
        self._read_version: int | None = None

    @override
    def compose(self) -> ComposeResult:
        yield Static(id="title")
        yield LinesScroll(widget_id="page")
        yield Static(Text(_HINTS, DIM), id="hints")

    def on_mount(self) -> None:
        """Read it."""
        self.query_one(LinesScroll).focus()
        self._read(from_the_top=True)

    def row_may_have_changed(self, row: Row | None) -> None:
        """Read again if there is more of it; `row` is None where the journal holds it no longer."""
        if row is not None:
            self.row = row
        if row is not None and row.version != self._read_version:
            self._read(from_the_top=False)

    def action_back(self) -> None:
        """Go back to the table."""
        self.dismiss()

    def action_step(self, by: int) -> None:
        """Show the next or previous trajectory of the table."""
        row = self._step(by)
        if row is None:
            self.app.bell()
            return
        self.row = row
        self._read(from_the_top=True)

    def action_whole(self) -> None:
        """Show long texts whole, or cut again."""
        self.whole = not self.whole
        self._read(from_the_top=False)

    def _read(self, *, from_the_top: bool) -> None:
        row = self.row
        self._read_version = row.version
        self.query_one("#title", Static).update(Text(shown(f"{row.key}"), BOLD))
        self.run_worker(self._read_in_a_thread(row, from_the_top), exclusive=True, group="read")

    async def _read_in_a_thread(self, row: Row, from_the_top: bool) -> None:
        # A copy, since the row goes on while a thread looks at it.
        row, places, whole, now = copy(row), Places.of(row), self.whole, self._clock()

        def read() -> list[Line]:
            return list(trajectory_lines(row, read_trajectory(self._journal, places), now, whole=whole))

        lines = await anyio.to_thread.run_sync(read, abandon_on_cancel=True)
        self.query_one(LinesScroll).show(lines, from_the_top=from_the_top)
