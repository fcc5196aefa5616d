"""A run in which every text is hostile: what reaches the terminal is asserted on bytes, view by view."""

import re
from pathlib import Path

import pytest
from support.builders import answer, bash, write_lines, write_profile
from support.fake_sandbox import FakeSandbox, result
from support.hostile import HOSTILE, harmful_in, without_our_codes
from support.live import Screen
from support.runs import run_plan

from runner.engines.base import TrajectoryKey
from runner.engines.scripted import Script, ScriptedEngine
from runner.errors import ExitCode
from runner.plan import make_plan
from runner.results.summary import summary_text
from runner.views.activity import WatchedSandbox
from runner.views.choice import Ui
from runner.views.display import Display, Labels
from runner.views.screen import Size
from runner.views.terminal import Terminal

pytestmark = pytest.mark.anyio

CONTEXT_TOKENS = 10_000_000


class Recorder(Terminal):
    def __init__(self, size: Size | None) -> None:
        super().__init__(-1)
        self.data, self._size = b"", size

    def size(self) -> Size | None:
        return self._size

    def write(self, data: bytes) -> None:
        self.data += data


def whole(text: str) -> str:
    """A data set's file and a command's output hold no lone surrogates; what a model writes may."""
    return text.encode("utf-8", errors="replace").decode()


def hostile_script() -> dict[TrajectoryKey, tuple[str | None, ...]]:
    """Every hostile text as a command, as prose, as an unknown action's name and as an answer."""
    return {
        TrajectoryKey("set", f"{number}-{whole(text[:40])}", 0): (
            bash(text),
            text,
            'Action: {"name": "\\u001b]52;c;x\\u0007", "arguments": {}}',
            answer(text),
        )
        for number, text in enumerate(HOSTILE.values())
    }


async def hostile_run(directory: Path, ui: Ui, size: Size | None) -> bytes:
    """Run it and return what the terminal got."""
    script = hostile_script()
    profile = write_profile(
        directory,
        {"kind": "scripted", "script": "script.jsonl"},
        extra="[concurrency]\ntrajectories = 8\ngenerations = 8\ntools = 8\n",
    )
    write_lines(
        directory / "set.jsonl",
        (
            {"id": key.problem_id, "question": whole(text[:1000]), "answer": whole(text[:1000])}
            for key, text in zip(script, HOSTILE.values(), strict=True)
        ),
    )
    plan = make_plan(str(profile), overrides={"limits.context_tokens": CONTEXT_TOKENS})
    engine = ScriptedEngine(Script(script), context_tokens=CONTEXT_TOKENS, latency_s=0.02)
    texts = list(HOSTILE.values())
    sandbox = FakeSandbox(lambda command: result(stdout=whole(texts[len(command) % len(texts)][:200])))
    terminal = Recorder(size)
    with Display(ui, Labels("hostile"), terminal=terminal, write_line=print) as display:
        outcome = await run_plan(
            plan,
            engine,
            WatchedSandbox(sandbox, display.note_command),
            run_id="run",
            results_dir=directory / "results",
            listener=display,
        )
    assert outcome.exit_code is ExitCode.OK
    return terminal.data + summary_text(outcome.results).encode()


@pytest.mark.parametrize("size", [None, Size(120, 35)], ids=["up", "run"])
async def test_frames_survive_a_hostile_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: Size | None
) -> None:
    monkeypatch.setattr("runner.views.display.FIRST_FRAME_S", 0.0)
    monkeypatch.setattr("runner.views.display.FRAME_INTERVAL_S", 0.02)
    monkeypatch.setattr("runner.views.display.CPU_SHARE", 1.0)

    data = await hostile_run(tmp_path, Ui.FRAMES, size)

    assert data.count(b"\x1b[?2026h") >= 5
    assert harmful_in(without_our_codes(data)) == set()
    screen = Screen(120, 80)
    screen.feed(data)
    assert f"{len(HOSTILE)} of {len(HOSTILE)} trajectories" in screen.text


async def test_lines_survive_a_hostile_run(tmp_path: Path) -> None:
    data = await hostile_run(tmp_path, Ui.LINES, None)

    text = data.decode("utf-8")
    assert harmful_in(text) == set()
    done = [line for line in text.splitlines() if line.startswith("done=")]
    assert len(done) == len(HOSTILE)
    assert all(re.match(r"done=\d+/\d+ trajectory=", line) and len(line) < 500 for line in done)
