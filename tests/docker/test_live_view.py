"""The display where it is used: `docker compose up` and `run` on a terminal, and into a file."""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from support.live import Screen
from test_compose import COMPOSE_FILE, Project, built, project  # noqa: F401 - fixtures
from typing_extensions import Self

pytestmark = [pytest.mark.compose, pytest.mark.timeout(600)]

DEADLINE_S = 240.0
XTERM = {"TERM": "xterm-256color", "CI": "", "EVAL_UI": "", "NO_COLOR": ""}


class OnTerminal:
    """A Compose command on a terminal of a size, and what is seen there."""

    def __init__(self, compose: Project, *arguments: str, columns: int, rows: int) -> None:
        self.screen = Screen(columns, rows, prefix=b"")
        self.data = b""
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self._process = subprocess.Popen(
            [*compose.command, *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=os.environ | XTERM,
            start_new_session=True,
        )
        os.close(slave)

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Follow the output until `condition`."""
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < deadline, f"{what} never came:\n{self.screen.text}"
            assert self._read(), f"it ended before {what}:\n{self.screen.text}"

    def end(self) -> int:
        """Follow the output to its end and return the exit code."""
        while self._read():
            pass
        return self._process.wait(timeout=DEADLINE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            os.kill(self._process.pid, signal.SIGINT)
            self._process.wait(timeout=DEADLINE_S)
        os.close(self._master)

    def _read(self) -> bool:
        ready, _, _ = select.select([self._master], [], [], 1.0)
        if not ready:
            return self._process.poll() is None
        try:
            data = os.read(self._master, 1 << 16)
        except OSError:  # nobody holds the other end any more
            return False
        self.data += data
        self.screen.feed_raw(data)
        return bool(data)


@pytest.mark.parametrize("menu", ["--menu=true", "--menu=false"])
def test_under_up_frames_stand_on_the_screen_without_a_prefix(project: Project, menu: str) -> None:  # noqa: F811
    with OnTerminal(project, "up", menu, "demo", columns=120, rows=35) as seen:
        seen.until(lambda: "running" in seen.screen.rows[0], "a frame")
        seen.until(lambda: any(row.startswith("✓ demo/") for row in seen.screen.rows), "a trajectory's end")
        frame = list(seen.screen.rows)
        assert frame[0].startswith("Recount")
        assert not [row for row in frame[:30] if row.startswith("demo-1")]
        assert seen.end() == 0

    assert "results in /results/demo-" in "\n".join([*seen.screen.scrolled_out, *seen.screen.rows])


def test_under_run_the_real_size_is_used_and_the_exit_code_passed_on(project: Project) -> None:  # noqa: F811
    with OnTerminal(project, "run", "--rm", "demo", columns=100, rows=30) as seen:
        seen.until(lambda: "running" in seen.screen.rows[0], "a frame")
        seen.until(
            lambda: any(row.startswith("last ended") for row in seen.screen.rows), "a trajectory's end"
        )
        assert seen.screen.rows[-1] == ""
        assert seen.end() == 0

    assert any(row.startswith("results in /results/demo-") for row in seen.screen.rows)


@pytest.mark.parametrize("asked", [{"EVAL_UI": "lines"}, {"CI": "true"}, {"TERM": ""}, {"TERM": "dumb"}])
def test_lines_into_a_file_carry_no_escape_code(
    project: Project,  # noqa: F811
    asked: Mapping[str, str],
) -> None:
    done = subprocess.run(
        [*project.command, "up", "--exit-code-from", "demo", "demo"],
        capture_output=True,
        env=os.environ | XTERM | dict(asked),
        timeout=DEADLINE_S,
        check=True,
    )

    lines = [line for line in done.stdout.decode().splitlines() if line.startswith("demo-1")]
    assert not [line for line in lines if "\x1b" in line]
    assert sum("| done=" in line for line in lines) == 40
    assert [line for line in lines if "| ended=complete" in line]


def test_the_log_of_a_container_is_capped() -> None:
    text = Path(COMPOSE_FILE).read_text(encoding="utf-8")

    assert 'max-size: "10m", max-file: "2"' in text
