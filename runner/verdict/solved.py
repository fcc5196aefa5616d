"""max@k and pass@k, each with the range it has if nothing differs.

Rates plugged in as if they were known give ranges far too narrow (they missed a third of the time for 30
problems), so there are two other ways. With published rows: the permutation distribution of this run's
figure, exact given how many samples of a problem were right on both sides. Without: every problem's rate has
a Beta posterior from this run's own samples, and the range is that of a fresh evaluation of the same
problems.
"""

from dataclasses import dataclass
from math import comb, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaln, expit, logit

from runner.verdict.beta import fit_mean_and_variance
from runner.verdict.compare import Side
from runner.verdict.permutation import (
    central_interval,
    counts_of,
    solved_parts,
    solved_shares,
    success_distributions,
    sum_distribution,
)

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_GAUSS_HERMITE = ((1 / 6, -sqrt(3.0)), (2 / 3, 0.0), (1 / 6, sqrt(3.0)))
"""Weights and steps, in standard deviations: three points with the first five moments of a normal
distribution."""


@dataclass(frozen=True)
class Range:
    """Lower and upper end of a figure, one for each batch entry."""

    low: Floats
    high: Floats


def shown_ks(limit: int) -> list[int]:
    """Return which k up to `limit` are shown: 2, 3, 4, powers of two beyond, and the limit itself."""
    powers = (1 << exponent for exponent in range(1, limit.bit_length()))
    return sorted({k for k in (3, *powers, limit) if 2 <= k <= limit})


def pass_at_k(side: Side, k: int) -> Floats:
    """Return the unbiased estimate of pass@k (Chen et al. 2021); max@k where k is all samples."""
    return np.asarray(solved_shares(side.samples, k)[side.right].mean(axis=-1))


def permutation_range(run: Side, rows: Side, k: int, level: float) -> Range:
    """Return the range of this run's pass@k over all assignments of samples to sides."""
    values, whole = solved_parts(run.samples, k)
    table = success_distributions(run.samples, rows.samples)
    distribution = sum_distribution(values, table, counts_of(run.right + rows.right, table.shape[0]))
    return _range(distribution, level, whole * run.problems)


def posterior_range(run: Side, fresh_samples: int, k: int, level: float) -> Range:
    """Return the range of pass@k of an evaluation with `fresh_samples`, given this run's outcomes alone.

    Rates are Beta over problems with this run's mean and variance within problems; a problem with c right of
    n has the posterior Beta(a + c, b + n - c), and its fresh right samples are beta-binomial.
    """
    w = run.outcome_variance()
    if w is None:
        raise ValueError("a single sample a problem has no variance to fit")
    values, whole = solved_parts(fresh_samples, k)
    counts = counts_of(run.right, run.samples + 1)
    mixture: Any = 0.0
    for weight, mean in _plausible_means(run, w):
        a, b = fit_mean_and_variance(mean, w)
        table = _fresh_right(a, b, run.samples, fresh_samples)
        mixture = mixture + weight * sum_distribution(values, table, counts)
    return _range(mixture, level, whole * run.problems)


def _plausible_means(run: Side, w: Floats) -> list[tuple[float, Floats]]:
    """Return three weighted values of the mean rate that stand for its uncertainty.

    Where rates hardly vary between problems, each problem's posterior is little but this mean, and a mean
    taken for known would be a plugged-in rate again.
    """
    draws = run.samples * run.problems
    mean = (run.right.sum(axis=-1) + 0.5) / (draws + 1)
    total = mean * (1 - mean)
    between = np.maximum(total - w, 0.0)
    sd = np.sqrt((between + w / run.samples) / run.problems) / total
    return [(weight, np.asarray(expit(logit(mean) + step * sd))) for weight, step in _GAUSS_HERMITE]


def _fresh_right(a: Floats, b: Floats, samples: int, fresh: int) -> Floats:
    """Return [batch, c, d]: the chance of d right of `fresh` samples where c of `samples` were right."""
    a, b = np.atleast_1d(a)[:, None, None], np.atleast_1d(b)[:, None, None]
    seen = np.arange(samples + 1)[None, :, None]
    right = np.arange(fresh + 1)[None, None, :]
    ways: Any = np.asarray([comb(fresh, one) for one in range(fresh + 1)], dtype=float)
    a, b = a + seen, b + samples - seen
    return np.asarray(ways * np.exp(betaln(a + right, b + fresh - right) - betaln(a, b)))


def _range(distribution: Floats, level: float, whole: int) -> Range:
    low, high = central_interval(distribution, level)
    return Range(low / whole, high / whole)
