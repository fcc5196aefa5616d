"""The arithmetic of a paired comparison: differences, intervals, and two tests. Pure.

Pairs of a problem stand or fall together, so problems are the unit of both tests: a problem counts once,
however many samples it has.
"""

from collections.abc import Iterable, Sequence
from math import sqrt

import numpy as np
from scipy import stats

from runner import statistics
from runner.compare.model import POOLED, Difference, ErrorOfDifference, Paired, ScorePair
from runner.statistics import RIGHT
from runner.verdict.compare import holm

RESAMPLES = 19_999
"""Of the permutation test: with up to 14 problems that differ all assignments are gone through: exact."""
_SEED = 20261202
"""The same runs have the same p, whoever compares them."""


def difference_of(paired: Paired) -> Difference:
    """Return the difference over one data set."""
    return _difference(paired.dataset, paired.pairs, paired.left_out)


def pooled_difference(paired: Sequence[Paired]) -> Difference:
    """Return the difference over all data sets: every problem weighs alike, in whichever it is."""
    pairs = tuple(pair for one in paired for pair in one.pairs)
    return _difference(POOLED, pairs, sum(one.left_out for one in paired))


def adjusted(p_values: Sequence[float]) -> list[float]:
    """Return p after Holm, for several runs that are held against one baseline."""
    return [float(one) for one in holm(np.asarray(p_values, dtype=float))]


def sign_p(differences: Sequence[float]) -> float:
    """Return the two-sided sign test's p: of the problems that differ, whether half of them are better.

    1 where no problem differs.
    """
    better, worse = _better_and_worse(differences)
    if better + worse == 0:
        return 1.0
    return float(stats.binomtest(better, better + worse, 0.5).pvalue)


def permutation_p(differences: Sequence[float]) -> tuple[float, bool]:
    """Return the two-sided p of the mean difference over which run is which, problem by problem; and whether
    it is exact.

    If the runs do not differ, either could have been the baseline: the sign of each problem's difference is
    chance. 1 where no problem differs; one that does not takes no part, whichever run is which.
    """
    differing = [one for one in differences if one]
    if len(differing) < 2:  # one difference is as far from zero with either sign
        return 1.0, True
    found = stats.permutation_test(
        (np.asarray(differing, dtype=float),),
        lambda one, axis: np.sum(one, axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=RESAMPLES,
        random_state=np.random.default_rng(_SEED),
    )
    return float(found.pvalue), 2 ** len(differing) <= RESAMPLES


def _difference(name: str, pairs: tuple[ScorePair, ...], left_out: int) -> Difference:
    by_problem = statistics.grouped((_problem(pair), pair.difference) for pair in pairs)
    differences = [sum(one) / len(one) for one in by_problem.values()]
    middle = sum(differences) / len(differences) if differences else 0.0
    better, worse = _better_and_worse(differences)
    p, is_exact = permutation_p(differences)
    return Difference(
        name=name,
        problems=len(by_problem),
        pairs=len(pairs),
        left_out=left_out,
        baseline_mean=_mean_of_problems((_problem(pair), pair.baseline) for pair in pairs),
        other_mean=_mean_of_problems((_problem(pair), pair.other) for pair in pairs),
        same_problems=_error(middle, statistics.error_same_problems(by_problem)),
        new_problems=_error(middle, _error_of_mean(differences)),
        better=better,
        worse=worse,
        sign_p=sign_p(differences),
        permutation_p=p,
        permutation_is_exact=is_exact,
        gained=tuple(pair for pair in pairs if pair.baseline < RIGHT <= pair.other),
        lost=tuple(pair for pair in pairs if pair.other < RIGHT <= pair.baseline),
    )


def _better_and_worse(differences: Sequence[float]) -> tuple[int, int]:
    return sum(1 for one in differences if one > 0), sum(1 for one in differences if one < 0)


def _problem(pair: ScorePair) -> str:
    # Two data sets may use the same ids.
    return f"{pair.key.dataset}\x00{pair.key.problem_id}"


def _mean_of_problems(scores: Iterable[tuple[str, float]]) -> float:
    means = [sum(one) / len(one) for one in statistics.grouped(scores).values()]
    return sum(means) / len(means) if means else 0.0


def _error_of_mean(differences: Sequence[float]) -> float | None:
    """Return the standard error over problems, as if these had been drawn from more of their kind."""
    if len(differences) < 2:
        return None
    return float(np.std(differences, ddof=1)) / sqrt(len(differences))


def _error(middle: float, error: float | None) -> ErrorOfDifference:
    if error is None:
        return ErrorOfDifference(None, None)
    half = statistics.Z * error
    return ErrorOfDifference(error, (max(middle - half, -1.0), min(middle + half, 1.0)))
