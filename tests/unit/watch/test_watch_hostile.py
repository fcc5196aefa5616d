"""Text that a model wrote reaches no terminal raw, wherever the viewer shows it."""

import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import ioctl
from pathlib import Path

import pytest
from support.engine_events import engine_down
from support.events import began, retried, run_started, terminated, turn, unfinished
from support.watched import HOSTILE, Journal, Watch, bash_turn
from textual.widgets import Input

from runner.events import AnyEvent, ProblemRecord
from runner.views.watch.bars import run_line
from runner.views.watch.cells import placed_columns, row_text
from runner.views.watch.document import Line, wrapped
from runner.views.watch.index import RunIndex
from runner.views.watch.lines_scroll import LinesScroll
from runner.views.watch.panels import engine_lines, error_lines
from runner.views.watch.tail import JournalTail
from runner.views.watch.trajectory_page import trajectory_lines
from runner.views.watch.turns import Places, read_trajectory

ROOT = Path(__file__).resolve().parents[3]
HARMLESS_CONTROL = frozenset("\n")


def hostile_run(text: str) -> list[AnyEvent]:
    """A run that has the text wherever a run can have it."""
    plain = text.encode("utf-8", "replace").decode()
    start = run_started("p0", "p1", "p2", run_id=plain, dataset="set")
    problems = tuple(
        ProblemRecord(id=f"p{number}", row_index=number, question=plain, answer=plain) for number in range(3)
    )
    dataset = start.datasets[0].model_copy(update={"problems": problems, "path": text})
    return [
        start.model_copy(update={"datasets": (dataset,), "deviations": (text,)}),
        began("p0"),
        bash_turn("p0", text, observation=text, finish_reason=text, engine=text),
        turn(text, number=1, observation=text, action={"name": text, "arguments": {text: [text]}}),
        terminated("p0", prediction=text, score=0.0, react_error=text),
        began("p1", row=1),
        retried("p1", cause=text),
        began("p1", row=1, attempt=2),
        unfinished("p1", cause=text),
        began("p2", row=2),
        bash_turn("p2", text),
        engine_down(text, cause=text),
    ]


def assert_harmless(screen: str) -> None:
    bad = {
        character
        for character in screen
        if character not in HARMLESS_CONTROL
        and unicodedata.category(character) in {"Cc", "Cf", "Cs", "Zl", "Zp"}
    }
    assert not bad
    assert not re.search(r"[^\W\d_]\u0301\u0301", screen)


@pytest.mark.anyio
@pytest.mark.parametrize("text", ["".join(HOSTILE), "x" * 200_000, "日本" * 5000, "\n" * 5000])
async def test_hostile_text_is_shown_harmlessly_on_every_page(
    journal: Journal, watch: Watch, text: str
) -> None:
    journal.write(*hostile_run(text))
    async with watch((100, 40)) as viewer:
        await viewer.until_shown("running 1", "unfinished 1")
        assert_harmless(viewer.screen())
        for keys in (("2",), ("3",), ("1",), ("enter",), ("a",), ("end",), ("n",), ("n",), ("escape",)):
            await viewer.press(*keys)
            viewer.look()
            await viewer.pilot.pause()
            assert_harmless(viewer.screen())
            assert {len(line) for line in viewer.screen().splitlines()} >= {100} or not text.isascii()
        await viewer.press("slash")
        viewer.app.query_one("#find", Input).value = text[:50]
        await viewer.press("enter")
        assert_harmless(viewer.screen())
        assert viewer.app.is_running


@pytest.mark.parametrize("text", HOSTILE)
def test_each_hostile_text_is_harmless_in_rows_pages_and_panels(journal: Journal, text: str) -> None:
    journal.write(*hostile_run(text))
    index = RunIndex("journal.jsonl")
    index.take_in(JournalTail(journal.path).look().found)

    lines = [line.text for line in (*engine_lines(index), *error_lines(index))]
    lines.append(run_line(index, 0.0, "").plain)
    columns = placed_columns(200, several_datasets=True)
    for row in index.rows.values():
        told = read_trajectory(journal.path, Places.of(row))
        assert not told.problems
        lines += [line.text for line in trajectory_lines(row, told, 0.0, whole=True)]
        lines.append(row_text(row, columns, 0.0).plain)

    assert len(index.rows) == 3
    assert_harmless("\n".join(lines))
    assert not any("\n" in line for line in lines)


@pytest.mark.anyio
async def test_markup_is_shown_as_it_was_written(journal: Journal, watch: Watch) -> None:
    journal.write(run_started("p0"), began(), turn("[/bold] [link=x]y[/link] :bomb:"))
    async with watch() as viewer:
        await viewer.until_shown("running 1")
        await viewer.press("enter")
        await viewer.until_shown("[/bold] [link=x]y[/link] :bomb:")


@pytest.mark.anyio
async def test_two_hundred_kilobytes_in_one_line_are_shown_whole_when_asked_for(
    journal: Journal, watch: Watch
) -> None:
    journal.write(run_started("p0"), began(), turn("y" * 200_000 + "END"))
    async with watch((80, 40)) as viewer:
        await viewer.until_shown("running 1")
        await viewer.press("enter")
        await viewer.until_shown("200,003 characters")
        await viewer.press("a")
        page = viewer.app.screen.query_one(LinesScroll)
        await viewer.until(lambda: page.virtual_size.height > 200_000 // 80)
        await viewer.press("end")
        await viewer.until_shown("yEND")


@pytest.mark.parametrize("width", [1, 7, 80])
@pytest.mark.parametrize("text", ["word " * 50, "x" * 500, "日本語" * 40, "  indented\tcode" * 9, ""])
def test_wrapped_lines_fit_and_lose_nothing_but_blanks(text: str, width: int) -> None:
    lines = wrapped([Line(text, "bold", 0)], width)

    assert "".join(line.text for line in lines).replace(" ", "") == text.replace(" ", "")
    assert all(len(line.text) <= width for line in lines)


@contextmanager
def on_a_terminal(*arguments: str, **environment: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Run the command on a pseudo-terminal of 100 x 30."""
    leader, follower = pty.openpty()
    ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "runner", *arguments],
        cwd=ROOT,
        env=os.environ | {"TERM": "xterm-256color", "PYTHONPATH": str(ROOT)} | environment,
        stdin=follower,
        stdout=follower,
        stderr=follower,
        start_new_session=True,
    )
    os.close(follower)
    try:
        yield process, leader
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(timeout=10)
        os.close(leader)


def read_until(leader: int, wanted: bytes, timeout_s: float = 60.0) -> bytes:
    """Return what the terminal got until `wanted` came, or until it was closed."""
    got = b""
    ends_at = time.monotonic() + timeout_s
    while wanted not in got and time.monotonic() < ends_at:
        if not select.select([leader], [], [], 0.2)[0]:
            continue
        try:
            part = os.read(leader, 1 << 16)
        except OSError:
            break
        if not part:
            break
        got += part
    return got


def test_no_raw_byte_of_a_model_reaches_a_real_terminal_and_q_leaves_it_as_it_was(journal: Journal) -> None:
    journal.write(*hostile_run("".join(HOSTILE)))
    with on_a_terminal("watch", str(journal.path.parent)) as (process, leader):
        got = read_until(leader, b"unfinished")
        for key, shown in ((b"2", b"requeued"), (b"3", b"in all"), (b"1", b"state"), (b"\r", b"gold answer")):
            os.write(leader, key)
            got += read_until(leader, shown, timeout_s=20.0)
        os.write(leader, b"q")
        got += read_until(leader, b"nothing", timeout_s=20.0)
        assert process.wait(timeout=20) == 0

    for raw in (b"\x1b]52", b"\x1b]8;", b"\x9b31m", b"\xc2\x9b", b"\x00", b"\x07c", "\u202e".encode()):
        assert raw not in got, raw
    assert b"[link=file" in got
    assert b"\x1b[?1049h" in got
    assert got.rstrip().endswith(b"\x1b[?25h") or b"\x1b[?1049l" in got


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_viewer_and_leaves_the_terminal_as_it_was(
    journal: Journal, number: signal.Signals
) -> None:
    journal.write(run_started("p0"), began("p0"))
    with on_a_terminal("watch", str(journal.path.parent)) as (process, leader):
        read_until(leader, b"running")
        process.send_signal(number)
        got = read_until(leader, b"\x1b[?1049l", timeout_s=20.0)
        assert b"\x1b[?1049l" in got
        assert process.wait(timeout=20) == 0


def test_without_colours_none_are_sent(journal: Journal) -> None:
    journal.write(*hostile_run("text"))
    with on_a_terminal("watch", str(journal.path.parent), NO_COLOR="1") as (process, leader):
        got = read_until(leader, b"unfinished 1")
        os.write(leader, b"\x03")
        got += read_until(leader, b"nothing", timeout_s=20.0)
        assert process.wait(timeout=20) == 0

    assert b"unfinished" in got
    told = {int(one) for style in re.findall(rb"\x1b\[([0-9;]*)m", got) for one in style.split(b";") if one}
    assert told <= {0, 1, 2, 3, 4, 7, 22, 39, 49}, "39 and 49 are the terminal's own colours"
