"""A run scored again: what changes and what may not, the file it goes to, and what the command says."""

import json
import sys
from pathlib import Path
from types import ModuleType

import anyio
import pytest
from support.hostile import harmful_in
from support.made_up import LOST, document, made_up_run
from typer.testing import CliRunner

from runner.cli.main import app
from runner.errors import UserError
from runner.journal import JOURNAL_NAME, JournalFacts, read_run
from runner.protocol.score import Termination
from runner.rescore import run as rescore_run
from runner.rescore.files import read_scores, scores_by_name, scores_path, write_scores
from runner.rescore.grader import Progress
from runner.rescore.model import Failure, Grade, GradeLimits, Rescoring, failed
from runner.rescore.registry import Scorer
from runner.rescore.run import rescore
from runner.rescore.scorers import Pair
from runner.results.check import check_run
from runner.state import RunState

ANSWERS = {"p0": ["42", "41"], "p1": ["84/2", "hang"]}


def read(run_dir: Path) -> tuple[RunState, JournalFacts]:
    return read_run(run_dir / JOURNAL_NAME)


def scored(run_dir: Path, scorer: Scorer) -> Rescoring:
    return anyio.run(rescore, read(run_dir)[0], scorer)


@pytest.fixture
def symbolic(monkeypatch: pytest.MonkeyPatch) -> list[Pair]:
    """A symbolic grader of our own, which hangs on "hang" and knows that 84/2 is 42; what it was asked."""
    asked: list[Pair] = []

    async def grade_all(
        pairs: "list[Pair]", limits: GradeLimits, command: tuple[str, ...], *, progress: Progress
    ) -> tuple[dict[Pair, Grade], dict[str, str]]:
        del limits, progress
        assert command[-1] == Scorer.MATH_VERIFY.module
        asked.extend(pairs)
        return {
            pair: failed(Failure.TIMEOUT, "more than 1 s")
            if pair[0] == "hang"
            else Grade(float(pair[0] in {pair[1], "84/2"}), "math_verify", None, "", pair[0], pair[1])
            for pair in asked
        }, {"fake": "1"}

    monkeypatch.setattr(rescore_run, "grade_all", grade_all)
    return asked


def test_the_exact_scorer_gives_the_recorded_scores(tmp_path: Path) -> None:
    again = scored(made_up_run(tmp_path / "run", ANSWERS), Scorer.EXACT)

    assert again.differences == []
    assert again.failures == []
    assert [row.grade.score for row in again.rows] == [1.0, 0.0, 1.0, 0.0]


def test_only_the_answers_that_differ_change_and_a_failure_is_no_score(
    tmp_path: Path, symbolic: list[Pair]
) -> None:
    run_dir = made_up_run(tmp_path / "run", {"p0": ["42", "41"], "p1": ["84/2", "hang"]}, gold={"p1": "2"})
    again = scored(run_dir, Scorer.MATH_VERIFY)

    assert [(row.key.problem_id, row.answer, row.recorded, row.grade.score) for row in again.differences] == [
        ("p1", "84/2", 0.0, 1.0)
    ]
    assert [(row.key.sample, row.grade.score) for row in again.failures] == [(1, None)]
    assert again.failure_counts == {"timeout": 1}
    assert len(symbolic) == 4


@pytest.mark.parametrize("termination", [Termination.CONTEXT_LENGTH_EXCEEDED, Termination.REQUEST_ERROR])
def test_what_the_protocol_does_not_credit_is_not_asked_for(
    tmp_path: Path, symbolic: list[Pair], termination: Termination
) -> None:
    run_dir = made_up_run(tmp_path / "run", {"p0": ["42"]}, termination=termination)
    again = scored(run_dir, Scorer.MATH_VERIFY)

    assert symbolic == []
    assert [(row.grade.score, row.grade.method) for row in again.rows] == [(0.0, termination.value)]


def test_unfinished_trajectories_are_counted_and_never_scored(tmp_path: Path) -> None:
    again = scored(made_up_run(tmp_path / "run", {"p0": ["42", LOST]}), Scorer.EXACT)

    assert (len(again.rows), again.unfinished) == (1, 1)


def test_a_run_without_a_score_cannot_be_scored_again(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no trajectory"):
        scored(made_up_run(tmp_path / "run", {"p0": [LOST]}), Scorer.EXACT)


def test_a_file_of_scores_holds_all_of_them_and_leaves_the_run_as_it_was(
    tmp_path: Path, symbolic: list[Pair]
) -> None:
    run_dir = made_up_run(tmp_path / "run", ANSWERS, gold={"p1": "2"})
    before = {path.name: path.read_bytes() for path in run_dir.iterdir() if path.is_file()}
    _, facts = read(run_dir)
    again = scored(run_dir, Scorer.MATH_VERIFY)
    path = write_scores(run_dir, "run", facts, again)

    assert {name: (run_dir / name).read_bytes() for name in before} == before
    assert check_run(run_dir).holds
    files, stale = read_scores(run_dir, facts)
    assert stale == []
    assert files[Scorer.MATH_VERIFY].rescoring == again
    assert scores_by_name(files) == {
        "math-verify": {
            ("set", "p0", 0): 1.0,
            ("set", "p0", 1): 0.0,
            ("set", "p1", 0): 1.0,
            ("set", "p1", 1): None,
        }
    }
    figures = document(path)["datasets"]["set"]
    assert (figures["scored"], figures["failed"], figures["differs"]) == (3, 1, 1)
    assert (figures["if_failed_wrong"], figures["if_failed_right"]) == (0.5, 0.75)
    assert symbolic


@pytest.mark.parametrize(
    ("scorer", "find", "put"),
    [
        (Scorer.EXACT, '"score": 1.0', '"score": 0.0'),
        (Scorer.MATH_VERIFY, '"recorded_score": 1.0', '"recorded_score": 0.0'),
        (Scorer.MATH_VERIFY, '"answer": "42"', '"answer": "43"'),
        (Scorer.MATH_VERIFY, '"task_id": "p0"', '"task_id": "p9"'),
    ],
)
def test_scores_that_do_not_fit_the_journal_are_found_by_verify(
    tmp_path: Path, symbolic: list[Pair], scorer: Scorer, find: str, put: str
) -> None:
    run_dir = made_up_run(tmp_path / "run", ANSWERS)
    path = write_scores(run_dir, "run", read(run_dir)[1], scored(run_dir, scorer))
    assert check_run(run_dir).holds
    path.write_text(path.read_text().replace(find, put, 1))

    differences = check_run(run_dir).differences
    assert differences
    assert all(place.startswith(f"scores/{scorer.value}.json: set/p") for place, _ in differences)
    assert symbolic or scorer is Scorer.EXACT


def test_scores_of_an_earlier_journal_are_not_used(tmp_path: Path) -> None:
    run_dir = made_up_run(tmp_path / "run", ANSWERS)
    _, facts = read(run_dir)
    write_scores(run_dir, "run", JournalFacts(1, "0" * 64, ""), scored(run_dir, Scorer.EXACT))

    files, stale = read_scores(run_dir, facts)
    assert files == {}
    assert len(stale) == 1


@pytest.mark.parametrize("content", ["", "[", "[]", '{"version": 1}', '{"version": 2}', "[" * 100_000])
def test_a_file_that_is_none_is_bad_input_that_names_it(tmp_path: Path, content: str) -> None:
    run_dir = made_up_run(tmp_path / "run", ANSWERS)
    path = scores_path(run_dir, Scorer.EXACT)
    path.parent.mkdir()
    path.write_text(content)

    with pytest.raises(UserError, match=r"exact\.json"):
        read_scores(run_dir, read(run_dir)[1])


@pytest.fixture
def reported(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What the report was given, in the place of writing one."""
    given: list[object] = []

    def write_report(run_dir: Path, *, scores: object) -> Path:
        given.append(scores)
        return run_dir / "report.html"

    fake = ModuleType("runner.report")
    fake.write_report = write_report  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "runner.report", fake)
    return given


def test_the_command_lists_what_differs_and_exits_3_where_the_scorer_failed(
    tmp_path: Path, symbolic: list[Pair], reported: list[object]
) -> None:
    run_dir = made_up_run(tmp_path / "run", ANSWERS, gold={"p1": "2"})
    arguments = ["report", str(run_dir), "--scorer", "exact", "--scorer", "math-verify"]
    result = CliRunner().invoke(app, arguments)

    assert result.exit_code == 3
    for part in ("math-verify differs from the recorded score for 1", "set/p1:0", "84/2", "0 -> 1"):
        assert part in result.output
    assert "failed on 1 (timeout 1): no score" in result.output
    assert "report in" in result.output
    assert symbolic
    (scores,) = reported
    assert isinstance(scores, dict)
    assert set(scores) == {"exact", "math-verify"}


def test_the_command_without_a_scorer_writes_the_report_alone(tmp_path: Path, reported: list[object]) -> None:
    run_dir = made_up_run(tmp_path / "run", ANSWERS)
    result = CliRunner().invoke(app, ["report", "run", "--out", str(tmp_path)])

    assert (result.exit_code, reported) == (0, [{}])
    assert not (run_dir / "scores").exists()


def test_what_a_model_answered_reaches_the_terminal_clean(tmp_path: Path, symbolic: list[Pair]) -> None:
    hostile = "\x1b[2J\u202e\x00hang"
    run_dir = made_up_run(tmp_path / "run", {"p0": [hostile, "84/2"]}, gold={"p0": "2"})
    result = CliRunner().invoke(app, ["report", str(run_dir), "--scorer", "math-verify", "--no-html"])

    assert result.exit_code == 0
    assert harmful_in(result.output) == set()
    assert symbolic


def test_a_run_that_is_not_there_is_bad_input(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["report", "nothing", "--out", str(tmp_path)])

    assert isinstance(result.exception, UserError)


def test_lone_surrogates_in_an_answer_survive_the_file(tmp_path: Path) -> None:
    run_dir = made_up_run(tmp_path / "run", {"p0": ["\ud800"]})
    _, facts = read(run_dir)
    path = write_scores(run_dir, "run", facts, scored(run_dir, Scorer.EXACT))

    assert json.loads(path.read_text())["trajectories"][0]["answer"] == "\ud800"
    assert read_scores(run_dir, facts)[0]
