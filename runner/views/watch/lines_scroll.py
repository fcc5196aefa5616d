"""A widget that scrolls through long text, drawing only the lines that are seen."""

from collections.abc import Sequence
from typing import ClassVar

import anyio.to_thread
from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.events import Resize
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip
from typing_extensions import override

from runner.views.watch.document import Line, wrapped

_MARGIN_CELLS = 1
"""At either side. A scroll view's own padding would be counted into its width."""
_WRAP_AT_ONCE_CHARS = 50_000
"""Longer texts are wrapped in a thread: the screen answers meanwhile."""


class LinesScroll(ScrollView, can_focus=True):
    """Shows lines, wrapped to its width; stays where the reader is when they change."""

    DEFAULT_CSS = "LinesScroll { overflow-x: hidden; scrollbar-size-vertical: 1; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "scroll_up", "up", show=False),
        Binding("down,j", "scroll_down", "down", show=False),
        Binding("pageup,b", "page_up", "page up", show=False),
        Binding("pagedown,space", "page_down", "page down", show=False),
        Binding("home,g", "scroll_home", "top", show=False),
        Binding("end,G", "scroll_end", "bottom", show=False),
        Binding("right_square_bracket,tab", "jump(1)", "next part", show=False),
        Binding("left_square_bracket,shift+tab", "jump(-1)", "previous part", show=False),
    ]

    def __init__(self, *, widget_id: str | None = None) -> None:
        """Begin empty."""
        super().__init__(id=widget_id)
        self._source: list[Line] = []
        self._lines: list[Line] = []
        self._wrapped_to: int | None = None

    def show(self, lines: Sequence[Line], *, from_the_top: bool = False) -> None:
        """Show these lines; `from_the_top` where they are about something else than before."""
        if from_the_top:
            self.scroll_to(y=0, animate=False)
        elif self._source == lines and self._wrapped_to == self.size.width:
            return
        self._source = list(lines)
        self._fit()

    def _fit(self) -> None:
        width = self.size.width
        if not width:
            return
        if sum(len(line.text) for line in self._source) <= _WRAP_AT_ONCE_CHARS:
            self._place(wrapped(self._source, width - 2 * _MARGIN_CELLS), width)
        else:
            self.run_worker(self._fit_in_a_thread(self._source, width), exclusive=True, group="wrap")

    async def _fit_in_a_thread(self, source: list[Line], width: int) -> None:
        fitted = await anyio.to_thread.run_sync(
            wrapped, source, width - 2 * _MARGIN_CELLS, abandon_on_cancel=True
        )
        if source is self._source:
            self._place(fitted, width)

    def _place(self, lines: list[Line], width: int) -> None:
        at_the_end = self._lines and self.scroll_offset.y >= self.max_scroll_y > 0
        self._lines, self._wrapped_to = lines, width
        self.virtual_size = Size(width, len(lines))
        if at_the_end:
            self.scroll_to(y=self.max_scroll_y, animate=False)
        self.refresh()

    def on_resize(self, event: Resize) -> None:
        """Wrap anew where the width is another."""
        if event.size.width != self._wrapped_to:
            self._fit()

    def action_jump(self, step: int) -> None:
        """Go to the next or previous part: a turn, an engine, an error."""
        here = self.scroll_offset.y
        anchors = [place for place, line in enumerate(self._lines) if line.anchor]
        ahead = [place for place in anchors if (place > here if step > 0 else place < here)]
        if step < 0:
            self.scroll_to(y=max(ahead, default=0), animate=False)
        elif ahead:
            self.scroll_to(y=min(ahead), animate=False)

    @override
    def render_line(self, y: int) -> Strip:
        place = self.scroll_offset.y + y
        base, width = self.rich_style, self.size.width
        if not 0 <= place < len(self._lines):
            return Strip.blank(width, base)
        line = self._lines[place]
        left = " " * (_MARGIN_CELLS + line.indent)
        segments = [Segment(left, base), Segment(line.text, base + Style.parse(line.style))]
        return Strip(segments).adjust_cell_length(width, base)
