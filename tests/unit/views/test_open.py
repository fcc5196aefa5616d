"""From the surroundings of a command to its display, its log and its labels."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from support.events import began, ended, run_started, terminated

from runner.logs import LOG_NAME
from runner.views.choice import Ui
from runner.views.open import WATCH_VARIABLE, RunDisplay, open_display

ROOT = Path(__file__).parents[3]


def play(display: RunDisplay) -> None:
    for event in (run_started("p0"), began(), terminated(), ended()):
        display(event)


def opened(results: Path, lines: list[str], **changes: Any) -> Any:
    values: dict[str, Any] = {
        "run_id": "run-1",
        "title": "run-1",
        "results_dir": results,
        "write_line": lines.append,
        "write_error": lines.append,
        "environment": {"TERM": "xterm"},
    }
    return open_display(values.pop("ui", changes.pop("ui", Ui.AUTO)), **values | changes)


def test_without_a_terminal_a_run_is_lines_and_its_log_lies_beside_its_journal(tmp_path: Path) -> None:
    lines: list[str] = []
    with opened(tmp_path, lines) as display:
        assert display.ui is Ui.LINES
        os.write(2, b"ERROR something of a library\n")
        (tmp_path / "run-1").mkdir()
        play(display)

    assert (tmp_path / "run-1" / LOG_NAME).read_bytes() == b"ERROR something of a library\n"
    assert [line.split()[0] for line in lines if not line.startswith("log")] == [
        "run=run",
        "phase=running",
        "done=1/1",
        "ended=complete",
        "phase=ending",
    ]
    assert "log error=ERROR something of a library" in lines


def test_a_run_that_never_begins_shows_what_was_logged(tmp_path: Path) -> None:
    lines: list[str] = []
    with opened(tmp_path, lines, ui=Ui.OFF):
        os.write(2, b"CUDA error: no device\n")

    assert lines == ["CUDA error: no device"]
    assert list(tmp_path.iterdir()) == []


PROGRAM = """
import sys
sys.path[:0] = [{tests!r}]
from pathlib import Path
from support.events import began, ended, run_started, terminated
from runner.views import display as module
from runner.views.choice import Ui
from runner.views.open import open_display
import time
module.FIRST_FRAME_S = 0.0
results = Path({results!r})
with open_display(Ui({ui!r}), run_id="run-1", title="run-1", results_dir=results, write_line=print,
                  write_error=print) as display:
    (results / "run-1").mkdir()
    for event in (run_started("p0"), began(), terminated(), ended()):
        display(event)
    print("a library's chatter", flush=True)
    time.sleep(0.3)
print("summary")
"""


@pytest.mark.parametrize(
    ("ui", "encoding", "expected"),
    [("frames", "utf-8", "█"), ("frames", "ascii", "#"), ("off", "utf-8", ""), ("lines", "utf-8", "ended=")],
)
def test_a_process_shows_its_run_and_nothing_else(
    tmp_path: Path, ui: str, encoding: str, expected: str
) -> None:
    """Frames that are asked for are drawn into a pipe too; what a stream cannot encode is not tried."""
    program = textwrap.dedent(PROGRAM).format(tests=str(ROOT / "tests"), results=str(tmp_path), ui=ui)
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "PYTHONIOENCODING": encoding,
        WATCH_VARIABLE: "docker compose exec demo recount watch",
    }
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, timeout=60, check=True
    )

    shown = done.stdout.decode(encoding)
    assert expected in shown
    assert "chatter" not in shown
    assert shown.endswith("summary\n")
    assert (b"\x1b[?2026h" in done.stdout) == (ui == "frames")
    assert ("docker compose exec demo recount watch" in shown) == (ui == "frames")
    assert "chatter" in (tmp_path / "run-1" / LOG_NAME).read_text()
    assert done.stderr == b""


def test_a_run_that_goes_on_counts_its_earlier_parts_and_does_not_tell_them_again(tmp_path: Path) -> None:
    lines: list[str] = []
    with opened(tmp_path, lines, ui=Ui.LINES) as display:
        display.catch_up([run_started("p0", "p1"), terminated("p0", score=1.0)])
        display(terminated("p1", score=0.0))

    told = [line for line in lines if line.startswith(("done=", "run="))]
    assert [line.split()[0] for line in told] == ["done=2/2"]
    assert told[0].endswith("mean=0.500")


def test_what_is_to_be_known_before_a_run_is_said_with_its_columns(tmp_path: Path) -> None:
    lines: list[str] = []
    with opened(tmp_path, lines, ui=Ui.LINES) as display:
        display.brief(["what it can tell", "", "  set    0.05  \x1b[2J0.10"])

    assert lines[:2] == ["what it can tell", "  set    0.05  0.10"]
