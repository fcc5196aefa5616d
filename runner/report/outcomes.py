"""What became of each trajectory, in the classes that the page shows, and the map of them. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from runner.clean import clean_text
from runner.engines.base import TrajectoryKey
from runner.events import DatasetRecord
from runner.protocol.score import Termination
from runner.report.links import trajectory_link
from runner.state import RunState, TrajectoryState
from runner.statistics import RIGHT

ID_CHARS = 120
"""Of a problem's id as it is shown."""


class Outcome(str, Enum):
    """Who or what decided a trajectory. The three classes of failure never mix: the model was wrong, it hit a
    limit of the protocol, or our own side failed (and there is no score)."""

    RIGHT = "right"
    PARTLY = "partly"
    WRONG = "wrong"
    LIMIT = "limit"
    UNFINISHED = "unfinished"
    NOT_STARTED = "not-started"

    @property
    def sign(self) -> str:
        """What stands in a cell, so that colour is never all there is."""
        return _SIGNS[self]

    @property
    def words(self) -> str:
        """What it says in words."""
        return _WORDS[self]


_SIGNS = {
    Outcome.RIGHT: "",
    Outcome.PARTLY: "/",
    Outcome.WRONG: "×",
    Outcome.LIMIT: "–",
    Outcome.UNFINISHED: "?",
    Outcome.NOT_STARTED: "",
}
_WORDS = {
    Outcome.RIGHT: "right",
    Outcome.PARTLY: "partly right",
    Outcome.WRONG: "wrong",
    Outcome.LIMIT: "limit of the protocol",
    Outcome.UNFINISHED: "no score: our own side failed, or the run stopped",
    Outcome.NOT_STARTED: "never started",
}


@dataclass(frozen=True)
class Cell:
    """One trajectory in the map."""

    sample: int
    outcome: Outcome
    link: str
    label: str


@dataclass(frozen=True)
class Column:
    """One problem in the map: its samples from the first on; `right` of them."""

    problem: str
    right: int
    cells: tuple[Cell, ...]


def outcome_of(trajectory: TrajectoryState | None) -> Outcome:
    """Return the class of a planned trajectory; None is one that never began."""
    if trajectory is None:
        return Outcome.NOT_STARTED
    end = trajectory.terminated
    if end is None:
        return Outcome.UNFINISHED
    if end.score >= RIGHT:
        return Outcome.RIGHT
    if end.score > 0:
        return Outcome.PARTLY
    return Outcome.WRONG if end.termination is Termination.FINAL_ANSWER else Outcome.LIMIT


def heat_map(state: RunState, record: DatasetRecord) -> list[Column]:
    """Return a data set's problems in order, each with its samples."""
    samples = 0 if state.started is None else state.started.samples
    return [_column(state, record, problem.id, samples) for problem in record.problems]


def outcomes_in(columns: list[Column]) -> list[tuple[Outcome, int]]:
    """Return how often each outcome stands in a map, in the order of the classes."""
    found = [cell.outcome for column in columns for cell in column.cells]
    return [(one, found.count(one)) for one in Outcome if one in found]


def _column(state: RunState, record: DatasetRecord, problem: str, samples: int) -> Column:
    cells = tuple(_cells(state, record, problem, samples))
    return Column(problem, sum(1 for cell in cells if cell.outcome is Outcome.RIGHT), cells)


def _cells(state: RunState, record: DatasetRecord, problem: str, samples: int) -> Iterator[Cell]:
    shown = clean_text(problem, keep_lines=False, limit_chars=ID_CHARS)
    for sample in range(samples):
        key = TrajectoryKey(record.name, problem, sample)
        outcome = outcome_of(state.trajectories.get(key))
        label = f"{shown}, sample {sample}: {outcome.words}"
        yield Cell(sample, outcome, "#" + trajectory_link(key), label)
