"""The grader over math-verify itself: what it takes for equal, and what becomes of hostile answers."""

from pathlib import Path

import anyio
import pytest
from support.extras import needs
from support.fake_sandbox import FakeSandbox
from support.runs import run_plan

from runner.journal import JOURNAL_NAME, read_state
from runner.plan import build_engine, make_plan
from runner.rescore.grader import command_of, grade_all
from runner.rescore.model import Failure, Grade, GradeLimits
from runner.rescore.registry import Scorer
from runner.rescore.run import rescore
from runner.rescore.scorers import Pair

pytestmark = [pytest.mark.anyio, needs("math_verify")]
LIMITS = GradeLimits(wall_s=20.0)


async def graded(*pairs: Pair, limits: GradeLimits = LIMITS) -> list[Grade]:
    grades, _ = await grade_all(pairs, limits, command_of(Scorer.MATH_VERIFY), graders=1)
    return [grades[pair] for pair in pairs]


async def test_equal_mathematics_is_equal_however_it_is_written() -> None:
    pairs = [
        ("\\frac{5}{24}", "5/24"),
        ("10/48", "5/24"),
        ("1,000", "1000"),
        ("2\\sqrt{3}", "\\sqrt{12}"),
        ("\\sqrt{12}", "2\\sqrt{3}"),
        ("0.5", "1/2"),
        ("x=5", "5"),
        ("$3$", "3"),
        ("\\boxed{7}", "7"),
        ("{2,1}", "{1,2}"),
    ]

    assert [grade.score for grade in await graded(*pairs)] == [1.0] * len(pairs)


async def test_other_mathematics_is_wrong_and_says_what_it_was_read_as() -> None:
    pairs = [("0.2083", "5/24"), ("2\\sqrt{3}", "2"), ("[0,1]", "(0,1)"), ("8.602", "\\sqrt{74}")]
    found = await graded(*pairs)

    assert [(grade.score, grade.method) for grade in found] == [(0.0, "math_verify")] * len(pairs)
    assert found[1].read_answer == "2\\sqrt{3}"


async def test_an_answer_without_mathematics_is_wrong_and_says_so() -> None:
    (grade,) = await graded(("\x00", "3"))

    assert (grade.score, grade.method) == (0.0, "math_verify_unreadable_answer")


async def test_a_gold_answer_that_cannot_be_read_is_an_error() -> None:
    (grade,) = await graded(("3", ""))

    assert (grade.score, grade.failure) == (None, Failure.GOLD)


async def test_hostile_answers_are_errors_and_the_next_is_graded() -> None:
    limits = GradeLimits(wall_s=2.0)
    hostile = ["9^{9^{9}}", "x" * 1_000_000, "{" * 50_000 + "}" * 50_000]
    *failures, last = await graded(*((one, "3") for one in hostile), ("3", "3"), limits=limits)

    assert [grade.score for grade in failures] == [None] * len(hostile)
    assert {grade.failure for grade in failures} <= {Failure.TIMEOUT, Failure.MEMORY, Failure.CRASH}
    assert last.score == 1.0


async def test_an_answer_that_needs_more_memory_than_there_is_is_an_error_and_no_zero() -> None:
    limits = GradeLimits(wall_s=5.0, memory_bytes=400 << 20)
    (grade,) = await graded(("10^{10^{10}}", "3"), limits=limits)

    assert (grade.score, grade.failure) in {(None, Failure.MEMORY), (None, Failure.TIMEOUT)}


async def test_the_demo_differs_where_a_right_value_is_written_otherwise_and_nowhere_else(
    tmp_path: Path,
) -> None:
    plan = make_plan("demo")
    with anyio.fail_after(120):
        outcome = await run_plan(
            plan,
            build_engine(plan),
            FakeSandbox(),
            run_id="demo",
            results_dir=tmp_path,
            listener=lambda _: None,
        )
        again = await rescore(read_state(outcome.run_dir / JOURNAL_NAME), Scorer.MATH_VERIFY, limits=LIMITS)

    assert [
        (str(row.key), row.answer, row.gold, row.recorded, row.grade.score) for row in again.differences
    ] == [("demo/demo_004_three-dice:sample01", "\\frac{5}{24}", "5/24", 0.0, 1.0)]
    assert again.failures == []
    assert again.versions["math-verify"]
