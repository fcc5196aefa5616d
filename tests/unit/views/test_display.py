"""A display disturbs nothing: not when drawing fails, not when nobody reads, not at the end."""

import fcntl
import os
import pty
import struct
import termios
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from support.events import began, continued, ended, paused, run_started, terminated
from support.live import Screen

from runner.engines.reports import ReplicaDown, ReplicaUp
from runner.views import display as display_module
from runner.views.choice import Ui
from runner.views.display import Display, Labels
from runner.views.phases import Phase
from runner.views.screen import Size
from runner.views.terminal import Terminal

DEADLINE_S = 20.0


class Recorder(Terminal):
    """A terminal of a size that keeps what it gets, and may stand still or be gone."""

    def __init__(self, size: Size | None = None) -> None:
        super().__init__(-1)
        self.data = b""
        self.open = threading.Event()
        self.open.set()
        self.gone = False
        self._size = size

    def size(self) -> Size | None:
        return self._size

    def write(self, data: bytes) -> None:
        assert self.open.wait(DEADLINE_S)
        if self.gone:
            raise BrokenPipeError
        self.data += data

    @property
    def lines(self) -> list[str]:
        return [line for line in self.data.decode().splitlines() if "\x1b" not in line]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(display_module, "FIRST_FRAME_S", 0.0)
    monkeypatch.setattr(display_module, "FRAME_INTERVAL_S", 0.01)
    monkeypatch.setattr(display_module, "CPU_SHARE", 10.0)


def shown_on(terminal: Terminal | None, ui: Ui = Ui.FRAMES, **changes: Any) -> Display:
    values: dict[str, Any] = {"terminal": terminal, "write_line": lambda _: None}
    return Display(ui, Labels("title", "journal", "recount watch"), **values | changes)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "it never came to be"
        time.sleep(0.005)


def test_frames_follow_the_run() -> None:
    terminal = Recorder()
    with shown_on(terminal) as display:
        until(lambda: b"checking" in terminal.data)
        display(run_started("p0", "p1", at=time.time()))
        display(began())
        display(terminated(at=time.time()))
        until(lambda: b"1 of 2 trajectories" in terminal.data)
        display(ended())

    screen = Screen(120, 35)
    screen.feed(terminal.data)
    assert "ending" in screen.rows[0]
    assert "1 of 2 trajectories" in screen.rows[1]
    assert terminal.lines == []


def test_lines_are_written_as_they_come_in_their_order() -> None:
    lines: list[str] = []
    with shown_on(None, Ui.LINES, write_line=lines.append) as display:
        display.phase(Phase.VERIFYING, "data sets")
        display.phase(Phase.VERIFYING, "data sets", done=1, total=2)
        display(run_started("p0"))
        display(began())
        display(terminated())
        display(ended())

    assert [line.split()[0] for line in lines] == [
        "phase=verifying",
        "run=run",
        "phase=running",
        "done=1/1",
        "ended=complete",
        "phase=ending",
    ]


def test_a_pause_is_a_phase_of_its_own_until_it_is_over() -> None:
    lines: list[str] = []
    terminal = Recorder()
    with shown_on(terminal) as frames, shown_on(None, Ui.LINES, write_line=lines.append) as display:
        for show in (frames, display):
            show(run_started("p0", at=time.time()))
            show(paused())
        until(lambda: b"paused" in terminal.data and b"5 failures in a row of the sandbox" in terminal.data)
        for show in (frames, display):
            show(continued())
            show(ended())

    assert lines == [
        "run=run datasets=set problems=1 samples=1",
        "phase=running",
        'phase=paused detail="5 failures in a row of the sandbox"',
        "phase=running",
        "ended=complete",
        'phase=ending detail="closing engines and sandbox"',
    ]


def test_files_that_are_fetched_at_once_make_no_flood_of_lines() -> None:
    lines: list[str] = []
    with shown_on(None, Ui.LINES, write_line=lines.append) as display:
        for number in range(100):
            display.phase(Phase.FETCHING, f"file-{number % 3}", done=number, total=100, in_bytes=True)
        display.note("tried again: file-1")

    assert lines == ["phase=fetching detail=file-0", 'note="tried again: file-1"']


def test_progress_is_told_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(display_module, "PROGRESS_INTERVAL_S", 0.02)
    lines: list[str] = []
    with shown_on(None, Ui.LINES, write_line=lines.append) as display:
        display(run_started("p0", at=time.time()))
        until(lambda: sum(line.startswith("progress dataset=set") for line in lines) >= 3)


def test_off_says_nothing() -> None:
    terminal, lines = Recorder(), list[str]()
    with shown_on(terminal, Ui.OFF, write_line=lines.append) as display:
        display(run_started())
        display.stopping("SIGTERM")

    assert (terminal.data, lines) == (b"", [])


def test_a_signal_ends_frames_and_lines_go_on_below() -> None:
    terminal = Recorder()
    with shown_on(terminal) as display:
        display(run_started("p0"))
        display(began())
        until(lambda: b"running" in terminal.data)
        display.stopping("SIGTERM")
        until(lambda: len(terminal.lines) == 1)
        at_the_signal = terminal.data.count(b"\x1b[?2026h")
        display(terminated())
        display(ended())
        until(lambda: len(terminal.lines) >= 3)

    assert terminal.data.count(b"\x1b[?2026h") == at_the_signal
    assert terminal.lines[0].startswith("stopping signal=SIGTERM running=1")
    assert [line.split()[0] for line in terminal.lines[1:]] == ["done=1/1", "ended=complete", "phase=ending"]


def test_a_fault_in_drawing_means_lines_and_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(display_module, "compose", fail)
    terminal = Recorder()
    with shown_on(terminal) as display:
        until(lambda: bool(terminal.lines))
        display(run_started("p0"))
        display(ended())

    assert [line.split()[0] for line in terminal.lines] == [
        "display=lines",
        "run=run",
        "phase=running",
        "ended=complete",
        "phase=ending",
    ]
    assert "cause=ZeroDivisionError" in terminal.lines[0]


def test_an_event_that_cannot_be_shown_does_not_reach_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(display_module.LiveState, "apply", fail)
    with shown_on(Recorder()) as display:
        display(run_started())


def test_a_terminal_that_stands_still_holds_up_neither_the_run_nor_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(display_module, "CLOSE_TIMEOUT_S", 0.05)
    terminal = Recorder()
    terminal.open.clear()
    display = shown_on(terminal, Ui.LINES)
    with display:
        display(run_started("p0"))
        for number in range(3 * display_module.KEPT_LINES):
            display(terminated(f"p{number}"))

    assert terminal.data == b""
    terminal.open.set()
    display._thread.join(DEADLINE_S)
    assert len(terminal.lines) <= 2 * display_module.KEPT_LINES + 10
    assert [line for line in terminal.lines if line.startswith("display left_out=")]
    assert terminal.lines[-1].startswith(f"done={3 * display_module.KEPT_LINES}/")


def test_a_terminal_that_is_gone_ends_the_display_alone() -> None:
    terminal = Recorder()
    with shown_on(terminal) as display:
        until(lambda: bool(terminal.data))
        terminal.gone = True
        until(lambda: display.ui is Ui.OFF)
        display(run_started())


def test_a_pipe_without_a_reader_ends_the_display_alone() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        with shown_on(Terminal(writing), Ui.LINES) as display:
            display(run_started())
            until(lambda: display.ui is Ui.OFF)
    finally:
        os.close(writing)


def test_frames_without_a_terminal_are_lines() -> None:
    assert shown_on(None).ui is Ui.LINES


def test_engines_that_come_up_before_the_run_are_counted() -> None:
    lines: list[str] = []
    with shown_on(None, Ui.LINES, write_line=lines.append) as display:
        for number in range(2):
            display.note_engine(ReplicaUp(f"engine-{number}", 1.0, 1))
        display.note_engine(ReplicaDown("engine-2", "no memory", 0, given_up=True))
        display(run_started())
        display.note_engine(ReplicaUp("engine-2", 1.0, 2))

    assert lines[:2] == [
        'phase=starting detail="engines that serve: 1"',
        'phase=starting detail="engines that serve: 2"',
    ]
    assert lines[2].startswith("run=")


def test_a_frame_that_costs_much_is_followed_by_a_longer_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(display_module, "CPU_SHARE", 0.03)
    spent = iter([1.0, 1.06, 2.0, 2.0001, 3.0, 9.0])
    monkeypatch.setattr(display_module.time, "thread_time", lambda: next(spent))
    display = shown_on(Recorder())

    assert [round(display._draw(), 3) for _ in range(3)] == [2.0, 0.01, 5.0]


def test_a_terminal_s_size_is_read_from_it_and_zero_is_none() -> None:
    master, slave = pty.openpty()
    try:
        terminal = Terminal(slave)
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 0, 0, 0, 0))
        assert terminal.size() is None
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 35, 120, 0, 0))
        assert terminal.size() == Size(120, 35)
    finally:
        os.close(master)
        os.close(slave)


def test_no_file_has_a_size(tmp_path: Any) -> None:
    with (tmp_path / "file").open("wb") as file:
        assert Terminal(file.fileno()).size() is None
