"""Columns that fit a width, and a row's cells in them. Everything shown is `Text`, never markup."""

from collections.abc import Callable
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from runner.views.watch.figures import count_text, duration_text
from runner.views.watch.order import Column, Order
from runner.views.watch.palette import OUTCOME_STYLES
from runner.views.watch.rows import SCORED, Outcome, Row, shown

MARK_CELLS = 2
"""At the left: the mark of the row that the cursor is on, since colour alone must not say it."""
_GAP = " "
_LEAST_LAST_CELLS = 16


@dataclass(frozen=True)
class PlacedColumn:
    """A column with its width in cells."""

    column: Column
    cells: int
    to_the_right: bool = False


_WIDTHS: dict[Column, tuple[int, int, bool]] = {
    # least, most, and whether they are numbers, which stand to the right
    Column.OUTCOME: (10, 10, False),
    Column.DATASET: (8, 10, False),
    Column.PROBLEM: (18, 32, False),
    Column.SAMPLE: (4, 6, True),
    Column.TERMINATION: (12, 23, False),
    Column.SCORE: (5, 5, True),
    Column.TURNS: (5, 5, True),
    Column.TOKENS: (6, 6, True),
    Column.CONTEXT: (7, 7, True),
    Column.ELAPSED: (7, 7, True),
}
_HEADINGS = {Column.SAMPLE: "smp"}
_NARROW_CELLS, _WIDE_CELLS = 110, 170
"""From the one width to the other, columns grow from their least to their most."""
_DROPPED_FIRST = (Column.CONTEXT, Column.TERMINATION, Column.TOKENS, Column.DATASET)
"""What a narrow terminal goes without; the trajectory's own page has all of it."""


def placed_columns(width_cells: int, *, several_datasets: bool) -> tuple[PlacedColumn, ...]:
    """Return the columns that fit, each with its width; the last one takes what is left."""
    growth = min(max((width_cells - _NARROW_CELLS) / (_WIDE_CELLS - _NARROW_CELLS), 0.0), 1.0)
    columns = [column for column in Column if column is not Column.LAST]
    if not several_datasets:
        columns.remove(Column.DATASET)
    placed = [_placed(column, growth) for column in columns]
    for dropped in _DROPPED_FIRST:
        if _left(placed, width_cells) >= _LEAST_LAST_CELLS:
            break
        placed = [one for one in placed if one.column is not dropped]
    return (*placed, PlacedColumn(Column.LAST, max(_left(placed, width_cells), 1)))


def _left(placed: list[PlacedColumn], width_cells: int) -> int:
    """Return the cells that are left for the last column."""
    taken = sum(one.cells + len(_GAP) for one in placed)
    return width_cells - MARK_CELLS - len(_GAP) - taken


def _placed(column: Column, growth: float) -> PlacedColumn:
    least, most, to_the_right = _WIDTHS[column]
    return PlacedColumn(column, least + int((most - least) * growth), to_the_right)


def heading_text(columns: tuple[PlacedColumn, ...], order: Order) -> Text:
    """Return the headings, an arrow at the one that rows are sorted by."""
    text = Text(" " * MARK_CELLS, no_wrap=True)
    for one in columns:
        heading = one.column.value
        if len(heading) > one.cells:
            heading = _HEADINGS.get(one.column, heading)
        sorted_by = one.column is order.column
        if sorted_by:
            arrow = "▼" if order.descending else "▲"
            heading = f"{heading[: max(one.cells - 1, 0)]}{arrow}"
        text.append(_fitted(heading, one), style="bold underline" if sorted_by else "bold")
        text.append(_GAP)
    return text


def row_text(row: Row, columns: tuple[PlacedColumn, ...], now: float) -> Text:
    """Return one row's cells behind the room for the cursor's mark."""
    text = Text(" " * MARK_CELLS, no_wrap=True)
    for one in columns:
        if one.column is Column.LAST:
            text.append_text(_last(row, one.cells))
        else:
            text.append(_fitted(_cell(row, one.column, now), one), style=_style(row, one.column))
        text.append(_GAP)
    return text


def column_at(columns: tuple[PlacedColumn, ...], x: int) -> Column | None:
    """Return the column below a click."""
    edge = MARK_CELLS
    for one in columns:
        edge += one.cells + len(_GAP)
        if MARK_CELLS <= x < edge:
            return one.column
    return None


def _cell(row: Row, column: Column, now: float) -> str:
    text = _CELLS.get(column)
    return duration_text(row.elapsed_at(now)) if text is None else text(row)


_CELLS: dict[Column, Callable[[Row], str]] = {
    Column.OUTCOME: lambda row: row.outcome.value,
    Column.DATASET: lambda row: shown(row.key.dataset),
    Column.PROBLEM: lambda row: shown(row.key.problem_id),
    Column.SAMPLE: lambda row: str(row.key.sample),
    Column.TERMINATION: lambda row: "" if row.termination is None else row.termination.value,
    Column.SCORE: lambda row: "" if row.score is None else f"{row.score:g}",
    Column.TURNS: lambda row: str(row.turns) if row.attempt else "",
    Column.TOKENS: lambda row: count_text(row.generated_tokens) if row.attempt else "",
    Column.CONTEXT: lambda row: count_text(row.context_tokens) if row.attempt else "",
}


def _last(row: Row, cells: int) -> Text:
    if row.outcome in SCORED:
        return Text(set_cell_size(_prediction_and_gold(row), cells))
    return Text(set_cell_size(row.doing, cells), style="dim" if row.outcome is Outcome.WAITING else "")


def _prediction_and_gold(row: Row) -> str:
    """Return both; a sign between them only where the one was held against the other."""
    prediction, gold = row.prediction or "no answer", shown(row.problem.gold)
    if row.outcome is Outcome.RIGHT:
        return f"{prediction} = {gold}"
    if row.outcome is Outcome.WRONG and prediction != gold:
        return f"{prediction} ≠ {gold}"
    return f"{prediction} (gold {gold})"


def _style(row: Row, column: Column) -> str:
    if column in {Column.OUTCOME, Column.SCORE}:
        return OUTCOME_STYLES[row.outcome]
    return OUTCOME_STYLES[Outcome.WAITING] if row.outcome is Outcome.WAITING else ""


def _fitted(text: str, column: PlacedColumn) -> str:
    length = cell_len(text)
    if length > column.cells:
        return set_cell_size(text, column.cells - 1) + "…" if column.cells > 1 else text[:1]
    padding = " " * (column.cells - length)
    return padding + text if column.to_the_right else text + padding
