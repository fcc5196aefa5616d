"""Exports: what is in them, that nothing is made up, and that hostile text harms no reader."""

import csv
import json
from pathlib import Path

import pytest
from support.events import began, run_started, terminated, turn
from support.hostile import HOSTILE, harmful_in
from support.made_up import LOST, made_up_run
from typer.testing import CliRunner

from runner.cli.main import app
from runner.errors import UserError
from runner.exports.distillation import write_distillation_traces
from runner.exports.files import new_directory
from runner.exports.rows import COLUMNS, write_csv, write_jsonl
from runner.journal import JOURNAL_NAME, JournalWriter, read_state
from runner.results.check import check_run
from runner.state import RunState


def state_of(directory: Path, answers: dict[str, list[str]], **changes: object) -> RunState:
    return read_state(made_up_run(directory, answers, **changes) / JOURNAL_NAME)  # type: ignore[arg-type]


def test_json_lines_hold_the_records_of_results_with_questions_and_turns(tmp_path: Path) -> None:
    run_dir = made_up_run(tmp_path / "run", {"p1": ["42", "41"], "p0": ["42", LOST]})
    state = read_state(run_dir / JOURNAL_NAME)
    write_jsonl(state, tmp_path / "x.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "x.jsonl").read_text().splitlines()]
    results = json.loads((run_dir / "evaluation_results.json").read_text())

    assert [row["key"] for row in rows] == ["p1:sample00", "p1:sample01", "p0:sample00", "p0:sample01"]
    for row, record in zip(rows, results["datasets"]["set"]["trajectories"], strict=False):
        assert {key: row[key] for key in record} == record
        assert row["question"].startswith("How many?")
        assert [turn["assistant"] for turn in row["turns"]][-1] == record["completion"]
    assert (rows[3]["score"], rows[3]["unfinished"], rows[3]["cause"]) == (None, True, "the engine is gone")


def test_a_csv_file_has_a_line_a_trajectory_and_no_score_where_there_is_none(tmp_path: Path) -> None:
    write_csv(state_of(tmp_path / "run", {"p0": ["42", "41", LOST]}), tmp_path / "x.csv")
    with (tmp_path / "x.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))

    assert tuple(rows[0]) == COLUMNS
    assert [row["score"] for row in rows] == ["1.0", "0.0", ""]
    assert [row["unfinished"] for row in rows] == ["false", "false", "true"]
    assert (rows[0]["prediction"], rows[0]["used_bash"], rows[0]["prompt_tokens"]) == ("42", "true", "20")


@pytest.mark.parametrize(
    ("answer", "cell"),
    [
        ("=1+1", "'=1+1"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("-5", "-5"),
        ("+0.5", "+0.5"),
        ("-x", "'-x"),
        ("a,b", "a,b"),
    ],
)
def test_no_cell_is_a_formula_and_numbers_stay_numbers(tmp_path: Path, answer: str, cell: str) -> None:
    write_csv(state_of(tmp_path / "run", {"p0": [answer]}), tmp_path / "x.csv")
    with (tmp_path / "x.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)

    assert row["prediction"] == cell


def test_traces_have_the_names_and_the_layout_that_the_distillation_reads(tmp_path: Path) -> None:
    state = state_of(tmp_path / "run", {"p0": ["42", "41", LOST]})

    assert write_distillation_traces(state, tmp_path / "out") == 2
    assert sorted(path.name for path in (tmp_path / "out/set").iterdir()) == [
        "math_agent_p0_sample00_SUCCEED.md",
        "math_agent_p0_sample01_FAILED.md",
    ]
    text = (tmp_path / "out/set/math_agent_p0_sample01_FAILED.md").read_text()
    lines = text.split("\n")
    assert lines[0] == "# Chat History math_reasoning_p0"
    for line in (
        "Task ID: p0",
        "Setting: math_reasoning",
        "Sample index: 1",
        "Score: 0.0",
        "Score method: math_paper_react_cli_exact_fallback",
        "Outcome: FAILED",
        "Failure reason: score 0.0",
        "Expected answer: 42",
        "## Round 1",
    ):
        assert line in lines
    assert '### Action\n\n```json\n{"name": "bash", "arguments": {"command": "echo 42"}}\n```' in text
    assert "### Observation\n\n```text\n42\n[exit_code] 0\n```" in text
    assert text.endswith("## Prediction\n\n41\n\n---\n\n## RESULT\nFAILED\n")


@pytest.mark.parametrize(
    "problem_id", ["../../x", "/etc/passwd", "..", "a/b", "\x00", "-rf", "ü", "x" * 5000]
)
def test_no_id_leaves_the_directory_of_traces(tmp_path: Path, problem_id: str) -> None:
    write_distillation_traces(state_of(tmp_path / "run", {problem_id: ["42"]}), tmp_path / "out")

    (path,) = (path for path in (tmp_path / "out").rglob("*") if path.is_file())
    assert path.parent == tmp_path / "out/set"
    assert path.name.startswith("math_agent_")
    assert path.name.endswith("_sample00_SUCCEED.md")


def test_ids_that_look_alike_once_made_safe_keep_their_own_traces(tmp_path: Path) -> None:
    state = state_of(tmp_path / "run", {"a/b": ["42"], "a b": ["42"], "c": ["42"]})
    write_distillation_traces(state, tmp_path / "out")

    assert sorted(path.name for path in (tmp_path / "out/set").iterdir()) == [
        "math_agent_a_b_row0000_sample00_SUCCEED.md",
        "math_agent_a_b_row0001_sample00_SUCCEED.md",
        "math_agent_c_sample00_SUCCEED.md",
    ]


@pytest.mark.parametrize("hostile", [*HOSTILE.values()], ids=[*HOSTILE])
def test_nothing_hostile_is_in_a_trace_or_a_table(tmp_path: Path, hostile: str) -> None:
    state = state_of(tmp_path / "run", {"p0": [hostile]})
    write_distillation_traces(state, tmp_path / "out")
    write_csv(state, tmp_path / "x.csv")
    write_jsonl(state, tmp_path / "x.jsonl")

    for path in (*(tmp_path / "out/set").iterdir(), tmp_path / "x.jsonl"):
        assert harmful_in(path.read_text(encoding="utf-8")) == set()
    with (tmp_path / "x.csv").open(newline="", encoding="utf-8") as file:
        assert all(harmful_in(cell) == set() for row in csv.reader(file) for cell in row)


def fill_and_fail(path: Path) -> None:
    with new_directory(path) as aside:
        (aside / "x").write_text("x")
        raise RuntimeError("in the middle")


def test_an_export_writes_over_nothing_and_leaves_nothing_where_it_fails(tmp_path: Path) -> None:
    state = state_of(tmp_path / "run", {"p0": ["42"]})
    write_distillation_traces(state, tmp_path / "out")
    with pytest.raises(UserError, match="exists already"):
        write_distillation_traces(state, tmp_path / "out")
    with pytest.raises(RuntimeError):
        fill_and_fail(tmp_path / "half")

    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "run"]


@pytest.mark.parametrize(
    ("form", "suffix"), [("jsonl", "jsonl"), ("csv", "csv"), ("traces", "traces"), ("bundle", "bundle.zip")]
)
def test_the_command_writes_beside_the_run_and_changes_nothing_of_it(
    tmp_path: Path, form: str, suffix: str
) -> None:
    run_dir = made_up_run(tmp_path / "run", {"p0": ["42"]})
    result = CliRunner().invoke(app, ["export", "run", "--format", form, "--results", str(tmp_path)])

    assert result.exit_code == 0, result.output
    assert (tmp_path / f"run.{suffix}").exists()
    assert check_run(run_dir).holds


@pytest.mark.parametrize("form", ["jsonl", "csv", "traces"])
def test_an_export_says_what_of_the_run_never_began(tmp_path: Path, form: str) -> None:
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    with JournalWriter(run_dir / JOURNAL_NAME) as journal:
        for event in (run_started(samples=3), began(), turn("Final answer: 42"), terminated()):
            journal.append(event)
    result = CliRunner().invoke(app, ["export", "run", "--format", form, "--results", str(tmp_path)])

    assert result.exit_code == 0, result.output
    assert "2 of the run never began" in result.output


def test_a_run_that_is_not_there_cannot_be_exported(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["export", "nothing", "--format", "csv", "--results", str(tmp_path)])

    assert isinstance(result.exception, UserError)
