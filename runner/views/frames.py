"""Frames for a terminal that one cannot ask anything: each is one line of positioned cells.

`docker compose up` prints its prefix once a line and passes escape codes through, so a frame holds one line
end, at its very end, and what the prefix overwrites is a row that the next frame clears. Nothing that would
have to be undone outlasts a frame: killed at any moment, it leaves a usable terminal.
"""

import re
from collections.abc import Sequence
from itertools import zip_longest

from runner.views.cells import BLANK, Cell, Row, Tone
from runner.views.screen import MOST_ROWS, PARKING_ROWS, Size

REDRAW_S = 3.0
"""How often everything is drawn: nobody tells of a resize, or of what else wrote on the screen."""

_CSI = "\x1b["
_BEGIN = f"{_CSI}?2026h{_CSI}?7l{_CSI}2K"
"""Synchronized update, autowrap off, and whatever prefix stands in the cursor's row gone."""
_END = f"{_CSI}?7h{_CSI}?2026l\n"
_PARK_UNSIZED = f"{_CSI}999;1H{_CSI}3A{_CSI}J"
"""Rows beyond the screen all went to its last one. Compose's menu lives there; it draws it again."""
_LOWEST = 999
_LEAST_COLUMNS = 80
"""No terminal of unknown size is narrower: what is drawn there is not made for it."""
_INDEX = "\x1bD"
_RESET = f"{_CSI}0m"
_COLORS = {
    Tone.FAINT: "2",
    Tone.TITLE: "1",
    Tone.GOOD: "32",
    Tone.WARN: "33",
    Tone.BAD: "1;31",
    Tone.BUSY: "36",
}
_OTHER_WIDTH = re.compile("[^ -~█░✓✗·…⏎]")
_PLAIN = {Tone.FAINT: "2", Tone.TITLE: "1", Tone.BAD: "1"}


class FrameWriter:
    """Turns rows into the bytes that make them of the last ones drawn."""

    def __init__(self, *, color: bool, encoding: str = "utf-8") -> None:
        """Nothing is on the screen yet."""
        self._codes = _COLORS if color else _PLAIN
        self._encoding = encoding
        self._drawn: list[Row] = []
        self._size: Size | None = None
        self._drawn_all_at: float | None = None

    def frame(self, rows: Sequence[Row], size: Size | None, now: float) -> bytes:
        """Return a frame, empty where nothing changed. `size` is None where it is unknown."""
        whole = self._drawn_all_at is None or size != self._size or now - self._drawn_all_at >= REDRAW_S
        parts = [_BEGIN if self.begun else self._scroll_out(size) + _BEGIN]
        if whole:
            parts += [self._whole(number, row, size) for number, row in enumerate(rows)]
            parts.append(f"{_at(len(rows))}{_CSI}J")
            self._drawn_all_at = now
        else:
            changes = self._changes(rows, size)
            if not changes:
                return b""
            parts.append(changes)
        parts.append(_PARK_UNSIZED if size is None else f"{_at(max(size.rows - PARKING_ROWS, 0))}{_CSI}J")
        parts.append(_END)
        self._drawn, self._size = list(rows), size
        return self._encode("".join(parts))

    @property
    def begun(self) -> bool:
        """Whether there is a frame on the screen."""
        return self._drawn_all_at is not None

    def leave(self) -> bytes:
        """Return what puts the cursor under the last frame, for lines to follow; empty if there was none."""
        if self._drawn_all_at is None:
            return b""
        used = len(self._drawn)
        self._drawn, self._drawn_all_at = [], None
        return self._encode(f"{_BEGIN}{_at(used)}{_CSI}J{_END}")

    def _scroll_out(self, size: Size | None) -> str:
        """What stood on the screen goes to where a person can scroll back to it."""
        rows = MOST_ROWS if size is None else size.rows
        return f"{_CSI}{_LOWEST};1H{_INDEX * rows}"

    @staticmethod
    def _clear_after(row: Row, size: Size | None) -> str:
        """What clears a row behind its text. Where the screen may end before, so has its last column to be:
        what the screen has no room for was written there, one character over the other.
        """
        may_be_cut = size is None and bool(row) and row[-1].column + len(row[-1].text) >= _LEAST_COLUMNS
        return f"{_CSI}K{_CSI}{_LOWEST}G{_CSI}K" if may_be_cut else f"{_CSI}K"

    def _row(self, row: Row) -> str:
        parts: list[str] = []
        column, certain = 0, True
        for cell in row:
            if not certain:
                # The terminal may take what stands before for wider or narrower than we do.
                parts.append(f"{_CSI}{cell.column + 1}G")
            elif cell.column > column:
                parts.append(" " * (cell.column - column))
            parts.append(self._toned(cell))
            certain = _is_certain(cell.text)
            column = cell.column + len(cell.text)
        return "".join(parts)

    def _toned(self, cell: Cell) -> str:
        code = self._codes.get(cell.tone)
        return cell.text if code is None else f"{_CSI}{code}m{cell.text}{_RESET}"

    def _changes(self, rows: Sequence[Row], size: Size | None) -> str:
        pairs = zip_longest(self._drawn, rows, fillvalue=BLANK)
        return "".join(self._change(number, old, new, size) for number, (old, new) in enumerate(pairs))

    def _change(self, number: int, old: Row, new: Row, size: Size | None) -> str:
        if old == new:
            return ""
        cells = self._changed_cells(number, old, new, size)
        if cells is not None:
            return cells
        return self._whole(number, new, size)

    def _whole(self, number: int, row: Row, size: Size | None) -> str:
        # Where widths are not certain it is cleared first: what is left over is not found by counting.
        clear = "" if all(_is_certain(cell.text) for cell in row) else f"{_CSI}2K"
        return f"{_at(number)}{clear}{self._row(row)}{self._clear_after(row, size)}"

    def _changed_cells(self, number: int, old: Row, new: Row, size: Size | None) -> str | None:
        """Return what changes single cells, or None where the whole row has to be drawn.

        Only of some text it is certain how much of the screen it takes.
        """
        if len(old) != len(new):
            return None
        parts: list[str] = []
        for index, (before, after) in enumerate(zip(old, new, strict=True)):
            if before == after:
                continue
            if before.column != after.column or not (_is_certain(before.text) and _is_certain(after.text)):
                return None
            is_last = index == len(new) - 1
            left_over = (
                self._clear_after(new, size) if is_last else " " * (len(before.text) - len(after.text))
            )
            parts.append(f"{_at(number, after.column)}{self._toned(after)}{left_over}")
        return "".join(parts)

    def _encode(self, text: str) -> bytes:
        return text.encode(self._encoding, errors="replace")


def _is_certain(text: str) -> bool:
    """Tell whether every terminal takes as many columns for `text` as it has characters."""
    return text.isascii() or _OTHER_WIDTH.search(text) is None


def _at(row: int, column: int = 0) -> str:
    return f"{_CSI}{row + 1};{column + 1}H"
