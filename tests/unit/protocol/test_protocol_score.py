"""What completions and trajectories score."""

import decimal

import pytest

from runner.protocol.score import (
    AnswerStatus,
    Score,
    ScoreMethod,
    Termination,
    answer_status,
    score_exact,
    score_trajectory,
)

EXACT = ScoreMethod.EXACT_FALLBACK


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("7", "7.0"),
        ("0.5", "1/2"),
        ("1_000", "1,000"),
        ("٣", "3"),
        ("1e-8", "0"),
        ("nan", "NaN"),
        (r"{\boxed{7}}", "7.0"),
        (r"\boxed {7}", "7"),
        ("1e-999999/1e999999", "0"),
        ("1e1000000", "10e999999"),
    ],
)
def test_equal_or_close_answers_score_one(answer: str, gold: str) -> None:
    assert score_exact(f"Final answer: {answer}", gold) == Score(1.0, EXACT)


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("1.000000011", "1"),
        ("1.00000001e-8", "0"),
        ("1/0", "0"),
        ("0/0", "0"),
        ("1/2/3", "0.5"),
        ("inf", "Infinity"),
        ("sNaN", "0"),
        ("1e1000000", "1"),
        ("1e999999/1e-999999", "1"),
        ("1e9999999999999999999999", "1"),
        ("\ud800", "1"),
        ("/", "1"),
    ],
)
def test_other_answers_score_zero_and_nothing_raises(answer: str, gold: str) -> None:
    assert score_exact(f"Final answer: {answer}", gold) == Score(0.0, EXACT)
    assert score_exact(f"Final answer: {gold}", answer) == Score(0.0, EXACT)


def test_without_an_explicit_answer_the_score_says_so() -> None:
    assert score_exact("it is 7", "7") == Score(0.0, ScoreMethod.MISSING_FINAL_ANSWER)


def test_a_changed_decimal_context_of_the_process_changes_no_score() -> None:
    with decimal.localcontext() as context:
        context.prec = 3
        context.traps[decimal.InvalidOperation] = False

        assert score_exact("Answer: 1.23456", "1.23457") == Score(0.0, EXACT)
        assert score_exact("Answer: x", "y") == Score(0.0, EXACT)


@pytest.mark.parametrize(
    ("termination", "used_bash", "score"),
    [
        (Termination.FINAL_ANSWER, True, Score(1.0, EXACT)),
        (Termination.MAX_TURNS, True, Score(1.0, EXACT)),
        (Termination.MAX_TURNS, False, Score(0.0, ScoreMethod.NO_BASH_TOOL_USE)),
        (Termination.CONTEXT_LENGTH_EXCEEDED, True, Score(0.0, ScoreMethod.CONTEXT_LENGTH_EXCEEDED)),
        (Termination.CONTEXT_LENGTH_EXCEEDED, False, Score(0.0, ScoreMethod.CONTEXT_LENGTH_EXCEEDED)),
        (Termination.REQUEST_ERROR, False, Score(0.0, ScoreMethod.REQUEST_ERROR)),
    ],
)
def test_a_trajectory_scores_by_its_last_completion_unless_it_was_cut_off_or_used_no_bash(
    termination: Termination, used_bash: bool, score: Score
) -> None:
    assert score_trajectory(r"\boxed{7}", "7", used_bash=used_bash, termination=termination) == score


def test_only_a_final_answer_line_makes_a_completion_answered() -> None:
    assert answer_status("<think>x</think>Answer: 7") is AnswerStatus.ANSWERED
    assert answer_status(r"\boxed{7}") is AnswerStatus.MISSING_FINAL_ANSWER
    assert answer_status("<think>\nAnswer: 7</think>") is AnswerStatus.MISSING_FINAL_ANSWER
