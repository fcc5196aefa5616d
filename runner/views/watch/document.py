"""Long text as lines that fit a width: what a trajectory's page and the panels are made of. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from rich.cells import cell_len, chop_cells

_SOFT_BREAK_SHARE = 3
"""A line breaks at a blank if that leaves no more than a third of it empty."""


@dataclass(frozen=True)
class Line:
    """One line of harmless text in one style; `anchor` marks the place of something to jump to."""

    text: str
    style: str = ""
    indent: int = 0
    anchor: bool = False


def wrapped(lines: Iterable[Line], width_cells: int) -> list[Line]:
    """Return lines of at most `width_cells`; what was broken keeps its indentation."""
    fitted: list[Line] = []
    for line in lines:
        room = max(width_cells - line.indent, 1)
        for number, part in enumerate(_parts(line.text, room)):
            fitted.append(Line(part, line.style, line.indent, line.anchor and number == 0))
    return fitted


def paragraphs(text: str, style: str = "", indent: int = 0) -> list[Line]:
    """Return a text's own lines."""
    return [Line(one, style, indent) for one in text.split("\n")]


def _parts(text: str, width: int) -> list[str]:
    cells = len(text) if text.isascii() else cell_len(text)
    if cells <= width:
        return [text]
    if cells != len(text):
        return chop_cells(text, width)
    parts: list[str] = []
    start = 0
    while len(text) - start > width:
        blank = text.rfind(" ", start, start + width + 1)
        end = blank if blank - start > width - width // _SOFT_BREAK_SHARE else start + width
        parts.append(text[start:end])
        start = end + 1 if end == blank else end
    parts.append(text[start:])
    return parts
