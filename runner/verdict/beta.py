"""The Beta distribution of solve rates over problems, where only aggregates or few samples are known.

All functions take arrays as well as numbers, so that the calibration runs the very code of the verdict.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

_LEAST_CONCENTRATION = 1e-6
_LARGEST_CONCENTRATION = 1e6
"""a + b between these: rates that are all 0 or 1, and rates that are all the same. Both ends occur where
max@k leaves no other reading, and neither may end in an infinity."""
_BISECTIONS = 80


def fit_mean_and_max(mean: ArrayLike, max_at_k: ArrayLike, k: int) -> tuple[Floats, Floats]:
    """Return a and b of the Beta distribution with this mean and this expected max@k.

    E[max@k] = 1 - E[(1-p)^k] = 1 - prod_{i<k} (b+i)/(a+b+i), which for a given mean grows with a + b.
    """
    if k < 2:
        raise ValueError("max@1 is the mean and says nothing about the spread of rates")
    mean, unsolved = np.broadcast_arrays(np.asarray(mean, float), 1.0 - np.asarray(max_at_k, float))
    low = np.full(mean.shape, np.log(_LEAST_CONCENTRATION))
    high = np.full(mean.shape, np.log(_LARGEST_CONCENTRATION))
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        concentration = np.exp(middle)
        failing = np.ones_like(concentration)
        for i in range(k):
            failing = failing * ((1 - mean) * concentration + i) / (concentration + i)
        too_spread = failing > unsolved
        low, high = np.where(too_spread, middle, low), np.where(too_spread, high, middle)
    concentration = np.exp((low + high) / 2)
    return mean * concentration, (1 - mean) * concentration


def outcome_variance(a: ArrayLike, b: ArrayLike) -> Floats:
    """Return w = E[p(1-p)] for rates that are Beta(a, b): the variance of one sample around its problem."""
    a, b = np.asarray(a, float), np.asarray(b, float)
    total = a + b
    return np.asarray(a / total * (b / total) * total / (total + 1))


def fit_mean_and_variance(mean: ArrayLike, w: ArrayLike) -> tuple[Floats, Floats]:
    """Return a and b of the Beta distribution with this mean and this w = E[p(1-p)].

    w = mean (1-mean) s/(s+1) with s = a + b. A w beyond what any spread allows gives rates that are all the
    same.
    """
    mean, w = np.asarray(mean, float), np.asarray(w, float)
    between = np.maximum(mean * (1 - mean) - w, mean * (1 - mean) / _LARGEST_CONCENTRATION)
    concentration = np.clip(w / between, _LEAST_CONCENTRATION, _LARGEST_CONCENTRATION)
    return mean * concentration, (1 - mean) * concentration
