"""Means of scores, what they may be off by, and pass@k: the one place where each is worked out. Pure.

A mean over problems and samples has two standard errors, and they answer two questions:

- **same problems**: fresh samples of the problems at hand. Only the variance of samples within their problem
  counts. That is what a reproduction asks, and what the verdict uses.
- **new problems**: other problems of the same kind. Samples of a problem stand or fall together, so problems
  are the unit, and their means vary between and within (standard errors clustered by problem). That is what a
  statement about a model's ability asks; it is the larger one.

Nothing here needs numpy: displays draw these figures several times a second.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction
from math import comb, sqrt
from statistics import NormalDist

LEVEL = 0.95
"""Of every interval of a mean. (The verdict's differences have 90 %, two one-sided tests at 5 %.)"""
Z = NormalDist().inv_cdf((1 + LEVEL) / 2)
RIGHT = 1.0
"""The least score that counts as solved."""

ScoresByProblem = Mapping[str, Sequence[float]]


class Basis(str, Enum):
    """What an interval of a mean says. Values stand in results files."""

    SAME_PROBLEMS = "fresh samples of the same problems"
    NEW_PROBLEMS = "new problems, clustered by problem"
    INDEPENDENT = "independent trajectories (Wilson)"
    """Where the spread within problems is not known yet: wider, and a hint, never a result."""


@dataclass(frozen=True)
class Interval:
    """A 95 % interval of a mean of scores from 0 to 1, and what it is an interval for."""

    low: float
    high: float
    basis: Basis

    @property
    def is_hint(self) -> bool:
        """Whether it only stands in for one that cannot be told yet."""
        return self.basis is Basis.INDEPENDENT


def mean(values: Iterable[float]) -> float | None:
    """Return the mean; None of nothing."""
    found = list(values)
    return sum(found) / len(found) if found else None


def grouped(scores: Iterable[tuple[str, float]]) -> dict[str, list[float]]:
    """Return scores by problem, from pairs of a problem and a score."""
    found: dict[str, list[float]] = {}
    for problem, score in scores:
        found.setdefault(problem, []).append(score)
    return found


def error_same_problems(scores: ScoresByProblem) -> float | None:
    """Return the standard error of the mean of problems' means, for fresh samples of the same problems.

    None where some problem has fewer than two samples: one draw says nothing about its own spread.
    """
    if not scores or any(len(one) < 2 for one in scores.values()):
        return None
    return sqrt(sum(_variance_of_mean(one) for one in scores.values())) / len(scores)


def error_new_problems(scores: ScoresByProblem) -> float | None:
    """Return the standard error of the mean over all trajectories, clustered by problem.

    (Miller 2024, Adding Error Bars to Evals; with the usual n/(n-1) for few clusters.) None for fewer than
    two problems. With a sample each it is the ordinary standard error.
    """
    clusters, count = len(scores), sum(len(one) for one in scores.values())
    if clusters < 2:
        return None
    middle = sum(sum(one) for one in scores.values()) / count
    spread = sum((sum(one) - len(one) * middle) ** 2 for one in scores.values())
    return sqrt(clusters / (clusters - 1) * spread) / count


def normal_interval(middle: float, error: float, basis: Basis) -> Interval:
    """Return the normal interval, within what a score can be."""
    return Interval(max(middle - Z * error, 0.0), min(middle + Z * error, 1.0), basis)


def wilson_interval(total: float, count: int) -> Interval:
    """Return Wilson's interval of the mean of `count` scores that sum to `total`, as if independent."""
    share, z2 = min(max(total / count, 0.0), 1.0), Z * Z
    middle = (share + z2 / (2 * count)) / (1 + z2 / count)
    half = Z * sqrt(share * (1 - share) / count + z2 / (4 * count**2)) / (1 + z2 / count)
    return Interval(max(middle - half, 0.0), min(middle + half, 1.0), Basis.INDEPENDENT)


def pass_at_k(scores: ScoresByProblem, k: int) -> float | None:
    """Return the unbiased estimate of pass@k: the mean of 1 - C(n-c, k)/C(n, k) over problems.

    (Chen et al. 2021, Evaluating Large Language Models Trained on Code.) None unless every problem has at
    least k samples.
    """
    if k < 1 or not scores or any(len(one) < k for one in scores.values()):
        return None
    total = Fraction(0)
    for one in scores.values():
        right = sum(1 for score in one if score >= RIGHT)
        total += 1 - Fraction(comb(len(one) - right, k), comb(len(one), k))
    return float(total / len(scores))


def _variance_of_mean(scores: Sequence[float]) -> float:
    count, middle = len(scores), sum(scores) / len(scores)
    return sum((score - middle) ** 2 for score in scores) / (count - 1) / count


@dataclass
class _Sums:
    count: int = 0
    total: float = 0.0
    squares: float = 0.0

    @property
    def variance_of_mean(self) -> float:
        if self.count < 2:
            return 0.0
        spread = max(self.squares - self.total**2 / self.count, 0.0)
        return spread / (self.count - 1) / self.count


@dataclass
class RunningMean:
    """The mean of a data set while its trajectories end, one score at a time and without keeping them.

    Every display uses it, so that two of them never show different intervals for the same scores.
    """

    count: int = 0
    total: float = 0.0
    _problems: dict[str, _Sums] = field(default_factory=dict)
    _single: int = 0
    """Problems with one score so far."""

    def add(self, problem: str, score: float) -> None:
        """Take in the score of one more trajectory."""
        self.count += 1
        self.total += score
        sums = self._problems.setdefault(problem, _Sums())
        sums.count += 1
        sums.total += score
        sums.squares += score * score
        self._single += {1: 1, 2: -1}.get(sums.count, 0)

    @property
    def value(self) -> float | None:
        """The mean; None while there is no score."""
        return self.total / self.count if self.count else None

    def interval(self) -> Interval | None:
        """Return its 95 % interval; None while there is no score.

        For fresh samples of the same problems, as in results, where every problem that was scored has two
        samples or more and some problem's samples differ. Until then nothing tells the spread within
        problems, and it is Wilson's for independent trajectories, which is wider.
        """
        middle = self.value
        if middle is None:
            return None
        variance = sum(sums.variance_of_mean for sums in self._problems.values())
        if self._single or variance <= 0.0:
            return wilson_interval(self.total, self.count)
        return normal_interval(middle, sqrt(variance) / len(self._problems), Basis.SAME_PROBLEMS)
