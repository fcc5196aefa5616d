"""Rows made of cells at fixed columns: what panels return and frames draw.

Our own in the place of rich's tables: a row is compared and redrawn cell by cell, which keeps both the time
of a frame and what it adds to a container's log small, and a cell's place does not depend on how wide a
terminal takes the text before it to be.
"""

from dataclasses import dataclass
from enum import Enum

from rich.cells import cell_len, get_character_cell_size

from runner.clean import clean_text

CUT_SIGN = "…"


class Tone(Enum):
    """What a cell's look means. It never says more than the cell's text does."""

    PLAIN = "plain"
    FAINT = "faint"
    """Labels and what matters less."""
    TITLE = "title"
    GOOD = "good"
    WARN = "warn"
    BAD = "bad"
    BUSY = "busy"
    """What is under way."""


@dataclass(frozen=True)
class Cell:
    """Text at a column (from 0). The text is clean and no wider than its place."""

    column: int
    text: str
    tone: Tone = Tone.PLAIN


Row = tuple[Cell, ...]
BLANK: Row = ()


def shown(text: object, width: int) -> str:
    """Return anybody's text harmless, on one line, and at most `width` terminal cells wide."""
    # A cell holds at most two characters (one and its mark), and what is cut off costs nothing.
    cleaned = clean_text(str(text), keep_lines=False, limit_chars=max(2 * width, 0) + 1)
    return fit(cleaned.replace("\ufe0f", ""), width)


def fit(text: str, width: int) -> str:
    """Return clean text cut to `width` cells, with a sign where something is missing."""
    if width <= 0:
        return ""
    if text.isascii():
        return text if len(text) <= width else text[: width - 1] + CUT_SIGN
    if cell_len(text) <= width:
        return text
    used = 0
    for index, character in enumerate(text):
        used += get_character_cell_size(character)
        if used > width - 1:
            return text[:index] + CUT_SIGN
    return text


class RowMaker:
    """Puts cells behind one another; a limit at the right is kept."""

    def __init__(self, width: int, *, indent: int = 0) -> None:
        """`width` is the whole row's, in cells."""
        self._width = width
        self._column = indent
        self._cells: list[Cell] = []

    @property
    def room(self) -> int:
        """How many cells are left."""
        return self._width - self._column

    def add(self, text: object, width: int | None = None, tone: Tone = Tone.PLAIN) -> "RowMaker":
        """Add text, cut to and followed by the rest of `width`; without one it takes what it needs."""
        return self._place(text, width, tone, right=False)

    def add_right(self, text: object, width: int, tone: Tone = Tone.PLAIN) -> "RowMaker":
        """Add text at the right end of its `width`: figures stand under one another."""
        return self._place(text, width, tone, right=True)

    def gap(self, width: int) -> "RowMaker":
        """Leave cells empty."""
        self._column += width
        return self

    def row(self) -> Row:
        """Return what was added."""
        return tuple(self._cells)

    def _place(self, text: object, width: int | None, tone: Tone, *, right: bool) -> "RowMaker":
        most = self.room if width is None else min(width, self.room)
        written = shown(text, most)
        taken = cell_len(written)
        lead = width - taken if right and width is not None and width <= self.room else 0
        if written:
            self._cells.append(Cell(self._column + lead, written, tone))
        self._column += taken if width is None else width
        return self
