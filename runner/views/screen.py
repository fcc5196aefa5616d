"""Which panels a screen holds and how many rows each gets."""

from dataclasses import dataclass, replace

from runner.views import panels, tables
from runner.views.cells import BLANK, Row
from runner.views.panels import View

WIDE_COLUMNS = 112
"""From here on names and answers get more room."""
MOST_COLUMNS = 250
UNKNOWN_COLUMNS = 200
"""What is written where the width is unknown: the terminal cuts it off, beyond it is only more to write."""
UNKNOWN_ROWS = 57
MOST_ROWS = 60
LEAST_ROWS = 8
PARKING_ROWS = 2
"""Left free below a frame of known size: the cursor waits there, and its line end scrolls nothing."""

_FEW_ENDED, _FEW_ERRORS, _FEW_ENGINES, _FEW_DATASETS = 3, 2, 8, 6
_FEW_NODES = 8
_FIRST_ENDED, _FIRST_ERRORS = 3, 2
_FEW_RUNNING = 4
_MOST_ENDED, _MOST_ERRORS = 10, 5
_HEAD = 1


@dataclass(frozen=True)
class Size:
    """A terminal's size in cells, or None where it does not tell (`docker compose up`)."""

    columns: int
    rows: int


def compose(view: View, size: Size | None) -> list[Row]:
    """Return the rows of a frame, from the top.

    Without a size the long tables are the last: the terminal cuts them off where it ends. With one, rows are
    dealt out so that each panel has a few and the running trajectories the most.
    """
    if size is None:
        return _unsized(view, UNKNOWN_COLUMNS)
    width = min(size.columns - 1, MOST_COLUMNS)
    sized = replace(view, wide=size.columns >= WIDE_COLUMNS)
    return _sized(sized, max(width, 1), max(min(size.rows, MOST_ROWS) - PARKING_ROWS, LEAST_ROWS))


def _top(view: View, width: int) -> list[Row]:
    rows = panels.header(view, width)
    rows += _spaced(panels.briefing(view, width))
    if view.state.tallies:
        rows += [BLANK, *panels.datasets(view, width, _FEW_DATASETS)]
        rows += [BLANK, *panels.figures(view, width)]
    return rows


def _unsized(view: View, width: int) -> list[Row]:
    """Deal out rows that may or may not be seen: a terminal of 24 shows about 20 of them.

    So the first of them are few of everything. What runs comes next, then what the lines above sum up.
    """
    rows = _top(view, width)
    rows += panels.hints(view, width)[:1]
    rows += _spaced(tables.ended_table(view, width, _HEAD + _FIRST_ENDED))
    rows += tables.error_table(view, width, _HEAD + _FIRST_ERRORS)[_HEAD:]
    rest = _spaced(tables.node_table(view, width, _HEAD + _FEW_NODES))
    rest += _spaced(tables.engine_table(view, width, _HEAD + _FEW_ENGINES))
    rest += _spaced(panels.hints(view, width)[1:])
    rows += _spaced(tables.running_table(view, width, max(UNKNOWN_ROWS - len(rows) - len(rest) - 1, 2)))
    return [*rows, *rest][:UNKNOWN_ROWS]


def _sized(view: View, width: int, height: int) -> list[Row]:
    state = view.state
    rows = _top(view, width)
    hints = panels.hints(view, width)
    nodes = _spaced(tables.node_table(view, width, max(height // 5, 2)))
    engines = _spaced(tables.engine_table(view, width, max(height // 4, 2)))
    left = height - len(rows) - len(hints) - _with_head(_FEW_RUNNING) - _with_head(_FEW_ENDED)
    if len(nodes) > left:
        nodes = []  # the line of all engines together stays
    if len(nodes) + len(engines) > left:
        engines = []
    rows += hints + nodes + engines
    left = height - len(rows)
    want_running = _with_head(len(state.running))
    want_ended = _with_head(min(len(state.last_ended), _MOST_ENDED))
    want_errors = _with_head(min(len(state.last_errors) + len(view.log_errors), _MOST_ERRORS))
    running = min(want_running, _FEW_RUNNING + 2, left)
    errors = _granted(min(want_errors, _FEW_ERRORS + 2), left - running)
    ended = _granted(min(want_ended, _FEW_ENDED + 2), left - running - errors)
    running = _granted(want_running, left - errors - ended)
    ended = _granted(want_ended, left - running - errors)
    errors = _granted(want_errors, left - running - ended)
    rows += _spaced(tables.ended_table(view, width, ended - 1))
    rows += _spaced(tables.error_table(view, width, errors - 1))
    rows += _spaced(tables.running_table(view, width, running - 1))
    return rows[:height]


def _with_head(count: int) -> int:
    """Return how many rows a panel wants: a blank one, its head, its own."""
    return 2 + count if count else 0


def _granted(wanted: int, left: int) -> int:
    """Return what a panel gets of the rows that are left; a head without a row is none."""
    granted = min(wanted, left)
    return granted if granted >= 3 else 0


def _spaced(rows: list[Row]) -> list[Row]:
    return [BLANK, *rows] if rows else []
