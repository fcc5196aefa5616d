"""`recount watch` before it shows anything: which run, and on what."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.events import run_started
from support.watched import Journal

from runner.errors import UserError
from runner.views.watch.find import find_run

ROOT = Path(__file__).resolve().parents[3]


def run_in(results: Path, name: str, written_at: float = 1.0) -> Path:
    directory = results / name
    directory.mkdir(parents=True)
    Journal(directory / "journal.jsonl").write(run_started())
    os.utime(directory / "journal.jsonl", (written_at, written_at))
    return directory / "journal.jsonl"


def recount(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "runner", *arguments],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT), "NO_COLOR": "1", "COLUMNS": "200"} | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )


def test_the_run_that_was_written_last_is_the_default(tmp_path: Path) -> None:
    run_in(tmp_path, "zzz", written_at=10.0)
    newest = run_in(tmp_path, "aaa", written_at=20.0)
    (tmp_path / "no-run").mkdir()
    (tmp_path / "a-file").write_text("")

    assert find_run(None, tmp_path) == newest


def test_a_run_is_named_by_id_directory_or_journal(tmp_path: Path) -> None:
    journal = run_in(tmp_path / "results", "one")

    assert find_run("one", tmp_path / "results") == journal
    assert find_run(str(journal.parent), tmp_path) == journal
    assert find_run(str(journal), tmp_path) == journal


def test_a_directory_whose_journal_is_still_to_come_is_a_run(tmp_path: Path) -> None:
    (tmp_path / "early").mkdir()

    assert find_run("early", tmp_path) == tmp_path / "early" / "journal.jsonl"


@pytest.mark.parametrize("named", ["nowhere", "x" * 5000, "\x00", "a\x1b[31m", ""])
def test_a_run_that_is_not_there_is_told_with_those_that_are(tmp_path: Path, named: str) -> None:
    run_in(tmp_path, "known")

    if named == "":  # the current directory, or the results directory itself: neither holds a journal
        return
    with pytest.raises(UserError) as told:
        find_run(named, tmp_path)

    assert told.value.remedy == "name one of: known"


@pytest.mark.parametrize("exists", [True, False])
def test_no_run_at_all_is_exit_code_2_with_a_way_on(tmp_path: Path, exists: bool) -> None:
    results = tmp_path / "results"
    if exists:
        results.mkdir()

    done = recount("watch", RECOUNT_RESULTS=str(results))

    assert done.returncode == 2
    assert f"no run below {results}" in done.stderr
    assert "recount eval demo" in done.stderr
    assert "Traceback" not in done.stderr


def test_without_a_terminal_it_says_so_and_names_what_can_be_read_instead(tmp_path: Path) -> None:
    journal = run_in(tmp_path, "one")

    done = recount("watch", "--out", str(tmp_path))

    assert done.returncode == 2
    assert done.stdout == ""
    assert "stdin and stdout and stderr" in done.stderr
    assert str(journal) in done.stderr
    assert "summary.txt" in done.stderr


def test_help_names_the_way_into_a_container() -> None:
    done = recount("watch", "--help")

    assert done.returncode == 0
    assert "docker compose exec eval recount watch" in done.stdout
