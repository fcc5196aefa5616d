"""mean, max@k, pass@k and standard errors, against their definitions."""

from collections.abc import Sequence
from itertools import combinations, product
from math import sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.protocol.score import AnswerStatus, ScoreMethod, Termination
from runner.results.aggregate import (
    ScoredRow,
    pass_at_k,
    report_summary,
    standard_error_within_problems,
)


def rows(*problems: Sequence[float]) -> list[ScoredRow]:
    """Rows of problems, each given by its samples' scores."""
    return [
        ScoredRow(
            f"p{number}",
            sample,
            float(score),
            ScoreMethod.EXACT_FALLBACK,
            Termination.FINAL_ANSWER,
            AnswerStatus.ANSWERED,
        )
        for number, scores in enumerate(problems)
        for sample, score in enumerate(scores)
    ]


SCORES = st.lists(st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=6), min_size=1, max_size=5)


@given(SCORES, st.integers(1, 6))
def test_pass_at_k_is_the_share_of_k_subsets_with_a_right_sample(problems: list[list[float]], k: int) -> None:
    found = pass_at_k(rows(*problems), k)

    if any(len(scores) < k for scores in problems):
        assert found is None
        return
    shares = []
    for scores in problems:
        subsets = list(combinations(scores, k))
        shares.append(sum(any(subset) for subset in subsets) / len(subsets))
    assert found == pytest.approx(sum(shares) / len(shares), abs=1e-12)


@pytest.mark.parametrize("k", [0, -1])
def test_pass_at_less_than_one_is_nothing(k: int) -> None:
    assert pass_at_k(rows([1, 0]), k) is None


def test_pass_at_k_of_no_rows_is_nothing() -> None:
    assert pass_at_k([], 1) is None


@given(SCORES)
def test_pass_at_1_is_the_mean_of_the_problems_means(problems: list[list[float]]) -> None:
    means = [sum(scores) / len(scores) for scores in problems]

    assert pass_at_k(rows(*problems), 1) == pytest.approx(sum(means) / len(means))


@pytest.mark.parametrize(
    ("problems", "error"),
    [
        ([[0, 1]], sqrt(0.5 / 2)),
        ([[1, 1], [0, 0]], 0.0),
        ([[0, 1], [0, 1]], sqrt(2 * 0.5 / 2) / 2),
        ([[0, 0, 0, 1]], sqrt(0.25 / 4)),
        ([[0, 1, 1, 1], [1, 1, 1, 1], [0, 0, 1, 1]], sqrt((0.25 + 0.0 + 1 / 3) / 4) / 3),
    ],
)
def test_the_standard_error_counts_the_spread_within_problems(
    problems: list[list[float]], error: float
) -> None:
    assert standard_error_within_problems(rows(*problems)) == pytest.approx(error)


def test_its_square_is_an_unbiased_estimate_of_the_mean_s_variance() -> None:
    """Over all outcomes of two problems with three samples each, weighted by their probability."""
    rates, samples = (0.3, 0.8), 3
    expected = 0.0
    for outcome in product((0.0, 1.0), repeat=2 * samples):
        first, second = outcome[:samples], outcome[samples:]
        weight = 1.0
        for rate, scores in zip(rates, (first, second), strict=True):
            for score in scores:
                weight *= rate if score else 1 - rate
        error = standard_error_within_problems(rows(first, second))
        assert error is not None
        expected += weight * error**2

    assert expected == pytest.approx(sum(rate * (1 - rate) / samples for rate in rates) / 4)


@pytest.mark.parametrize("problems", [[], [[1]], [[1, 0], [1]]])
def test_a_problem_with_one_sample_leaves_no_standard_error(problems: list[list[float]]) -> None:
    assert standard_error_within_problems(rows(*problems)) is None


def test_the_summary_counts_rows_and_not_what_is_missing() -> None:
    summary = report_summary(rows([1, 0], [0]), problems=3, samples=2)

    assert (summary["count"], summary["expected_count"], summary["items"]) == (3, 6, 3)
    assert summary["mean_score"] == pytest.approx(1 / 3)
    assert (summary["max@2"], summary["pass@2"], summary["pass@2_count"]) == (0.5, 0.5, 1)
    assert summary["by_sample"] == {
        "0": {"count": 2, "mean_score": 0.5},
        "1": {"count": 1, "mean_score": 0.0},
    }


def test_the_summary_of_nothing_is_all_zero() -> None:
    summary = report_summary([], problems=2, samples=4)

    assert (summary["count"], summary["mean_score"], summary["max@4"], summary["max"]) == (0, 0.0, 0.0, 0.0)
