"""A run as Inspect AI reads it: their own reader finds scores, messages and tool calls."""

import importlib
from pathlib import Path
from typing import Any

import pytest
from support.extras import needs
from support.made_up import LOST, made_up_run
from typer.testing import CliRunner

from runner.cli.main import app
from runner.errors import UserError
from runner.exports import inspect_log
from runner.exports.inspect_log import write_inspect_logs
from runner.journal import JOURNAL_NAME, read_state
from runner.protocol.score import Termination
from runner.rescore.files import ScoreKey

with_inspect = [
    needs("inspect_ai"),
    # What their library and its own warn of is theirs.
    pytest.mark.filterwarnings("default"),
]


def read(run_dir: Path, out: Path, scores: dict[str, dict[ScoreKey, float | None]] | None = None) -> Any:
    (path,) = write_inspect_logs(read_state(run_dir / JOURNAL_NAME), out, scores=scores)
    return importlib.import_module("inspect_ai.log").read_eval_log(str(path))


class TestWithInspect:
    """Through their library."""

    pytestmark = with_inspect

    def test_their_reader_finds_score_messages_and_tool_calls(self, tmp_path: Path) -> None:
        log = read(made_up_run(tmp_path / "run", {"p0": ["42", "41"], "p1": ["42", "42"]}), tmp_path / "out")

        assert (log.status, log.eval.model, log.eval.config.epochs) == ("success", "openai/m", 2)
        metrics = {name: one.value for name, one in log.results.scores[0].metrics.items()}
        assert metrics["mean"] == 0.75
        assert metrics["stderr"] == pytest.approx(0.25)
        assert [(one.id, one.epoch, one.scores["exact"].value) for one in log.samples] == [
            ("p0", 1, 1.0),
            ("p1", 1, 1.0),
            ("p0", 2, 0.0),
            ("p1", 2, 1.0),
        ]  # as their reader sorts them
        asked, said, seen, last = log.samples[2].messages
        assert (asked.role, asked.text) == ("user", "How many? (0)")
        assert [(call.function, call.arguments) for call in said.tool_calls] == [
            ("bash", {"command": "echo 42"})
        ]
        assert (seen.role, seen.tool_call_id, seen.text) == (
            "tool",
            said.tool_calls[0].id,
            "42\n[exit_code] 0",
        )
        assert "\\boxed{41}" in last.text
        assert log.samples[2].scores["exact"].answer == "41"
        assert (log.samples[2].target, log.samples[2].output.completion) == ("42", last.text)

    def test_scorers_stand_side_by_side_and_a_failure_of_one_is_no_score(self, tmp_path: Path) -> None:
        scores: dict[ScoreKey, float | None] = {("set", "p0", 0): 1.0, ("set", "p0", 1): None}
        log = read(
            made_up_run(tmp_path / "run", {"p0": ["41", "40"]}), tmp_path / "out", {"math-verify": scores}
        )

        assert [(one.name, one.metrics["mean"].value) for one in log.results.scores] == [
            ("exact", 0.0),
            ("math-verify", 1.0),
        ]
        assert [set(one.scores) for one in log.samples] == [{"exact", "math-verify"}, {"exact"}]

    def test_an_unfinished_trajectory_has_an_error_and_no_score(self, tmp_path: Path) -> None:
        log = read(made_up_run(tmp_path / "run", {"p0": ["42", LOST]}), tmp_path / "out")

        assert log.status == "error"
        assert log.samples[1].error.message == "the engine is gone"
        assert not log.samples[1].scores
        assert (log.results.total_samples, log.results.completed_samples) == (2, 1)

    def test_a_limit_of_the_protocol_is_a_limit_there(self, tmp_path: Path) -> None:
        run_dir = made_up_run(tmp_path / "run", {"p0": ["42"]}, termination=Termination.MAX_TURNS)
        limit = read(run_dir, tmp_path / "out").samples[0].limit

        assert (limit.type, limit.limit) == ("turn", 4.0)

    @pytest.mark.parametrize("hostile", ["\ud800", "\x00\x1b[2J", "<script>alert(1)</script>", "x" * 100_000])
    def test_whatever_a_model_wrote_can_be_read_back(self, tmp_path: Path, hostile: str) -> None:
        log = read(made_up_run(tmp_path / "run", {"p0": [hostile]}), tmp_path / "out")

        shown = hostile.encode("utf-8", "replace").decode()
        assert shown in log.samples[0].messages[-1].text

    def test_the_command_says_how_to_look_at_it(self, tmp_path: Path) -> None:
        made_up_run(tmp_path / "run", {"p0": ["42"]})
        result = CliRunner().invoke(app, ["export", str(tmp_path / "run"), "--format", "inspect"])

        assert result.exit_code == 0, result.output
        assert "inspect view --log-dir" in result.output.replace("\n", " ")
        assert [path.suffix for path in (tmp_path / "run.inspect").iterdir()] == [".eval"]


def test_without_inspect_the_remedy_is_told_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> Any:
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(inspect_log.importlib, "import_module", missing)
    run_dir = made_up_run(tmp_path / "run", {"p0": ["42"]})

    with pytest.raises(UserError, match="Inspect AI is not installed") as raised:
        write_inspect_logs(read_state(run_dir / JOURNAL_NAME), tmp_path / "out")
    assert ".[inspect]" in str(raised.value.remedy)
    assert not (tmp_path / "out").exists()
