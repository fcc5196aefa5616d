"""The one place where means, their errors and intervals are worked out."""

from itertools import product
from math import sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner import statistics
from runner.protocol.score import AnswerStatus, ScoreMethod, Termination
from runner.results.aggregate import ScoredRow
from runner.statistics import Basis, RunningMean
from runner.views import words
from runner.views.watch.figures import mean_text, mean_with_interval

HOW = (ScoreMethod.EXACT_FALLBACK, Termination.FINAL_ANSWER, AnswerStatus.ANSWERED)
PROBLEMS = st.lists(
    st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=1, max_size=5), min_size=1, max_size=6
)


def by_problem(problems: list[list[float]]) -> dict[str, list[float]]:
    return {f"p{index}": scores for index, scores in enumerate(problems)}


def running(problems: list[list[float]]) -> RunningMean:
    found = RunningMean()
    for name, scores in by_problem(problems).items():
        for score in scores:
            found.add(name, score)
    return found


def test_wilson_s_interval_is_the_one_of_published_tables() -> None:
    """Of 7 of 10."""
    found = statistics.wilson_interval(7.0, 10)

    assert (found.low, found.high) == (pytest.approx(0.3968, abs=1e-4), pytest.approx(0.8922, abs=1e-4))


@given(st.integers(1, 500), st.floats(0, 1))
def test_wilson_s_interval_holds_the_mean_and_is_one_of_scores(count: int, mean: float) -> None:
    found = statistics.wilson_interval(mean * count, count)

    assert 0.0 <= found.low <= mean + 1e-9
    assert mean - 1e-9 <= found.high <= 1.0


def test_the_error_for_new_problems_is_that_of_the_problems_means_where_samples_are_equal() -> None:
    problems = [[1.0, 1.0], [0.0, 0.0], [1.0, 0.0]]
    means = [1.0, 0.0, 0.5]
    spread = sum((one - 0.5) ** 2 for one in means) / 2

    assert statistics.error_new_problems(by_problem(problems)) == pytest.approx(sqrt(spread / 3))


def test_the_error_for_new_problems_of_a_sample_each_is_the_ordinary_one() -> None:
    scores = [1.0, 0.0, 0.0, 1.0, 1.0]
    variance = sum((one - 0.6) ** 2 for one in scores) / 4

    assert statistics.error_new_problems(by_problem([[one] for one in scores])) == pytest.approx(
        sqrt(variance / 5)
    )


def test_its_square_is_an_unbiased_estimate_where_problems_are_drawn_too() -> None:
    """Over all outcomes of two problems whose rate is 0.2 or 0.9, a toss each, with two samples each."""
    expected = truth = 0.0
    for rates in product((0.2, 0.9), repeat=2):
        for outcome in product((0.0, 1.0), repeat=4):
            weight = 0.25
            for rate, score in zip((rates[0], rates[0], rates[1], rates[1]), outcome, strict=True):
                weight *= rate if score else 1 - rate
            error = statistics.error_new_problems({"a": list(outcome[:2]), "b": list(outcome[2:])})
            assert error is not None
            expected += weight * error**2
            truth += weight * (sum(outcome) / 4 - 0.55) ** 2

    assert expected == pytest.approx(truth)


@pytest.mark.parametrize("problems", [[], [[1.0]], [[1.0, 0.0]]])
def test_one_problem_says_nothing_of_new_ones(problems: list[list[float]]) -> None:
    assert statistics.error_new_problems(by_problem(problems)) is None


@given(PROBLEMS)
def test_a_running_mean_is_that_of_the_scores_and_its_interval_holds_it(
    problems: list[list[float]],
) -> None:
    found = running(problems)
    everything = [score for scores in problems for score in scores]
    interval = found.interval()

    assert found.value == pytest.approx(sum(everything) / len(everything))
    assert interval is not None
    assert 0.0 <= interval.low <= found.value + 1e-9
    assert found.value - 1e-9 <= interval.high <= 1.0


@given(PROBLEMS)
def test_a_running_interval_is_that_of_the_same_problems_as_soon_as_that_can_be_told(
    problems: list[list[float]],
) -> None:
    found = running(problems).interval()
    error = statistics.error_same_problems(by_problem(problems))

    assert found is not None
    if error is None or error < 1e-9:
        assert found.basis is Basis.INDEPENDENT
    else:
        assert found.basis is Basis.SAME_PROBLEMS
        middle = running(problems).value
        assert middle is not None
        assert found.low == pytest.approx(max(middle - statistics.Z * error, 0.0), abs=1e-9)


def test_samples_that_all_agree_are_no_certainty() -> None:
    found = running([[1.0, 1.0], [1.0, 1.0], [1.0, 1.0]]).interval()

    assert found is not None
    assert found.is_hint
    assert found.low < 0.7


def test_nothing_scored_has_no_mean_and_no_interval() -> None:
    assert RunningMean().value is None
    assert RunningMean().interval() is None


@pytest.mark.parametrize(("problems", "mark"), [([[1.0], [0.0]], "~"), ([[1.0, 0.0], [1.0, 1.0]], "")])
def test_both_displays_show_the_same_interval_and_mark_a_hint_alike(
    problems: list[list[float]], mark: str
) -> None:
    shown = mean_with_interval(
        ScoredRow(name, sample, score, *HOW)
        for name, scores in by_problem(problems).items()
        for sample, score in enumerate(scores)
    )
    interval = running(problems).interval()

    assert shown is not None
    assert interval == shown.interval
    assert f"{mark}[" in mean_text(shown)
    assert words.interval(interval) == f"{mark}{interval.low:.3f}-{interval.high:.3f}"
