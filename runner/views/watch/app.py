"""The viewer: follows a journal and shows it as a table, engines, errors, and trajectories turn by turn.

Reading happens in a thread, a chunk at a time; a chunk is parsed and taken in on the screen's own loop, so
nothing needs a lock, and keys are answered between two chunks.
"""

import asyncio
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, TypeVar

import anyio
import anyio.to_thread
from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import ContentSwitcher, Input, Static
from typing_extensions import override

from runner.protocol.score import Termination
from runner.views.watch import bars, panels
from runner.views.watch.bars import ENGINES, ERRORS, TABLE
from runner.views.watch.help_screen import HelpScreen
from runner.views.watch.index import RunIndex
from runner.views.watch.lines_scroll import LinesScroll
from runner.views.watch.order import Filter, Order
from runner.views.watch.palette import CARE, DIM
from runner.views.watch.rows import Outcome, Row, shown
from runner.views.watch.search import TextSearch, search_journal
from runner.views.watch.table import TrajectoryTable
from runner.views.watch.tail import JournalTail, Look
from runner.views.watch.trajectory_screen import TrajectoryScreen

POLL_S = 0.5
"""Between two looks at a journal that had nothing more; also between two drawings."""
_HINTS = "enter open  / find  d o t filter  c clear  s r sort  1-3 panels  ? help  q quit"
_FIND_HINT = "text in ids, questions, answers, commands; enter finds, esc leaves"
Choice = TypeVar("Choice")


class WatchApp(App[None]):
    """`recount watch`."""

    CSS = """
    /* One line each, cut rather than wrapped: the table gets what is left. */
    .line { height: 1; text-wrap: nowrap; text-overflow: ellipsis; }
    #datasets { height: auto; max-height: 5; text-wrap: nowrap; text-overflow: ellipsis; }
    #damage, #filter, #find { display: none; }
    #panels { height: 1fr; }
    #find { height: 1; border: none; padding: 0; }
    """
    ENABLE_COMMAND_PALETTE = False
    ALLOW_SELECT = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c", "quit", "quit", priority=True),
        Binding("q", "quit", "quit"),
        Binding("question_mark", "help", "help"),
        Binding("1", f"panel('{TABLE}')", "trajectories"),
        Binding("2,e", f"panel('{ENGINES}')", "engines"),
        Binding("3,x", f"panel('{ERRORS}')", "errors"),
        Binding("slash", "find", "find"),
        Binding("d", "dataset(1)", "data set"),
        Binding("D", "dataset(-1)", "data set"),
        Binding("o", "outcome(1)", "outcome"),
        Binding("O", "outcome(-1)", "outcome"),
        Binding("t", "termination(1)", "termination"),
        Binding("T", "termination(-1)", "termination"),
        Binding("c", "clear", "clear"),
        Binding("s", "sort(1)", "sort"),
        Binding("S", "sort(-1)", "sort"),
        Binding("r", "reverse", "reverse"),
        Binding("escape", "leave_find", "leave", show=False),
    ]

    def __init__(self, journal: Path, *, clock: Callable[[], float] = time.time) -> None:
        """`journal` need not exist yet. `clock` tells the seconds since the epoch."""
        # Without colours there is no background either, so that a terminal's own is kept.
        super().__init__(ansi_color=True if os.environ.get("NO_COLOR") else None)
        self.journal = journal
        self.index = RunIndex(journal.name)
        self._clock = clock
        self._tail = JournalTail(journal)
        self._taken_bytes = 0
        self._reading = "reading"
        self._notice = ""
        self._dirty = True
        self._run = Static(classes="line")
        self._datasets = Static(id="datasets")
        self._damage = Static(id="damage", classes="line")
        self._tabs = Static(classes="line")
        self._filter = Static(id="filter", classes="line")
        self._find = Input(placeholder=_FIND_HINT, id="find")
        self._switcher = ContentSwitcher(initial=TABLE, id="panels")
        self._table = TrajectoryTable(clock, widget_id=TABLE)
        self._engines = LinesScroll(widget_id=ENGINES)
        self._errors = LinesScroll(widget_id=ERRORS)

    @override
    def compose(self) -> ComposeResult:
        yield from (self._run, self._datasets, self._damage, self._tabs)
        with self._switcher:
            yield from (self._table, self._engines, self._errors)
        yield from (self._filter, self._find, Static(Text(_HINTS, DIM), classes="line"))

    def on_mount(self) -> None:
        """Begin to follow."""
        loop = asyncio.get_running_loop()
        for one in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(one, self.exit)
        self._table.set_rows(self.index.rows, several_datasets=False)
        self._table.focus()
        self.run_worker(self._follow(), exclusive=True, group="follow")
        self.set_interval(POLL_S, self.draw)
        self.draw()

    def on_unmount(self) -> None:
        """Leave signals as they were."""
        for one in (signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().remove_signal_handler(one)

    async def _follow(self) -> None:
        while True:
            look = await anyio.to_thread.run_sync(self._tail.look, abandon_on_cancel=True)
            self._take_in(look)
            await anyio.sleep(0 if look.more else POLL_S)

    def _take_in(self, look: Look) -> None:
        if look.replaced:
            self._begin_anew()
        self.index.take_in(look.found)
        self._taken_bytes = look.read_bytes
        reading = bars.reading_text(look, self.index, self.journal)
        self._dirty |= bool(look.found) or look.replaced or reading != self._reading
        self._reading = reading

    def _begin_anew(self) -> None:
        """Another run's journal stands there, or this one was cut: nothing that was read is true any more."""
        self.index = RunIndex(self.journal.name)
        self._table.set_rows(self.index.rows, several_datasets=False)
        search = self._table.filter.search
        if search is not None:
            self._search(search.text)
        self._notice = "the journal was replaced and is read anew"

    def draw(self) -> None:
        """Bring everything that is seen to where the journal is."""
        changed = self.index.take_changed()
        self._table.rows_changed(changed, several_datasets=len(self.index.tallies) > 1)
        now = self._clock()
        self._run.update(bars.run_line(self.index, now, self._reading))
        if self._dirty:
            self._dirty = False
            self._datasets.update(Text("\n").join(bars.dataset_lines(self.index)))
            _show_line(self._damage, bars.damage_line(self.index))
            self._tabs.update(bars.tabs_line(self.index, self._switcher.current))
            self._draw_panel()
            self._draw_filter()
        top = self.screen
        if isinstance(top, TrajectoryScreen):
            top.row_may_have_changed(self.index.rows.get(top.row.key))

    def _draw_panel(self) -> None:
        current = self._switcher.current
        if current == ENGINES:
            self._engines.show(list(panels.engine_lines(self.index)))
        elif current == ERRORS:
            self._errors.show(list(panels.error_lines(self.index)))

    def _draw_filter(self) -> None:
        line = bars.filter_line(
            self._table.filter,
            self._table.order,
            shown_rows=len(self._table.shown),
            rows=len(self.index.rows),
        )
        if self._notice:
            line = Text(f"{self._notice}  ", CARE) + (line or Text())
        _show_line(self._filter, line)

    @property
    def _in_the_table(self) -> bool:
        return len(self.screen_stack) == 1

    def _set_view(self, order: Order, chosen: Filter) -> None:
        self._table.set_view(order, chosen)
        self._notice = ""
        self._dirty = True
        self.draw()

    def _set_filter(self, chosen: Filter) -> None:
        self._set_view(self._table.order, chosen)

    def action_help(self) -> None:
        """Show the help, once."""
        if not isinstance(self.screen, HelpScreen):
            self.push_screen(HelpScreen())

    def action_panel(self, name: str) -> None:
        """Show trajectories, engines or errors."""
        if self._in_the_table:
            self._switcher.current = name
            self._switcher.query_one(f"#{name}").focus()
            self._dirty = True
            self.draw()

    def action_dataset(self, step: int) -> None:
        """Show one data set alone, or all."""
        chosen = self._table.filter
        names = list(self.index.tallies)
        self._set_filter(replace(chosen, dataset=_next_choice(names, chosen.dataset, step)))

    def action_outcome(self, step: int) -> None:
        """Show one outcome alone, or all."""
        chosen = self._table.filter
        self._set_filter(replace(chosen, outcome=_next_choice(list(Outcome), chosen.outcome, step)))

    def action_termination(self, step: int) -> None:
        """Show one termination alone, or all."""
        chosen = self._table.filter
        self._set_filter(
            replace(chosen, termination=_next_choice(list(Termination), chosen.termination, step))
        )

    def action_sort(self, step: int) -> None:
        """Sort by another column."""
        self._set_view(self._table.order.by_next(self._table.columns, step), self._table.filter)

    def action_reverse(self) -> None:
        """Sort the other way round."""
        order = self._table.order
        self._set_view(replace(order, descending=not order.descending), self._table.filter)

    def action_clear(self) -> None:
        """Show all again, in the first order."""
        self.index.search = None
        self._set_view(Order(), Filter())

    def action_find(self) -> None:
        """Ask for a text."""
        if self._in_the_table:
            self.action_panel(TABLE)
            self._find.display = True
            self._find.focus()

    def action_leave_find(self) -> None:
        """Close the question without an answer."""
        if self._in_the_table:
            self._find.display = False
            self._table.focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Look for the text; nothing means all again."""
        self._find.display = False
        self._table.focus()
        if event.value:
            self._search(event.value)
        else:
            self.index.search = None
            self._set_filter(replace(self._table.filter, search=None))

    def _search(self, text: str) -> None:
        search = self.index.search = TextSearch(text)
        self._set_filter(replace(self._table.filter, search=search))
        self.run_worker(self._search_journal(search, self._taken_bytes), exclusive=True, group="search")

    async def _search_journal(self, search: TextSearch, until_offset: int) -> None:
        def is_stale() -> bool:
            return self.index.search is not search

        try:
            hits = await anyio.to_thread.run_sync(
                search_journal, self.journal, search.text, until_offset, is_stale, abandon_on_cancel=True
            )
        except OSError as error:
            hits, self._notice = set(), f"commands could not be searched: {shown(str(error))}"
        if not is_stale():
            search.hits |= hits
            search.searched_journal = True
            self._table.rearrange()
            self._dirty = True
            self.draw()

    def on_trajectory_table_opened(self, event: TrajectoryTable.Opened) -> None:
        """Open a trajectory over the table."""
        row = self.index.rows.get(event.key)
        if row is not None and self._in_the_table:
            self.push_screen(TrajectoryScreen(self.journal, row, self._step, self._clock))

    def on_trajectory_table_heading_clicked(self, event: TrajectoryTable.HeadingClicked) -> None:
        """Sort by that column, or by it the other way round."""
        order = self._table.order
        again = order.column is event.column
        self._set_view(Order(event.column, again and not order.descending), self._table.filter)

    def _step(self, by: int) -> Row | None:
        return self._table.step(by)

    @override
    def copy_to_clipboard(self, text: str) -> None:
        """Keep what is cut from the text field inside: the terminal's clipboard is not ours to write."""
        self._clipboard = text


def _show_line(static: Static, text: Text | None) -> None:
    """Show a line, or leave its room to the table."""
    static.display = text is not None
    static.update(text or Text())


def _next_choice(choices: Sequence[Choice], now: Choice | None, step: int) -> Choice | None:
    """Return the choice `step` further, with "all" (None) between the last and the first."""
    circle: list[Choice | None] = [None, *choices]
    place = circle.index(now) if now in circle else 0
    return circle[(place + step) % len(circle)]
