"""Which rows the table shows, and in which order. Pure."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from runner.protocol.score import Termination
from runner.views.watch.rows import Outcome, Row
from runner.views.watch.search import TextSearch

_OUTCOME_PLACE = {outcome: place for place, outcome in enumerate(Outcome)}


class Column(str, Enum):
    """A column of the table, by its heading."""

    OUTCOME = "state"
    DATASET = "data set"
    PROBLEM = "problem"
    SAMPLE = "sample"
    TERMINATION = "termination"
    SCORE = "score"
    TURNS = "turns"
    TOKENS = "tokens"
    CONTEXT = "context"
    ELAPSED = "elapsed"
    LAST = "last command, or prediction = gold"


@dataclass(frozen=True)
class Order:
    """By which column, and whether from the largest down."""

    column: Column = Column.OUTCOME
    descending: bool = False

    def by_next(self, columns: tuple[Column, ...], step: int) -> "Order":
        """The order by the column `step` further among those that are shown."""
        place = columns.index(self.column) if self.column in columns else -1
        return Order(columns[(place + step) % len(columns)])


@dataclass(frozen=True)
class Filter:
    """What rows must be to be shown; None lets all pass."""

    dataset: str | None = None
    outcome: Outcome | None = None
    termination: Termination | None = None
    search: TextSearch | None = None

    @property
    def lets_all_pass(self) -> bool:
        """Whether nothing is filtered."""
        return self == Filter()

    def passes(self, row: Row) -> bool:
        """Say whether a row is shown."""
        return (
            (self.dataset is None or row.key.dataset == self.dataset)
            and (self.outcome is None or row.outcome is self.outcome)
            and (self.termination is None or row.termination is self.termination)
            and (self.search is None or self.search.matches(row))
        )


def ordered(rows: Iterable[Row], order: Order, now: float) -> list[Row]:
    """Return rows in order; equal ones stay in the profile's, also where the order is reversed."""
    natural = sorted(rows, key=_natural)
    return sorted(natural, key=_sort_key(order.column, now), reverse=order.descending)


def _natural(row: Row) -> tuple[tuple[int, int], str, int]:
    return (row.problem.place, row.key.problem_id, row.key.sample)


def _sort_key(column: Column, now: float) -> Callable[[Row], Any]:
    """What rows are compared by; what is not there yet counts as less than anything."""
    keys: dict[Column, Callable[[Row], Any]] = {
        Column.OUTCOME: lambda row: _OUTCOME_PLACE[row.outcome],
        Column.DATASET: lambda row: row.problem.place[0],
        Column.PROBLEM: lambda row: row.key.problem_id,
        Column.SAMPLE: lambda row: row.key.sample,
        Column.TERMINATION: lambda row: "" if row.termination is None else row.termination.value,
        Column.SCORE: lambda row: -1.0 if row.score is None else row.score,
        Column.TURNS: lambda row: row.turns,
        Column.TOKENS: lambda row: row.generated_tokens,
        Column.CONTEXT: lambda row: row.context_tokens,
        Column.ELAPSED: lambda row: -1.0 if (elapsed_s := row.elapsed_at(now)) is None else elapsed_s,
        Column.LAST: lambda row: row.prediction or row.doing,
    }
    return keys[column]
