"""What the grader's process makes of a library that swallows errors. (Limits are set in its `main` alone.)"""

from collections.abc import Callable
from contextlib import suppress

import pytest

from runner.rescore.child import graded
from runner.rescore.scorers import Graded, UnreadableGoldError
from runner.rescore.scorers.math_verify import delimited


def swallowing(error: type[BaseException], score: float) -> Callable[[str, str], Graded]:
    """A grader that runs into an error, takes it for "not equal", and goes on."""

    def deeper() -> None:
        raise error

    def grade(answer: str, gold: str) -> Graded:
        with suppress(Exception):  # as the library does
            deeper()
        return Graded(score, "fake")

    return grade


@pytest.mark.parametrize(("error", "failure"), [(MemoryError, "memory"), (RecursionError, "crash")])
def test_an_error_that_a_library_takes_for_unequal_is_told_and_is_no_zero(
    error: type[BaseException], failure: str
) -> None:
    told = graded(swallowing(error, 0.0), "1", "2")

    assert told == {"failure": failure, "detail": error.__name__}


@pytest.mark.parametrize(("error", "score"), [(MemoryError, 1.0), (ValueError, 0.0), (TypeError, 0.0)])
def test_what_is_equal_stays_so_and_other_errors_are_the_library_s_way(
    error: type[BaseException], score: float
) -> None:
    assert graded(swallowing(error, score), "1", "2")["score"] == score


@pytest.mark.parametrize(
    ("error", "failure"),
    [(MemoryError, "memory"), (KeyError, "crash"), (UnreadableGoldError, "gold cannot be read")],
)
def test_an_error_that_comes_through_is_told(error: type[BaseException], failure: str) -> None:
    def grade(answer: str, gold: str) -> Graded:
        raise error("it was so")

    assert graded(grade, "1", "2")["failure"] == failure


@pytest.mark.parametrize(
    ("text", "read"),
    [("2\\sqrt{3}", "$2\\sqrt{3}$"), ("$3$", "$3$"), ("\\boxed{7}", "\\boxed{7}"), ("\\(x\\)", "\\(x\\)")],
)
def test_an_answer_is_read_as_mathematics_once(text: str, read: str) -> None:
    assert delimited(text) == read
