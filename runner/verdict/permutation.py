"""Exact distributions of sums over problems, and the permutation test built on them.

If nothing differs, the k samples of a run and the m published samples of a problem are k + m draws alike:
given how many of them are right, which of them are the run's is chance. The run's number of right samples of
that problem is then hypergeometric, whatever the problem's difficulty, and their sum over problems has an
exact distribution: the convolution of one hypergeometric distribution a problem. No problem's rate is
estimated, and none is assumed.

Problems with the same number of right draws have the same distribution, so the convolution is a product of
few powers of Fourier transforms (rounding error about 1e-15, far below any p that is printed). The leading
axis of every array is that of simulated runs; a real run is a batch of one.
"""

from functools import lru_cache
from math import comb

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.fft import next_fast_len

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_ROUNDING = 1e-11
"""What sums of probabilities may be off by."""
_FINEST_PARTS = 1000
"""A problem's part of pass@k is rounded to so many, where C(n, k) is more: the lattice of sums has to fit in
memory."""


@lru_cache(maxsize=64)
def success_distributions(run_samples: int, other_samples: int) -> Floats:
    """Return [t, c]: the chance that c of a run's samples are right, if t of all k + m are."""
    total = run_samples + other_samples
    ways = comb(total, run_samples)
    table = np.asarray(
        [
            [
                comb(right, mine) * comb(total - right, run_samples - mine) / ways
                for mine in range(run_samples + 1)
            ]
            for right in range(total + 1)
        ]
    )
    table.setflags(write=False)
    return table


def counts_of(values: Ints, kinds: int) -> Ints:
    """Return how many problems of each batch entry have the value 0, 1, ... kinds - 1."""
    values = np.atleast_2d(values)
    return np.stack([(values == kind).sum(axis=-1) for kind in range(kinds)], axis=-1)


def sum_distribution(outcome_values: Ints, probabilities: Floats, kind_counts: Ints) -> Floats:
    """Return the distribution of a sum of independent terms, as [..., sum].

    `probabilities` is [kind, outcome] or [batch, kind, outcome], `outcome_values` the whole number that an
    outcome adds, and `kind_counts` [batch, kind] how many terms of a kind there are.
    """
    terms = int(kind_counts.sum(axis=-1).max())
    largest = terms * int(outcome_values.max()) + 1
    length = int(next_fast_len(largest, real=True))
    spread = np.zeros((*probabilities.shape[:-1], int(outcome_values.max()) + 1))
    for outcome, value in enumerate(outcome_values):
        spread[..., value] += probabilities[..., outcome]
    product = np.ones((kind_counts.shape[0], length // 2 + 1), dtype=np.complex128)
    for kind in range(kind_counts.shape[-1]):
        if kind_counts[:, kind].any():
            transform = np.fft.rfft(spread[..., kind, :], n=length, axis=-1)
            product *= _powers(transform, kind_counts[:, kind])
    distribution = np.fft.irfft(product, n=length, axis=-1)[..., :largest]
    return np.asarray(np.clip(distribution, 0.0, 1.0))


def _powers(transform: NDArray[np.complex128], exponents: Ints) -> NDArray[np.complex128]:
    """Return [batch, frequency]: a transform, common or one for each entry, to each entry's power."""
    if transform.ndim == 2 or len(exponents) == 1:
        return np.asarray(transform ** exponents[:, None])
    table = np.ones((int(exponents.max()) + 1, transform.shape[-1]), dtype=np.complex128)
    for exponent in range(1, table.shape[0]):
        table[exponent] = table[exponent - 1] * transform
    return np.asarray(table[exponents])


def permutation_p(run_right: ArrayLike, all_right: ArrayLike, run_samples: int, other_samples: int) -> Floats:
    """Return the two-sided mid-p of a difference of means, exact: one for each batch entry.

    `run_right` [batch, problem] counts right samples of the run, `all_right` those of both sides. Two-sided:
    the chance, over all assignments within problems, of a difference further from zero than the one seen,
    plus half the chance of one just as far. (Zero is the mean of that distribution, so no side is favoured.)

    Half, because the sums are whole numbers: with 30 problems the difference that matters has a chance of 2 %
    by itself. Counting all of it, `p < 0.05` came in 3.5 % of equal runs instead of 4.6 %, and ten points
    were found in 38 % of runs instead of 44 % (Lancaster 1961, Significance tests in discrete distributions).
    """
    run_right = np.atleast_2d(np.asarray(run_right, dtype=np.int64))
    all_right = np.atleast_2d(np.asarray(all_right, dtype=np.int64))
    total = run_samples + other_samples
    table = success_distributions(run_samples, other_samples)
    distribution = sum_distribution(np.arange(run_samples + 1), table, counts_of(all_right, total + 1))
    sums = np.arange(distribution.shape[-1], dtype=np.int64)
    expected = all_right.sum(axis=-1) * run_samples
    # Whole numbers throughout: the sum times k + m, from its mean times k + m. Ties are exact.
    seen = np.abs(run_right.sum(axis=-1) * total - expected)
    distances = np.abs(sums[None, :] * total - expected[:, None])
    p = np.where(seen == 0, 1.0, _beyond(distribution, distances, seen))
    return np.asarray(np.clip(p, 0.0, 1.0))


def _beyond(distribution: Floats, distances: Ints, seen: Ints) -> Floats:
    """Return the chance of a distance beyond the one seen, and half of that of the same."""
    weights = (distances > seen[:, None]) + 0.5 * (distances == seen[:, None])
    return np.asarray((weights * distribution).sum(axis=-1))


def central_interval(distribution: Floats, level: float) -> tuple[Ints, Ints]:
    """Return the sums that leave at most (1 - level)/2 below, and as much above, for each batch entry."""
    tail = (1 - level) / 2
    cumulative = np.cumsum(distribution, axis=-1)
    cumulative /= cumulative[..., -1:]
    low = np.argmax(cumulative > tail + _ROUNDING, axis=-1)
    high = np.argmax(cumulative >= 1 - tail - _ROUNDING, axis=-1)
    return low, high


def solved_shares(samples: int, k: int) -> Floats:
    """Return what a problem with c right of n samples adds to unbiased pass@k: 1 - C(n-c, k)/C(n, k), c = 0
    ... n."""
    whole = comb(samples, k)
    return np.asarray([(whole - comb(samples - right, k)) / whole for right in range(samples + 1)])


def solved_parts(samples: int, k: int) -> tuple[Ints, int]:
    """Return the same in whole parts, and how many parts are one: exact while C(n, k) is small, else
    rounded."""
    whole = min(comb(samples, k), _FINEST_PARTS)
    return np.rint(solved_shares(samples, k) * whole).astype(np.int64), whole
