"""The Python interface: what a notebook sees of a run, and that the documented example runs."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.made_up import LOST, made_up_run

import runner
from runner import open_run
from runner.errors import RecountError, UserError
from runner.journal import JOURNAL_NAME, JournalError, JournalFacts, read_run
from runner.protocol.score import Termination
from runner.rescore.files import write_scores
from runner.rescore.model import Failure, Grade, Rescored, Rescoring, failed
from runner.rescore.registry import Scorer

ROOT = Path(__file__).resolve().parents[2]
ANSWERS = {"p1": ["42", "41"], "p0": ["42", "42"]}


def test_the_documented_example_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (ROOT / "docs/python.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    made_up_run(tmp_path / "results/demo", ANSWERS)
    monkeypatch.chdir(tmp_path)

    exec(compile(block, "docs/python.md", "exec"), {})  # noqa: S102 - our own documentation

    said = capsys.readouterr().out
    assert "set 0.75 of 4 scores" in said
    assert "p1 1 41 instead of 42" in said
    assert "['echo 42']" in said


def test_trajectories_stand_in_the_data_set_s_order_with_all_that_is_known(tmp_path: Path) -> None:
    run = open_run(made_up_run(tmp_path / "run", ANSWERS))

    assert [(one.problem_id, one.sample, one.score) for one in run.trajectories] == [
        ("p1", 0, 1.0),
        ("p1", 1, 0.0),
        ("p0", 0, 1.0),
        ("p0", 1, 1.0),
    ]
    one = run.trajectory("set", "p1", 1)
    assert (one.gold, one.prediction, one.termination) == ("42", "41", Termination.FINAL_ANSWER)
    assert (len(one.turns), one.generated_tokens, one.elapsed_s) == (2, 10, 1.5)
    assert (run.id, run.is_complete, len(run.rows())) == ("run", True, 4)


def test_figures_are_those_of_the_results(tmp_path: Path) -> None:
    run = open_run(made_up_run(tmp_path / "run", ANSWERS))
    found, results = run.datasets["set"], run.results["datasets"]["set"]
    mean = found.mean()

    assert mean.value == results["mean"]["value"] == 0.75
    assert mean.error_same_problems == pytest.approx(results["mean"]["same_problems"]["standard_error"])
    assert mean.error_new_problems == pytest.approx(results["mean"]["new_problems"]["standard_error"])
    assert mean.interval is not None
    assert mean.interval.low == pytest.approx(results["mean"]["interval"]["low"])
    assert {str(k): found.pass_at_k(k) for k in (1, 2)} == results["pass_at_k"]
    assert found.pass_at_k(3) is None
    assert found.sample_means() == {0: 1.0, 1: 0.5}


def test_an_unfinished_trajectory_has_a_cause_and_no_score(tmp_path: Path) -> None:
    run = open_run(made_up_run(tmp_path / "run", {"p0": ["42", LOST]}))
    lost = run.trajectory("set", "p0", 1)

    assert (lost.score, lost.termination, lost.unfinished_because) == (None, None, "the engine is gone")
    assert not run.is_complete
    assert (run.datasets["set"].mean().scored, run.datasets["set"].mean().planned) == (1, 2)
    assert run.rows()[1]["score"] is None


def test_a_run_at_work_is_read_as_far_as_it_is(tmp_path: Path) -> None:
    run_dir = made_up_run(tmp_path / "run", ANSWERS, ended=False)
    journal = run_dir / JOURNAL_NAME
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:6]) + lines[6][:20])

    run = open_run(journal)
    assert [one.score for one in run.trajectories] == [1.0, None]
    assert not run.is_complete


def test_scores_of_another_scorer_leave_out_what_it_failed_on(tmp_path: Path) -> None:
    run_dir = made_up_run(tmp_path / "run", {"p0": ["41", "40"]})
    state, facts = read_run(run_dir / JOURNAL_NAME)
    keys = state.planned()
    rows = [
        Rescored(keys[0], "41", "42", 0.0, Grade(1.0, "math_verify")),
        Rescored(keys[1], "40", "42", 0.0, failed(Failure.TIMEOUT)),
    ]
    write_scores(run_dir, "run", facts, Rescoring(Scorer.MATH_VERIFY, {}, None, rows, 0))
    found = open_run(run_dir).datasets["set"]

    assert (found.mean().value, found.mean("math-verify").value) == (0.0, 1.0)
    assert found.mean(Scorer.MATH_VERIFY).scored == 1
    with pytest.raises(UserError, match="no scores of exact"):
        found.mean("exact")


def test_what_is_no_run_is_said_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(RecountError) as raised:
        open_run(tmp_path)
    (tmp_path / JOURNAL_NAME).write_text("{}\n")

    assert raised.value.remedy is not None
    with pytest.raises(JournalError, match=r"journal\.jsonl:1"):
        open_run(tmp_path)


def test_importing_the_package_imports_nothing_else() -> None:
    script = (
        "import sys, runner; print(*[one for one in sys.modules if one.startswith(('runner.', 'pydantic'))])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == ""


def test_what_the_package_does_not_have_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = runner.nothing


def test_facts_name_the_file_that_was_read(tmp_path: Path) -> None:
    run = open_run(made_up_run(tmp_path / "run", ANSWERS))

    assert isinstance(run.journal, JournalFacts)
    assert run.journal.sha256 == run.results["journal"]["sha256"]
