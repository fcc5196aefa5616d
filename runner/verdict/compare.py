"""The arithmetic of a comparison, over arrays: the leading axis is that of simulated runs.

A reproduction keeps the problems and draws fresh samples, so only the variance of samples within their
problem counts. With w the mean over problems of one sample's variance, the mean of k samples of n problems
has the variance w/(n k).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, inf
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from runner.verdict.model import Method, VarianceSource, VerdictSettings
from runner.verdict.permutation import permutation_p

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_COIN_FLIP_VARIANCE = 0.25
"""One imagined problem is added to every estimate of w, a coin flip, the most uncertain there is. Without it
three problems that were always solved would have no variance and be "reproduced" with certainty; with it they
have an interval of 17 points each way. Of 100 problems it adds 4 %, of 30 problems 1 %, to the variance."""


@dataclass(frozen=True)
class Side:
    """The samples of one side: `scores` is [batch, problem, sample]."""

    scores: Floats

    @property
    def samples(self) -> int:
        """Samples a problem."""
        return int(self.scores.shape[-1])

    @property
    def problems(self) -> int:
        """How many problems."""
        return int(self.scores.shape[-2])

    @property
    def mean(self) -> Floats:
        """The mean over all samples, one for each batch entry."""
        return np.asarray(self.scores.mean(axis=(-2, -1)))

    @property
    def right(self) -> Ints:
        """How many samples of each problem are right (score 1)."""
        return np.asarray((self.scores >= 1.0).sum(axis=-1), dtype=np.int64)

    @property
    def is_right_or_wrong(self) -> bool:
        """Whether every score is 0 or 1."""
        return bool(np.all((self.scores == 0.0) | (self.scores == 1.0)))

    def outcome_variance(self) -> Floats | None:
        """Return w, the mean of k p(1-p)/(k-1) over problems and a coin flip; None for a single sample."""
        if self.samples < 2:
            return None
        variances = self.scores.var(axis=-1, ddof=1)
        return np.asarray((variances.sum(axis=-1) + _COIN_FLIP_VARIANCE) / (self.problems + 1))


@dataclass(frozen=True)
class Pair:
    """One data set: the run's samples, and the published ones as far as they are known."""

    run: Side
    published_mean: Floats
    """Over all published samples that count here."""
    published_samples: int
    rows: Side | None = None
    """Published rows; they may be fewer samples than `published_samples`."""
    assumed_variance: Any = None
    """w from aggregates, for the case that neither side has two samples of a problem."""

    @property
    def is_exact(self) -> bool:
        """Whether the permutation test applies: rows of all published samples, and nothing but 0 and 1."""
        return (
            self.rows is not None
            and self.rows.samples == self.published_samples
            and self.run.is_right_or_wrong
            and self.rows.is_right_or_wrong
        )

    def variances(self) -> tuple[tuple[Floats, VarianceSource], tuple[Floats, VarianceSource]]:
        """Return w of the run and of the published side: its own where it can, else the other's, else
        assumed."""
        run = self.run.outcome_variance()
        published = None if self.rows is None else self.rows.outcome_variance()
        if run is None and published is None:
            if self.assumed_variance is None:
                raise ValueError(
                    "a single sample, no published rows and no published max@k: no variance is known"
                )
            assumed = np.asarray(self.assumed_variance, float), VarianceSource.ASSUMED
            return assumed, assumed
        return _own_or(run, published), _own_or(published, run)


@dataclass(frozen=True)
class Estimate:
    """A difference of means with its standard errors; problems weigh alike, in whichever data set they
    are."""

    problems: int
    run_mean: Floats
    published_mean: Floats
    run_standard_error: Floats
    published_standard_error: Floats

    @property
    def difference(self) -> Floats:
        """This run's mean minus the published one."""
        return self.run_mean - self.published_mean

    @property
    def standard_error(self) -> Floats:
        """Of the difference."""
        return np.asarray(np.hypot(self.run_standard_error, self.published_standard_error))

    def interval(self, level: float) -> tuple[Floats, Floats]:
        """Return the normal interval of the difference."""
        half = two_sided_z(level) * self.standard_error
        return self.difference - half, self.difference + half


def estimate(pairs: Sequence[Pair]) -> Estimate:
    """Pool data sets by problems: every problem counts once."""
    problems = sum(pair.run.problems for pair in pairs)
    run_mean: Any = 0.0
    published_mean: Any = 0.0
    run_variance: Any = 0.0
    published_variance: Any = 0.0
    for pair in pairs:
        share = pair.run.problems / problems
        (run_w, _), (published_w, _) = pair.variances()
        run_mean = run_mean + share * pair.run.mean
        published_mean = published_mean + share * pair.published_mean
        run_variance = run_variance + share**2 * run_w / (pair.run.problems * pair.run.samples)
        published_variance = published_variance + share**2 * published_w / (
            pair.run.problems * pair.published_samples
        )
    return Estimate(
        problems=problems,
        run_mean=np.asarray(run_mean),
        published_mean=np.asarray(published_mean),
        run_standard_error=np.sqrt(run_variance),
        published_standard_error=np.sqrt(published_variance),
    )


def p_value(pairs: Sequence[Pair]) -> tuple[Floats, Method]:
    """Return the two-sided p that nothing differs: exact where rows allow it, else normal.

    Pooled data sets are permuted together if they have equal samples (a whole number then decides); scores
    other than 0 and 1 take the normal way, since their sums have no common step.
    """
    shapes = {(pair.run.samples, pair.published_samples) for pair in pairs}
    if len(shapes) == 1 and all(pair.is_exact for pair in pairs):
        ((run_samples, published_samples),) = shapes
        run_right = np.concatenate([pair.run.right for pair in pairs], axis=-1)
        published_right = np.concatenate(
            [pair.rows.right for pair in pairs if pair.rows is not None], axis=-1
        )
        p = permutation_p(run_right, run_right + published_right, run_samples, published_samples)
        return p, Method.PERMUTATION
    found = estimate(pairs)
    return np.asarray(2 * ndtr(-np.abs(found.difference) / found.standard_error)), Method.NORMAL


def holm(p: Floats) -> Floats:
    """Return p adjusted by Holm's step-down procedure over the last axis.

    (Holm 1979, A simple sequentially rejective multiple test procedure.)
    """
    order = np.argsort(p, axis=-1, kind="stable")
    count = p.shape[-1]
    stepped = np.take_along_axis(p, order, axis=-1) * (count - np.arange(count))
    stepped = np.minimum(np.maximum.accumulate(stepped, axis=-1), 1.0)
    adjusted: Floats = np.empty_like(stepped)
    np.put_along_axis(adjusted, order, stepped, axis=-1)
    return np.asarray(adjusted)


def within_margin(found: Estimate, settings: VerdictSettings) -> NDArray[np.bool_]:
    """Say whether the interval of the difference lies within the margin."""
    low, high = found.interval(settings.interval_level)
    return np.asarray((low >= -settings.margin) & (high <= settings.margin))


@dataclass(frozen=True)
class Spread:
    """What decides how precise a data set's comparison is, known before or after the run."""

    problems: int
    run_variance: float
    published_variance: float
    published_samples: float


def standard_error_at(spreads: Sequence[Spread], run_samples: float) -> float:
    """Return the standard error of the pooled difference with so many samples a problem."""
    run, published = _variance_parts(spreads)
    return float(np.sqrt(run / run_samples + published))


def smallest_difference(standard_error: float, settings: VerdictSettings, *, family: int = 1) -> float:
    """Return the difference that `differs` finds with the settings' power.

    `family` data sets share alpha; Holm's strictest step is taken, so that it holds whatever the others show.
    """
    return (two_sided_z(1 - settings.alpha / family) + NormalDist().inv_cdf(settings.power)) * standard_error


def samples_to_decide(spreads: Sequence[Spread], settings: VerdictSettings) -> tuple[int | None, int]:
    """Return how many samples a problem would have equal rates called reproduced, with the settings' power.

    First of this run alone, with the published ones as they are (None: no number would), then of both sides.
    That is where margin = (z of the interval + z of the power) standard errors; a difference as large as the
    margin is then called `differs` about as often.
    """
    z = two_sided_z(settings.interval_level) + two_sided_z(settings.power)
    variance = (settings.margin / z) ** 2
    run, published = _variance_parts(spreads)
    both = run + sum(
        (spread.problems / _problems(spreads)) ** 2 * spread.published_variance / spread.problems
        for spread in spreads
    )
    left = variance - published
    alone = run / left if left > 0 else inf
    return (None if alone == inf else _at_least_one(alone)), _at_least_one(both / variance)


def two_sided_z(level: float) -> float:
    """Return z with `level` of a normal distribution between -z and z."""
    return NormalDist().inv_cdf((1 + level) / 2)


def _variance_parts(spreads: Sequence[Spread]) -> tuple[float, float]:
    """Return the run's variance for one sample a problem, and the published side's as it is."""
    total = _problems(spreads)
    run = published = 0.0
    for spread in spreads:
        weight = spread.problems / total**2
        run += weight * spread.run_variance
        published += weight * spread.published_variance / spread.published_samples
    return run, published


def _problems(spreads: Sequence[Spread]) -> int:
    return sum(spread.problems for spread in spreads)


def _at_least_one(samples: float) -> int:
    return max(1, ceil(samples - 1e-9))


def _own_or(own: Floats | None, other: Floats | None) -> tuple[Floats, VarianceSource]:
    if own is not None:
        return own, VarianceSource.OWN_SAMPLES
    if other is None:
        raise ValueError("neither side has a variance")
    return other, VarianceSource.OTHER_SIDE
