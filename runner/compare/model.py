"""What a comparison of runs is made of. Frozen records, and what of them a file holds."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.engines.base import TrajectoryKey
from runner.events import RunStarted, Terminated
from runner.rescore.files import ScoreKey
from runner.results.figures import significant
from runner.state import RunState

POOLED = "all problems"
RECORDED = "recorded"


@dataclass(frozen=True)
class Side:
    """One run with the scores that are compared: None where a scorer failed, absent where there is none."""

    path: Path
    started: RunStarted
    state: RunState
    scores: Mapping[ScoreKey, float | None]
    at_work: bool = False

    @property
    def name(self) -> str:
        """The run's id."""
        return self.started.run_id

    def prediction(self, key: TrajectoryKey) -> str:
        """What the run answered."""
        end = self._end(key)
        return "" if end is None else end.prediction

    def termination(self, key: TrajectoryKey) -> str:
        """How a trajectory ended."""
        end = self._end(key)
        return "" if end is None else end.termination.value

    def _end(self, key: TrajectoryKey) -> Terminated | None:
        trajectory = self.state.trajectories.get(key)
        return None if trajectory is None else trajectory.terminated


@dataclass(frozen=True)
class ScorePair:
    """One problem and sample, as both runs scored it."""

    key: TrajectoryKey
    baseline: float
    other: float

    @property
    def difference(self) -> float:
        """The other's score minus the baseline's."""
        return self.other - self.baseline


@dataclass(frozen=True)
class Paired:
    """What of one data set is in both runs, and how many trajectories are not."""

    dataset: str
    pairs: tuple[ScorePair, ...]
    left_out: int
    """Planned by both, without a score in at least one."""


@dataclass(frozen=True)
class ErrorOfDifference:
    """A standard error of a difference and its 95 % interval; None where it cannot be told."""

    standard_error: float | None
    interval: tuple[float, float] | None

    def as_document(self) -> dict[str, Any]:
        """Return it for a file."""
        return {
            "standard_error": self.standard_error,
            "interval": None if self.interval is None else list(self.interval),
        }


@dataclass(frozen=True)
class Difference:
    """One data set, or all of them pooled: the other run minus the baseline. Problems weigh alike."""

    name: str
    problems: int
    pairs: int
    left_out: int
    baseline_mean: float
    other_mean: float
    same_problems: ErrorOfDifference
    new_problems: ErrorOfDifference
    better: int
    """Problems that the other run solves more often."""
    worse: int
    sign_p: float
    permutation_p: float
    permutation_is_exact: bool
    gained: tuple[ScorePair, ...]
    """Wrong in the baseline, right in the other."""
    lost: tuple[ScorePair, ...]

    @property
    def difference(self) -> float:
        """The other's mean minus the baseline's."""
        return self.other_mean - self.baseline_mean

    def as_document(self) -> dict[str, Any]:
        """Return it for a file."""
        figures = {
            "baseline_mean": self.baseline_mean,
            "other_mean": self.other_mean,
            "difference": self.difference,
            "same_problems": self.same_problems.as_document(),
            "new_problems": self.new_problems.as_document(),
            "sign_p": self.sign_p,
            "permutation_p": self.permutation_p,
        }
        return {
            "problems": self.problems,
            "pairs": self.pairs,
            "left_out": self.left_out,
            **significant(figures),
            "permutation_is_exact": self.permutation_is_exact,
            "better": self.better,
            "worse": self.worse,
            "gained": [str(pair.key) for pair in self.gained],
            "lost": [str(pair.key) for pair in self.lost],
        }


@dataclass(frozen=True)
class Setting:
    """Something that is not the same in both runs."""

    name: str
    baseline: str
    other: str


@dataclass(frozen=True)
class RunComparison:
    """One run against the baseline."""

    baseline: Side
    other: Side
    datasets: tuple[Difference, ...]
    pooled: Difference
    pooled_p_adjusted: float
    """The pooled permutation p after Holm, over all runs that are held against the baseline."""
    warnings: tuple[str, ...]
    settings: tuple[Setting, ...]

    @property
    def shown(self) -> tuple[Difference, ...]:
        """The pooled difference, and each data set's where there are several."""
        return (self.pooled, *self.datasets) if len(self.datasets) > 1 else self.datasets

    def as_document(self) -> dict[str, Any]:
        """Return it for a file."""
        return {
            "baseline": self.baseline.name,
            "other": self.other.name,
            "pooled": self.pooled.as_document(),
            "pooled_p_adjusted": significant(self.pooled_p_adjusted),
            "datasets": {one.name: one.as_document() for one in self.datasets},
            "warnings": list(self.warnings),
            "settings": {one.name: [one.baseline, one.other] for one in self.settings},
        }
