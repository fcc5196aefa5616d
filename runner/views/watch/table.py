"""The table of all trajectories: thousands of rows, of which only those that are seen are drawn.

textual's own DataTable makes every cell of every row when it is added or filtered: seconds for what a long
run holds. This one keeps a sorted list and draws a screenful, each row anew only when it changed.
"""

from collections.abc import Callable, Collection
from typing import ClassVar

from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.binding import Binding, BindingType
from textual.events import Click, Resize
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip
from typing_extensions import override

from runner.engines.base import TrajectoryKey
from runner.views.watch.cells import (
    MARK_CELLS,
    PlacedColumn,
    column_at,
    heading_text,
    placed_columns,
    row_text,
)
from runner.views.watch.order import Column, Filter, Order, ordered
from runner.views.watch.rows import Outcome, Row

_HEADING_LINES = 1
_KEPT_STRIPS = 2000
"""Drawn rows that are kept: some screens full, whatever the run's size."""
_CURSOR_MARK = "> "


class TrajectoryTable(ScrollView, can_focus=True):
    """Rows in an order, under a filter, with a cursor that stays on its trajectory."""

    DEFAULT_CSS = "TrajectoryTable { overflow-x: hidden; scrollbar-size-vertical: 1; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "up", show=False),
        Binding("down,j", "move(1)", "down", show=False),
        Binding("pageup,b", "page(-1)", "page up", show=False),
        Binding("pagedown,space", "page(1)", "page down", show=False),
        Binding("home,g", "first", "first", show=False),
        Binding("end,G", "last", "last", show=False),
        Binding("enter,right", "open", "open", show=False),
    ]

    class Opened(Message):
        """Somebody wants to see this trajectory."""

        def __init__(self, key: TrajectoryKey) -> None:
            """`key` names it."""
            super().__init__()
            self.key = key

    class HeadingClicked(Message):
        """Somebody wants rows sorted by this column."""

        def __init__(self, column: Column) -> None:
            """`column` is the one below the pointer."""
            super().__init__()
            self.column = column

    def __init__(self, clock: Callable[[], float], *, widget_id: str | None = None) -> None:
        """`clock` tells the seconds since the epoch, for what still runs."""
        super().__init__(id=widget_id)
        self.order = Order()
        self.filter = Filter()
        self.rows_drawn = 0
        """How many rows were drawn anew, for tests of what an update costs."""
        self._clock = clock
        self._rows: dict[TrajectoryKey, Row] = {}
        self._shown: list[Row] = []
        self._cursor = 0
        self._moved = False
        self._columns: tuple[PlacedColumn, ...] = ()
        self._several_datasets = False
        self._strips: dict[TrajectoryKey, tuple[int, int, Strip]] = {}
        self._measure = Console(color_system=None, width=1000)

    @property
    def shown(self) -> list[Row]:
        """The rows that pass the filter, in order."""
        return self._shown

    @property
    def cursor_row(self) -> Row | None:
        """The row that the cursor is on."""
        return self._shown[self._cursor] if self._cursor < len(self._shown) else None

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns that fit."""
        return tuple(one.column for one in self._columns)

    def set_rows(self, rows: dict[TrajectoryKey, Row], *, several_datasets: bool) -> None:
        """Show these rows from now on; the dict is the caller's, who tells what changes in it."""
        self._rows = rows
        self._strips.clear()
        self._several_datasets = several_datasets
        self._place_columns()
        self.rearrange()

    def set_view(self, order: Order, chosen: Filter) -> None:
        """Sort and filter otherwise."""
        self.order, self.filter = order, chosen
        self.rearrange()

    def rows_changed(self, changed: Collection[TrajectoryKey], *, several_datasets: bool) -> None:
        """Take in that rows changed: sort again, and draw again those of them that are seen."""
        if several_datasets != self._several_datasets:
            self._several_datasets = several_datasets
            self._place_columns()
        if changed:
            self.rearrange(changed)
        self._refresh_running()

    def rearrange(self, changed: Collection[TrajectoryKey] | None = None) -> None:
        """Sort and filter again; draw all that is seen, or only what is another or changed."""
        before = self._seen_keys()
        row = self.cursor_row if self._moved else None
        passing = (one for one in self._rows.values() if self.filter.passes(one))
        self._shown = ordered(passing, self.order, self._clock())
        self.virtual_size = Size(self.size.width, len(self._shown) + _HEADING_LINES)
        moved_by = self._keep_cursor(row)
        if changed is None or moved_by or before != self._seen_keys():
            self.refresh()
            return
        for place, key in enumerate(before):
            if key in changed:
                self._refresh_line(place)

    def _keep_cursor(self, row: Row | None) -> int:
        """Leave the cursor on its trajectory and that where it is on the screen; return how far both went."""
        before = self._cursor
        if not self._moved:
            self._cursor = 0
        elif row is not None and row.key in self._rows and self.filter.passes(row):
            self._cursor = next(place for place, one in enumerate(self._shown) if one is row)
        self._cursor = max(min(self._cursor, len(self._shown) - 1), 0)
        moved_by = self._cursor - before
        if moved_by:
            self.scroll_to(y=self.scroll_offset.y + moved_by, animate=False)
            self._scroll_to_cursor()
        return moved_by

    def _seen_keys(self) -> list[TrajectoryKey]:
        top = self.scroll_offset.y
        return [one.key for one in self._shown[top : top + max(self.size.height - _HEADING_LINES, 0)]]

    def _refresh_running(self) -> None:
        """Draw again what runs and is seen: its time goes on."""
        top = self.scroll_offset.y
        for place, key in enumerate(self._seen_keys()):
            if self._shown[top + place].key == key and self._shown[top + place].outcome is Outcome.RUNNING:
                self._refresh_line(place)

    def _refresh_line(self, place: int) -> None:
        self.refresh(Region(0, place + _HEADING_LINES, self.size.width, 1))

    def _place_columns(self) -> None:
        self._columns = placed_columns(self.size.width, several_datasets=self._several_datasets)
        self._strips.clear()
        self.refresh()

    def on_resize(self, _: Resize) -> None:
        """Choose the columns that fit now."""
        self._place_columns()
        self.virtual_size = Size(self.size.width, len(self._shown) + _HEADING_LINES)
        self._scroll_to_cursor()

    def on_click(self, event: Click) -> None:
        """Sort by a heading; a row takes the cursor, and opens if it has it."""
        if event.y < _HEADING_LINES:
            column = column_at(self._columns, event.x)
            if column is not None:
                self.post_message(self.HeadingClicked(column))
            return
        place = self.scroll_offset.y + event.y - _HEADING_LINES
        if place == self._cursor and self._moved:
            self.action_open()
        elif place < len(self._shown):
            self.move_to(place)

    def move_to(self, place: int) -> None:
        """Put the cursor on the row at this place, the nearest there is."""
        self._moved = True
        self._cursor = max(min(place, len(self._shown) - 1), 0)
        self._scroll_to_cursor()
        self.refresh()

    def step(self, by: int) -> Row | None:
        """Move the cursor and return the row it is on then; None at an end."""
        if not 0 <= self._cursor + by < len(self._shown):
            return None
        self.move_to(self._cursor + by)
        return self.cursor_row

    def action_move(self, by: int) -> None:
        """Move the cursor."""
        self.move_to(self._cursor + by)

    def action_page(self, by: int) -> None:
        """Move the cursor by a screenful."""
        self.move_to(self._cursor + by * max(self.size.height - _HEADING_LINES - 1, 1))

    def action_first(self) -> None:
        """Go to the first row, and stay at the top whatever comes there."""
        self.move_to(0)
        self._moved = False

    def action_last(self) -> None:
        """Go to the last row."""
        self.move_to(len(self._shown) - 1)

    def action_open(self) -> None:
        """Open the trajectory under the cursor."""
        row = self.cursor_row
        if row is not None:
            self._moved = True
            self.post_message(self.Opened(row.key))

    def _scroll_to_cursor(self) -> None:
        top, seen = self.scroll_offset.y, max(self.size.height - _HEADING_LINES, 1)
        if self._cursor < top:
            self.scroll_to(y=self._cursor, animate=False)
        elif self._cursor >= top + seen:
            self.scroll_to(y=self._cursor - seen + 1, animate=False)

    @override
    def render_line(self, y: int) -> Strip:
        width, base = self.size.width, self.rich_style
        if y < _HEADING_LINES:
            return self._strip(heading_text(self._columns, self.order), base)
        place = self.scroll_offset.y + y - _HEADING_LINES
        if place >= len(self._shown):
            return Strip.blank(width, base)
        strip = self._row_strip(self._shown[place], base)
        if place != self._cursor:
            return strip
        marked = [Segment(_CURSOR_MARK, base), *strip.crop(MARK_CELLS)]
        # On top of what the segments say themselves: a base style says "not reverse" for them.
        return Strip(Segment.apply_style(marked, post_style=Style(reverse=self.has_focus, bold=True)), width)

    def _row_strip(self, row: Row, base: Style) -> Strip:
        now = self._clock()
        second = int(now) if row.outcome is Outcome.RUNNING else 0
        kept = self._strips.get(row.key)
        if kept is not None and kept[:2] == (row.version, second):
            return kept[2]
        if len(self._strips) >= _KEPT_STRIPS:
            self._strips.clear()
        strip = self._strip(row_text(row, self._columns, now), base)
        self._strips[row.key] = (row.version, second, strip)
        self.rows_drawn += 1
        return strip

    def _strip(self, text: Text, base: Style) -> Strip:
        segments = Segment.apply_style(text.render(self._measure), base)
        return Strip(segments).adjust_cell_length(self.size.width, base)
