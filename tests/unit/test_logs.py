"""What libraries and children write goes to the run's log, whenever they write it, and to no terminal."""

import logging
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.hostile import HOSTILE, harmful_in

from runner.logs import LOG_NAME, TAIL_LINES, RunLog, run_log

ROOT = Path(__file__).parents[2]


@contextmanager
def open_log(results: Path, told: list[str] | None = None) -> Iterator[RunLog]:
    with run_log(results, "run-1", tell=(told if told is not None else []).append) as log:
        yield log


def begin(results: Path) -> Path:
    run_dir = results / "run-1"
    run_dir.mkdir(parents=True)
    return run_dir


def outside(results: Path, body: str) -> tuple[str, str]:
    """Run `body` with the log open in a process of its own: pytest has taken this one's streams already."""
    program = f"""
import logging, os, subprocess, sys, warnings
from pathlib import Path
from runner.logs import run_log
results = Path({str(results)!r})
with run_log(results, "run-1", tell=print) as log:
{textwrap.indent(textwrap.dedent(body), "    ")}
print("behind")
print("behind too", file=sys.stderr)
"""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout, done.stderr


def test_whoever_writes_it_it_is_in_the_run_s_log_and_on_no_terminal(tmp_path: Path) -> None:
    shown = outside(
        tmp_path,
        """
        os.write(2, b"of a library in C\\n")
        (results / "run-1").mkdir()
        log.move_to(results / "run-1")
        print("of a library in Python")
        print("on standard error", file=sys.stderr)
        subprocess.run([sys.executable, "-c", "print('of a child')"], check=True)
        logging.getLogger("some.library").warning("logged %s", "and formatted")
        warnings.warn("warned of")
        """,
    )

    written = (tmp_path / "run-1" / LOG_NAME).read_text()
    for part in (
        "of a library in C",
        "of a library in Python",
        "on standard error",
        "of a child",
        "WARNING some.library: logged and formatted",
        "UserWarning: warned of",
    ):
        assert part in written
    assert shown == ("behind\n", "behind too\n")


def test_a_display_writes_to_the_terminal_past_the_log(tmp_path: Path) -> None:
    shown = outside(
        tmp_path,
        """
        (results / "run-1").mkdir()
        log.move_to(results / "run-1")
        print("hidden")
        os.write(log.terminal_fd, b"shown, ")
        """,
    )

    assert shown == ("shown, behind\n", "behind too\n")


def test_a_child_that_was_started_before_the_run_writes_into_its_log_too(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        command = [sys.executable, "-c", "import sys; sys.stdin.read(); sys.stderr.write('late')"]
        child = subprocess.Popen(command, stdin=subprocess.PIPE)
        log.move_to(begin(tmp_path))
        child.communicate(timeout=60)

    assert (tmp_path / "run-1" / LOG_NAME).read_text() == "late"
    assert [path.name for path in tmp_path.iterdir()] == ["run-1"]


def test_where_results_are_does_not_exist_yet_the_log_moves_there_all_the_same(tmp_path: Path) -> None:
    results = tmp_path / "results"
    with open_log(results) as log:
        os.write(2, b"before\n")
        assert not results.exists()
        log.move_to(begin(results))
        os.write(2, b"after\n")

    assert (results / "run-1" / LOG_NAME).read_text() == "before\nafter\n"


def test_another_file_system_is_no_hindrance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(Path, "replace", refuse)
    with open_log(tmp_path) as log:
        os.write(2, b"before\n")
        log.move_to(begin(tmp_path))
        os.write(2, b"after\n")
        logging.getLogger("x").error("logged")
        assert any("ERROR x: logged" in line for line in log.new_errors())

    assert (tmp_path / "run-1" / LOG_NAME).read_text().startswith("before\nafter\n")
    assert [path.name for path in tmp_path.iterdir()] == ["run-1"]


def test_what_was_said_before_a_run_that_never_began_is_told(tmp_path: Path) -> None:
    told: list[str] = []
    with open_log(tmp_path, told):
        for number in range(100):
            os.write(2, f"line {number} \x1b]52;c;x\x07\n".encode())

    assert told == ["\n".join(f"line {number} " for number in range(100 - TAIL_LINES, 100)).strip()]
    assert list(tmp_path.iterdir()) == []


def test_nothing_said_leaves_nothing(tmp_path: Path) -> None:
    told: list[str] = []
    with open_log(tmp_path, told) as log:
        log.move_to(begin(tmp_path))
    with open_log(tmp_path, told):
        pass

    assert told == []
    assert list((tmp_path / "run-1").iterdir()) == []


def test_logging_is_what_it_was_behind_the_run(tmp_path: Path) -> None:
    handlers = list(logging.getLogger().handlers)
    with open_log(tmp_path):
        assert logging.getLogger().handlers != handlers

    assert logging.getLogger().handlers == handlers


def test_errors_are_found_once_and_whole(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        os.write(2, b"INFO all well\nERROR the first\n  raise x\nValueError: half of")
        assert log.new_errors() == ["ERROR the first"]
        os.write(2, b" it\nnothing\n")
        assert log.new_errors() == ["ValueError: half of it"]
        assert log.new_errors() == []
        os.write(2, b"torch.OutOfMemoryError: CUDA out of memory\n(EngineCore pid=7) CRITICAL gone\n")
        assert len(log.new_errors()) == 2


def test_a_flood_of_errors_is_looked_through_at_its_end(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        for number in range(2000):
            os.write(2, f"ERROR {number} {'x' * 500}\n".encode())
        found = log.new_errors()

        assert [line.split()[1] for line in found] == [str(number) for number in range(1995, 2000)]
        assert log.new_errors() == []
        os.write(2, b"ERROR one more\n")
        assert log.new_errors() == ["ERROR one more"]


@pytest.mark.parametrize("name", HOSTILE)
def test_the_tail_of_a_hostile_log_is_harmless(tmp_path: Path, name: str) -> None:
    told: list[str] = []
    with open_log(tmp_path, told) as log:
        os.write(2, HOSTILE[name].encode("utf-8", errors="surrogatepass") + b"\xff\n")
        log.new_errors()

    assert harmful_in("".join(told)) == set()
