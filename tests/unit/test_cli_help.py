"""Help that teaches: what `recount` alone shows, examples that would work, and what a shell completes."""

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from support.made_up import made_up_run
from typer.testing import CliRunner

from runner.cli.completion import complete_policy, complete_profile, complete_run
from runner.cli.main import app
from runner.cli.start import start_lines
from runner.journal import JOURNAL_NAME, JournalWriter

ROOT = Path(__file__).resolve().parents[2]
TREE: Any = typer.main.get_command(app)
OTHERS = {"inspect", "docker", "printf"}
"""What else an example may run."""


def commands(command: Any = TREE, words: tuple[str, ...] = ("recount",)) -> Iterator[tuple[str, Any]]:
    """Yield every command with the words that call it."""
    yield " ".join(words), command
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, (*words, name))


def examples() -> Iterator[tuple[str, str]]:
    """Yield every example of every help, with the command in whose help it stands."""
    for called, command in commands():
        lines = command.epilog.split("\n")[1:]
        for line in lines:
            text = line.strip()
            if line.startswith("  ") and text:
                yield called, text.split("   ")[0]


BY_WORDS = dict(commands())
EXAMPLES = list(examples())


def called_by(words: list[str]) -> tuple[Any, list[str]]:
    """Return the command that words call, and what is handed to it."""
    command, rest = TREE, words
    while rest and rest[0] in getattr(command, "commands", {}):
        command, rest = command.commands[rest[0]], rest[1:]
    return command, rest


@pytest.mark.parametrize("called", BY_WORDS)
def test_every_help_has_examples_of_its_own_command(called: str) -> None:
    of_its_own = [text for where, text in EXAMPLES if where == called and called in text]

    assert BY_WORDS[called].epilog.startswith("Examples:")
    assert of_its_own


@pytest.mark.parametrize(("called", "example"), EXAMPLES)
def test_an_example_names_commands_and_options_that_there_are(called: str, example: str) -> None:
    words = shlex.split(example)
    if words[0] in OTHERS:
        return
    assert words[0] == "recount"
    command, rest = called_by(words[1:])
    known = {option for one in command.params for option in (*one.opts, *one.secondary_opts)}
    unknown = {word for word in rest if word.startswith("--")} - known

    assert command is not TREE
    assert unknown == set()


def test_an_example_s_help_is_shown_with_its_lines_apart() -> None:
    shown = CliRunner().invoke(app, ["verify", "--help"], env={"COLUMNS": "120"})

    lines = [" ".join(line.split()) for line in shown.output.splitlines()]
    assert "recount verify artifacts every fetched file hashed again" in lines


def test_nothing_asked_for_is_told_where_to_begin(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "runner"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
    for command in ("recount eval demo", "recount doctor interval25", "recount --help"):
        assert command in done.stdout
    assert "newest run" not in done.stdout


def test_commands_that_are_told_to_begin_with_are_commands(tmp_path: Path) -> None:
    made_up_run(tmp_path / "results" / "run", {"p0": ["42"]})
    told = [line.strip() for line in start_lines(tmp_path / "results") if line.startswith("  recount ")]

    assert len(told) >= 7
    for line in told:
        command, _ = called_by(shlex.split(line.split("   ")[0])[1:])
        assert command is not TREE


def test_the_newest_run_is_named_and_one_at_work_is_only_to_be_watched(tmp_path: Path) -> None:
    run_dir = made_up_run(tmp_path / "results" / "run", {"p0": ["42"]})
    ended = start_lines(tmp_path / "results")
    writer = JournalWriter(run_dir / JOURNAL_NAME)
    at_work = start_lines(tmp_path / "results")
    writer.close()

    assert f"  recount report {run_dir}" in ended
    assert f"  recount watch {run_dir}" in at_work
    assert not any("--resume" in line for line in at_work)


def test_profiles_policies_and_runs_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    made_up_run(tmp_path / "results" / "final4-one", {"p0": ["42"]})

    assert complete_profile("in") == ["interval25"]
    assert complete_policy("") == ["demo", "report"]
    assert complete_run("fin") == ["final4-one"]


def test_where_no_name_fits_files_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "mine.toml").touch()

    assert complete_profile("own") == ["own/"]
    assert complete_profile("own/m") == ["own/mine.toml"]
    assert complete_profile(f"{tmp_path}/own/m") == [f"{tmp_path}/own/mine.toml"]
    assert complete_profile("gone/m") == []


@pytest.mark.parametrize(
    ("typed", "expected"),
    [("recount doc", "doctor"), ("recount doctor inter", "interval25"), ("recount verify r", "run")],
)
def test_bash_gets_completions(typed: str, expected: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from runner.cli.main import app; app(prog_name='recount')"],
        cwd=ROOT,
        env=os.environ
        | {
            "PYTHONPATH": str(ROOT),
            "_RECOUNT_COMPLETE": "complete_bash",
            "COMP_WORDS": typed,
            "COMP_CWORD": str(len(typed.split()) - 1),
        },
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )

    assert done.stdout.split() == [expected]
