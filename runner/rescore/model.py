"""What scoring again is made of: what can go wrong with a scorer, and a trajectory's new score."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from runner.engines.base import TrajectoryKey
from runner.rescore.registry import Scorer


class Failure(str, Enum):
    """Why a scorer has no score for an answer. It is never a 0: what failed is the scorer."""

    TIMEOUT = "timeout"
    MEMORY = "memory"
    CRASH = "crash"
    GOLD = "gold cannot be read"


@dataclass(frozen=True)
class GradeLimits:
    """What one answer may take. A model wrote it, and mathematics can ask for any amount of work."""

    wall_s: float = 10.0
    memory_bytes: int = 2 << 30
    """Of address space, of the whole grader: its libraries take about 0.4 GiB of it."""
    start_s: float = 120.0
    """For the grader to start: its libraries take seconds to import, on a busy machine many."""


@dataclass(frozen=True)
class Grade:
    """A score, or why there is none. `read_*` is what of a text the grader took for mathematics."""

    score: float | None
    method: str
    failure: Failure | None = None
    detail: str = ""
    read_answer: str | None = None
    read_gold: str | None = None


def failed(failure: Failure, detail: str = "") -> Grade:
    """Return the grade of an answer that the grader did not get through."""
    return Grade(None, f"scorer failed: {failure.value}", failure, detail)


@dataclass(frozen=True)
class Rescored:
    """One trajectory with both scores. `answer` is the explicit one, None where there is none."""

    key: TrajectoryKey
    answer: str | None
    gold: str
    recorded: float
    grade: Grade

    @property
    def differs(self) -> bool:
        """Whether the score is another; one without a score is told apart, not counted here."""
        return self.grade.score is not None and self.grade.score != self.recorded


@dataclass(frozen=True)
class Rescoring:
    """All scored trajectories of a run, by one scorer."""

    scorer: Scorer
    versions: Mapping[str, str]
    limits: GradeLimits | None
    rows: Sequence[Rescored]
    unfinished: int
    """Trajectories without a recorded score: they have none here either."""

    @property
    def differences(self) -> list[Rescored]:
        """What the scorer scores otherwise than the run did."""
        return [row for row in self.rows if row.differs]

    @property
    def failures(self) -> list[Rescored]:
        """What the scorer has no score for."""
        return [row for row in self.rows if row.grade.failure is not None]

    @property
    def failure_counts(self) -> dict[str, int]:
        """How often it failed in which way."""
        return dict(Counter(row.grade.failure.value for row in self.rows if row.grade.failure is not None))
