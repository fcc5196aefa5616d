"""Variances, standard errors, Holm, Beta fits, max@k and pass@k, against numbers by hand and brute force."""

from itertools import product
from math import comb, sqrt

import numpy as np
import pytest

from runner.protocol.score import AnswerStatus, ScoreMethod, Termination
from runner.results.aggregate import ScoredRow
from runner.results.aggregate import pass_at_k as pass_at_k_of_rows
from runner.verdict.beta import fit_mean_and_max, fit_mean_and_variance, outcome_variance
from runner.verdict.compare import (
    Pair,
    Side,
    Spread,
    estimate,
    holm,
    p_value,
    samples_to_decide,
    smallest_difference,
)
from runner.verdict.model import Method, VarianceSource, VerdictSettings
from runner.verdict.solved import pass_at_k, permutation_range, posterior_range, shown_ks


def side(*problems: list[float]) -> Side:
    return Side(np.asarray([problems], dtype=float))


# The Beta fits of the published figures.


@pytest.mark.parametrize(
    ("mean", "max_at_4", "w"), [(0.7675, 0.86, 0.0535), (0.7083333333333334, 0.9666666666666667, 0.1717)]
)
def test_the_published_mean_and_max_at_4_fix_the_variance_within_problems(
    mean: float, max_at_4: float, w: float
) -> None:
    a, b = fit_mean_and_max(mean, max_at_4, 4)

    assert a / (a + b) == pytest.approx(mean)
    unsolved = np.prod([(b + i) / (a + b + i) for i in range(4)])
    assert 1 - unsolved == pytest.approx(max_at_4)
    assert outcome_variance(a, b) == pytest.approx(w, abs=5e-5)


@pytest.mark.parametrize(("mean", "max_at_k"), [(0.7, 0.7), (0.7, 1.0), (0.5, 0.3), (1.0, 1.0), (0.0, 0.0)])
def test_a_fit_at_the_edge_stays_finite(mean: float, max_at_k: float) -> None:
    a, b = fit_mean_and_max(mean, max_at_k, 4)

    assert np.isfinite([a, b]).all()
    assert 0.0 <= outcome_variance(a, b) <= mean * (1 - mean) + 1e-9


def test_max_at_1_fixes_no_variance() -> None:
    with pytest.raises(ValueError, match="max@1"):
        fit_mean_and_max(0.7, 0.7, 1)


def test_a_fit_to_mean_and_variance_gives_them_back() -> None:
    a, b = fit_mean_and_variance(0.7, 0.1)

    assert a / (a + b) == pytest.approx(0.7)
    assert outcome_variance(a, b) == pytest.approx(0.1)


# Variance within problems.


def test_w_is_the_mean_over_problems_and_one_coin_flip() -> None:
    # k p(1-p)/(k-1): 1/3 for two of four, 0 for four of four; then a problem of variance 1/4.
    assert side([1, 1, 0, 0], [1, 1, 1, 1]).outcome_variance() == pytest.approx((1 / 3 + 0 + 1 / 4) / 3)


def test_a_single_sample_has_no_variance() -> None:
    assert side([1], [0]).outcome_variance() is None


def test_problems_that_always_agree_still_have_an_interval() -> None:
    always = side([1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1])

    low, high = estimate([Pair(always, np.asarray([1.0]), 4, always)]).interval(0.90)

    # w = 1/16, of 12 samples on either side.
    half = 1.6449 * sqrt(2 * (1 / 16) / 12)
    assert (low[0], high[0]) == pytest.approx((-half, half), abs=1e-4)


def test_each_side_takes_its_own_variance_where_it_can() -> None:
    run, rows = side([1, 0], [1, 1]), side([1, 1], [1, 1])
    (run_w, run_source), (published_w, published_source) = Pair(run, np.asarray([1.0]), 2, rows).variances()

    assert run_w == pytest.approx((1 / 2 + 1 / 4) / 3)
    assert published_w == pytest.approx((1 / 4) / 3)
    assert (run_source, published_source) == (VarianceSource.OWN_SAMPLES, VarianceSource.OWN_SAMPLES)


def test_a_single_sample_takes_the_variance_of_the_rows() -> None:
    run, rows = side([1], [1]), side([1, 0], [1, 1])
    (run_w, source), (published_w, _) = Pair(run, np.asarray([0.75]), 2, rows).variances()

    assert run_w == published_w
    assert source is VarianceSource.OTHER_SIDE


def test_a_single_sample_without_rows_takes_the_assumed_variance() -> None:
    (run_w, source), _ = Pair(side([1], [1]), np.asarray([0.75]), 4, None, 0.054).variances()

    assert run_w == pytest.approx(0.054)
    assert source is VarianceSource.ASSUMED


def test_nothing_known_of_the_variance_is_an_error() -> None:
    with pytest.raises(ValueError, match="no variance is known"):
        Pair(side([1], [1]), np.asarray([0.75]), 4).variances()


# The comparison.


def test_the_difference_s_standard_error_by_hand() -> None:
    run = side(*[[1, 1, 0, 0]] * 3)
    found = estimate([Pair(run, np.asarray([0.6]), 4)])

    w = (3 * (1 / 3) + 1 / 4) / 4
    assert found.difference[0] == pytest.approx(-0.1)
    assert found.standard_error[0] == pytest.approx(sqrt(2 * w / 12))


def test_pooled_means_weigh_every_problem_alike() -> None:
    large, small = side(*[[1, 1]] * 3), side([0, 0])
    pairs = [Pair(large, np.asarray([0.5]), 2), Pair(small, np.asarray([0.1]), 2)]

    found = estimate(pairs)

    assert found.run_mean[0] == pytest.approx(0.75)
    assert found.published_mean[0] == pytest.approx((3 * 0.5 + 0.1) / 4)
    # Variance of a mean of 4 problems: sum of each data set's n w / k, over 16; both sides alike.
    large_w, small_w = (1 / 4) / 4, (1 / 4) / 2
    variance = (3 * large_w / 2 + 1 * small_w / 2) / 16
    assert found.run_standard_error[0] == pytest.approx(sqrt(variance))


def test_without_rows_p_is_the_normal_one() -> None:
    run = side(*[[1, 1, 0, 0]] * 50)
    w = (50 / 3 + 1 / 4) / 51
    published = 0.5 + 1.959964 * sqrt(2 * w / 200)

    p, method = p_value([Pair(run, np.asarray([published]), 4)])

    assert method is Method.NORMAL
    assert p[0] == pytest.approx(0.05, abs=1e-5)


def test_with_rows_p_is_the_exact_one() -> None:
    _, method = p_value([Pair(side([1, 0]), np.asarray([0.5]), 2, side([1, 0]))])

    assert method is Method.PERMUTATION


def test_scores_between_0_and_1_take_the_normal_way() -> None:
    _, method = p_value([Pair(side([0.5, 0.0]), np.asarray([0.5]), 2, side([1, 0]))])

    assert method is Method.NORMAL


def test_rows_that_are_a_part_of_the_published_samples_take_the_normal_way() -> None:
    _, method = p_value([Pair(side([1]), np.asarray([0.5]), 6, side([1, 0, 1, 0]))])

    assert method is Method.NORMAL


@pytest.mark.parametrize(
    ("p", "adjusted"),
    [
        ([0.01, 0.04], [0.02, 0.04]),
        ([0.04, 0.03], [0.06, 0.06]),
        ([0.9, 0.8], [1.0, 1.0]),
        ([0.02, 0.01, 0.5], [0.04, 0.03, 0.5]),
        ([0.03], [0.03]),
    ],
)
def test_holm_by_hand(p: list[float], adjusted: list[float]) -> None:
    assert holm(np.asarray(p)) == pytest.approx(adjusted)


# What a comparison can see.


def test_the_smallest_difference_seen_is_2_8_standard_errors() -> None:
    assert smallest_difference(0.01, VerdictSettings()) == pytest.approx(
        0.01 * (1.959964 + 0.841621), abs=1e-6
    )
    assert smallest_difference(0.01, VerdictSettings(), family=2) == pytest.approx(
        0.01 * (2.241403 + 0.841621), abs=1e-6
    )


def test_samples_that_decide_by_hand() -> None:
    # margin = (1.6449 + 1.2816) standard errors: variance 2.9192e-4.
    dapo, aime = Spread(100, 0.054, 0.054, 4), Spread(30, 0.172, 0.172, 4)

    # 0.054/100 (1/k + 1/4) = 2.9192e-4 at k = 3.44; 2 w / (n v) = 3.7
    assert samples_to_decide([dapo], VerdictSettings()) == (4, 4)
    # Four published samples of 30 problems alone have 14.3e-4: no k is enough; 2 w / (n v) = 39.3
    assert samples_to_decide([aime], VerdictSettings()) == (None, 40)


# max@k and pass@k.


def test_pass_at_k_is_that_of_the_results() -> None:
    scores = [[1, 0, 0, 0], [1, 1, 0, 1], [0, 0, 0, 0]]
    rows = [
        ScoredRow(
            f"p{i}",
            j,
            float(score),
            ScoreMethod.EXACT_FALLBACK,
            Termination.FINAL_ANSWER,
            AnswerStatus.ANSWERED,
        )
        for i, one in enumerate(scores)
        for j, score in enumerate(one)
    ]

    for k in range(1, 5):
        assert pass_at_k(side(*scores), k)[0] == pytest.approx(pass_at_k_of_rows(rows, k))


def test_a_permutation_range_is_that_of_all_assignments() -> None:
    run, rows = side([1, 0], [0, 0], [1, 1]), side([0, 0], [1, 0], [1, 0])
    totals = [1, 1, 3]

    found = permutation_range(run, rows, 2, 0.80)

    # Chance that at least one of the run's two samples is right, of t right in four.
    solved = [1 - comb(4 - total, 2) / comb(4, 2) for total in totals]
    chances = np.zeros(4)
    for outcome in product((0, 1), repeat=3):
        chances[sum(outcome)] += np.prod(
            [p if hit else 1 - p for p, hit in zip(solved, outcome, strict=True)]
        )
    cumulative = np.cumsum(chances)
    low, high = int(np.argmax(cumulative > 0.1)), int(np.argmax(cumulative >= 0.9))
    assert (found.low[0], found.high[0]) == pytest.approx((low / 3, high / 3))


def test_a_permutation_range_needs_no_equal_samples() -> None:
    found = permutation_range(side([1, 0, 1, 1, 0]), side([1, 1]), 3, 0.90)

    assert 0.0 <= found.low[0] <= found.high[0] <= 1.0


def test_a_posterior_range_is_wider_than_the_spread_of_known_rates() -> None:
    """Rates are not known: c of 4 right does not mean a rate of c/4."""
    run = side(*[[1, 1, 1, 1]] * 20, *[[0, 0, 0, 0]] * 5, *[[1, 0, 1, 0]] * 5)

    found = posterior_range(run, 4, 4, 0.90)

    # Plugged in, only five problems could turn out otherwise, solved with a chance of 15/16: 24 or 25 of 30.
    assert found.low[0] <= 24 / 30
    assert found.high[0] > 25 / 30


def test_a_posterior_range_covers_fresh_draws_of_the_same_rates() -> None:
    """Seeded; 90 % claimed, of 600 draws at least 86 % (three standard errors and a half below)."""
    rng = np.random.default_rng(11)
    rates = rng.beta(3.49, 1.44, size=(600, 30))
    run = Side((rng.random((600, 30, 4)) < rates[..., None]).astype(float))
    fresh = Side((rng.random((600, 30, 4)) < rates[..., None]).astype(float))

    found = posterior_range(run, 4, 2, 0.90)

    value = pass_at_k(fresh, 2)
    inside = (value >= found.low - 1e-9) & (value <= found.high + 1e-9)
    assert inside.mean() > 0.86


@pytest.mark.parametrize(
    ("limit", "ks"), [(1, []), (2, [2]), (4, [2, 3, 4]), (6, [2, 3, 4, 6]), (64, [2, 3, 4, 8, 16, 32, 64])]
)
def test_few_k_are_shown_of_many_samples(limit: int, ks: list[int]) -> None:
    assert shown_ks(limit) == ks


def test_a_run_that_solves_everything_has_a_range_below_one() -> None:
    found = posterior_range(side(*[[1, 1]] * 4), 2, 2, 0.90)

    assert found.low[0] <= found.high[0] == 1.0
