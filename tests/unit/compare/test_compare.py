"""Runs held against one another: pairs, figures, tests, and what may not be compared."""

from itertools import product
from pathlib import Path

import pytest
from support.hostile import HOSTILE, harmful_in
from support.made_up import LOST, document, made_up_run
from typer.testing import CliRunner

from runner.cli.main import app
from runner.compare.model import RunComparison
from runner.compare.numbers import permutation_p, sign_p
from runner.compare.run import compare_runs, read_side
from runner.errors import UserError
from runner.events import DatasetRecord, ProblemRecord
from runner.rescore.registry import Scorer

RIGHT, WRONG = "42", "41"


def compared(*runs: Path, scorer: Scorer | None = None) -> list[RunComparison]:
    return compare_runs([read_side(run, scorer) for run in runs])


def runs(tmp_path: Path, *answers: dict[str, list[str]]) -> list[Path]:
    return [made_up_run(tmp_path / f"run{index}", one) for index, one in enumerate(answers)]


def test_pairs_are_of_one_problem_and_sample_and_tell_what_flipped(tmp_path: Path) -> None:
    (found,) = compared(
        *runs(
            tmp_path,
            {"p0": [RIGHT, WRONG], "p1": [WRONG, WRONG], "p2": [RIGHT, RIGHT]},
            {"p0": [WRONG, RIGHT], "p1": [RIGHT, RIGHT], "p2": [RIGHT, RIGHT]},
        )
    )
    pooled = found.pooled

    assert (pooled.problems, pooled.pairs, pooled.left_out) == (3, 6, 0)
    assert (pooled.baseline_mean, pooled.other_mean) == (pytest.approx(0.5), pytest.approx(5 / 6))
    assert [str(pair.key) for pair in pooled.gained] == [
        "set/p0:sample01",
        "set/p1:sample00",
        "set/p1:sample01",
    ]
    assert [str(pair.key) for pair in pooled.lost] == ["set/p0:sample00"]
    assert (pooled.better, pooled.worse) == (1, 0)
    assert found.warnings == ()


def test_the_errors_are_of_paired_differences_within_and_between_problems(tmp_path: Path) -> None:
    (found,) = compared(
        *runs(
            tmp_path,
            {"p0": [WRONG, WRONG], "p1": [RIGHT, RIGHT]},
            {"p0": [RIGHT, WRONG], "p1": [RIGHT, RIGHT]},
        )
    )
    # Differences 1, 0 and 0, 0: the first problem's mean has the variance 0.5 / 2, the second's none.
    assert found.pooled.same_problems.standard_error == pytest.approx(0.25**0.5 / 2)
    # The problems' means 0.5 and 0 have the standard deviation 0.5 / sqrt(2).
    assert found.pooled.new_problems.standard_error == pytest.approx(0.25)


def test_one_sample_a_problem_says_nothing_of_the_spread_within(tmp_path: Path) -> None:
    (found,) = compared(*runs(tmp_path, {"p0": [RIGHT], "p1": [WRONG]}, {"p0": [RIGHT], "p1": [RIGHT]}))

    assert found.pooled.same_problems.interval is None
    assert found.pooled.new_problems.interval is not None


def test_a_trajectory_without_a_score_takes_its_pair_with_it_and_that_is_told(tmp_path: Path) -> None:
    (found,) = compared(*runs(tmp_path, {"p0": [RIGHT, LOST]}, {"p0": [RIGHT, RIGHT]}))

    assert (found.pooled.pairs, found.pooled.left_out) == (1, 1)
    assert found.pooled.lost == ()
    assert any("1 pairs are left out" in warning for warning in found.warnings)
    assert any("run0 is not complete" in warning for warning in found.warnings)


def test_the_first_samples_are_paired_where_one_run_has_more(tmp_path: Path) -> None:
    (found,) = compared(*runs(tmp_path, {"p0": [RIGHT] * 4}, {"p0": [WRONG] * 2}))

    assert found.pooled.pairs == 2
    assert any("the first 2 are paired" in warning for warning in found.warnings)


@pytest.mark.parametrize(
    "differences", [[0.5, -0.25, 1.0, 0.0], [1.0], [-1.0, -1.0, -1.0], [0.25, 0.25, -0.75, 0.5, 0.0]]
)
def test_the_permutation_p_is_the_share_of_sign_changes_as_far_from_zero(differences: list[float]) -> None:
    seen = abs(sum(differences))
    sums = [
        abs(sum(sign * one for sign, one in zip(signs, differences, strict=True)))
        for signs in product((1, -1), repeat=len(differences))
    ]
    expected = sum(1 for one in sums if one >= seen - 1e-9) / len(sums)

    assert permutation_p(differences) == (pytest.approx(expected), True)


def test_the_permutation_p_of_many_problems_is_the_same_every_time() -> None:
    differences = [0.25, -0.5, 0.75, 0.5] * 8

    assert permutation_p(differences) == permutation_p(differences)
    assert not permutation_p(differences)[1]


@pytest.mark.parametrize(
    ("differences", "p"), [([], 1.0), ([0.0, 0.0], 1.0), ([0.5] * 5, 2 / 32), ([0.5] * 3 + [-1.0], 10 / 16)]
)
def test_the_sign_test_counts_problems_and_not_how_far_they_moved(differences: list[float], p: float) -> None:
    assert sign_p(differences) == pytest.approx(p)


def test_several_runs_are_held_against_the_first_and_share_the_chance_of_a_false_alarm(
    tmp_path: Path,
) -> None:
    base = {f"p{index}": [WRONG] for index in range(8)}
    better = {name: [RIGHT] for name in base}
    found = compared(*runs(tmp_path, base, better, dict(base)))

    assert [one.other.name for one in found] == ["run1", "run2"]
    assert found[0].pooled.permutation_p == pytest.approx(2 / 256)
    assert found[0].pooled_p_adjusted == pytest.approx(4 / 256)
    assert found[1].pooled_p_adjusted == 1.0


def test_other_questions_under_the_same_ids_are_refused(tmp_path: Path) -> None:
    one = made_up_run(tmp_path / "a", {"p0": [RIGHT]})
    other = made_up_run(tmp_path / "b", {"p0": [RIGHT]}, question="How few?")

    with pytest.raises(UserError, match="question or answer of p0 differ"):
        compared(one, other)


def test_another_gold_answer_is_refused(tmp_path: Path) -> None:
    one = made_up_run(tmp_path / "a", {"p0": [RIGHT]})
    other = made_up_run(tmp_path / "b", {"p0": [RIGHT]}, gold={"p0": "43"})

    with pytest.raises(UserError, match="not the same data set"):
        compared(one, other)


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"dataset": "else"}, "no data set in common"), ({}, "no problem in common")],
)
def test_runs_with_nothing_in_common_are_refused(
    tmp_path: Path, changes: dict[str, str], message: str
) -> None:
    one = made_up_run(tmp_path / "a", {"p0": [RIGHT]})
    other = made_up_run(tmp_path / "b", {"p9": [RIGHT]}, **changes)

    with pytest.raises(UserError, match=message):
        compared(one, other)


def test_a_run_against_itself_is_refused(tmp_path: Path) -> None:
    run = made_up_run(tmp_path / "a", {"p0": [RIGHT]})

    with pytest.raises(UserError, match="named twice"):
        compared(run, tmp_path / "b" / ".." / "a" if (tmp_path / "b").mkdir() is None else run)


def test_another_protocol_limit_or_file_is_warned_of_and_named(tmp_path: Path) -> None:
    one = made_up_run(tmp_path / "a", {"p0": [RIGHT]})
    problem = ProblemRecord(id="p0", row_index=0, question="How many? (0)", answer="42")
    record = DatasetRecord(name="set", path="x", sha256="9" * 64, base_seed=5, problems=(problem,))
    other = made_up_run(
        tmp_path / "b",
        {"p0": [RIGHT]},
        protocol={"rules": "esopt-math-react", "pack": "x", "pack_sha256": "2" * 64},
        profile={"name": "y", "limits": {"max_turns": 9, "context_tokens": 4000}, "sampling": {}},
        datasets=(record,),
    )
    (found,) = compared(one, other)
    said = " / ".join(found.warnings)

    assert "the protocols differ (pack_sha256)" in said
    assert "limits differ: max_turns 4 and 9" in said
    assert "different files" in said
    assert "other base seeds" in said
    assert {"profile.limits.max_turns", "protocol.pack_sha256"} <= {one.name for one in found.settings}


def test_scores_of_a_scorer_that_never_ran_are_asked_for(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no scores of exact") as raised:
        compared(*runs(tmp_path, {"p0": [RIGHT]}, {"p0": [RIGHT]}), scorer=Scorer.EXACT)

    assert "recount report" in str(raised.value.remedy)


def test_the_command_writes_table_figures_and_page(tmp_path: Path) -> None:
    runs(tmp_path, {"p0": [RIGHT, WRONG], "p1": [WRONG, WRONG]}, {"p0": [RIGHT, RIGHT], "p1": [RIGHT, WRONG]})
    figures, page = tmp_path / "c.json", tmp_path / "c.html"
    arguments = [
        "compare",
        "run0",
        "run1",
        "--out",
        str(tmp_path),
        "--json",
        str(figures),
        "--html",
        str(page),
    ]
    pytest.importorskip("jinja2")
    result = CliRunner().invoke(app, arguments)

    assert result.exit_code == 0, result.output
    assert "run1 against run0" in result.output
    assert "+50.0" in result.output
    (found,) = document(figures)["comparisons"]
    assert (found["pooled"]["difference"], found["pooled"]["gained"]) == (
        0.5,
        ["set/p0:sample01", "set/p1:sample00"],
    )
    assert page.read_text().startswith("<!DOCTYPE html>")


@pytest.mark.parametrize("hostile", [*HOSTILE.values()], ids=[*HOSTILE])
def test_what_a_model_wrote_reaches_the_terminal_clean(tmp_path: Path, hostile: str) -> None:
    name = hostile.encode("utf-8", "replace").decode()[:1000]
    runs(tmp_path, {name: ["42", hostile]}, {name: [hostile, "42"]})
    result = CliRunner().invoke(app, ["compare", "run0", "run1", "--out", str(tmp_path)])

    assert result.exit_code == 0, result.output
    assert harmful_in(result.output) == set()


def test_one_run_alone_is_bad_input(tmp_path: Path) -> None:
    runs(tmp_path, {"p0": [RIGHT]})
    result = CliRunner().invoke(app, ["compare", "run0", "--out", str(tmp_path)])

    assert isinstance(result.exception, UserError)
