"""Journals that grow under the viewer's eyes, and what stands on its screen then."""

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from runner.events import AnyEvent, Event, TurnKind
from runner.views.watch.app import WatchApp
from runner.views.watch.table import TrajectoryTable
from support.events import began, terminated, turn

STARTED_AT = 1_800_000_000.0
WAIT_STEPS = 500
STEP_S = 0.01

HOSTILE = (
    "\x1b[2J\x1b[31mred",
    "\x1b]52;c;ZXZpbA==\x07",
    "\x1b]8;;http://example.org\x1b\\link\x1b]8;;\x1b\\",
    "\x9b31m\x9d52;c;eA==\x9c",
    "[/bold][link=file:///etc/passwd]x[/link][@click=app.quit]q[/]",
    "a\x00b\x07c\x08d\re",
    "\u202eabc\u2066def\u200b",
    "lone \ud800 surrogate",
    "e" + "\u0301" * 500,
    ":bomb: $[x] {y} %s",
)


class Journal:
    """A journal as a run writes it, a second an event."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.now = STARTED_AT

    def line(self, event: Event) -> bytes:
        """The line of an event, stamped."""
        self.now += 1.0
        stamped = event.model_copy(update={"at": self.now})
        return json.dumps(stamped.model_dump(mode="python"), separators=(",", ":")).encode("ascii") + b"\n"

    def write(self, *events: Event) -> None:
        """Append events."""
        self.write_bytes(b"".join(self.line(event) for event in events))

    def write_bytes(self, data: bytes) -> None:
        """Append bytes, whole lines or not."""
        with self.path.open("ab") as file:
            file.write(data)


class Viewer:
    """The viewer at work, and what its screen shows."""

    def __init__(self, app: WatchApp, pilot: Pilot[None]) -> None:
        self.app = app
        self.pilot = pilot

    @property
    def table(self) -> TrajectoryTable:
        """The table of trajectories, also where something lies over it."""
        return self.app.screen_stack[0].query_one(TrajectoryTable)

    @property
    def problems(self) -> list[str]:
        """The problems of the rows that pass the filter, in order."""
        return [row.key.problem_id for row in self.table.shown]

    def screen(self) -> str:
        """What the terminal would show."""
        strips = self.app.screen._compositor.render_strips(self.app.size)
        return "\n".join(strip.text for strip in strips)

    async def press(self, *keys: str) -> None:
        """Press keys, and let them take effect."""
        await self.pilot.press(*keys)
        await self.pilot.pause()

    def look(self) -> None:
        """Take in what the journal has by now; the viewer's own clock is stopped (see `watch`)."""
        while True:
            look = self.app._tail.look()
            self.app._take_in(look)
            if not look.more:
                break
        self.app.draw()

    async def until(self, holds: Callable[[], bool], *, looking: bool = True) -> None:
        """Wait until something holds; fail with the screen where it never does."""
        for _ in range(WAIT_STEPS):
            if looking:
                self.look()
            await self.pilot.pause(STEP_S)
            if holds():
                return
        pytest.fail(f"it never came to hold; the screen:\n{self.screen()}")

    async def until_shown(self, *texts: str, looking: bool = True) -> None:
        """Wait until all texts stand on the screen."""
        await self.until(lambda: all(text in self.screen() for text in texts), looking=looking)


Watch = Callable[..., AbstractAsyncContextManager[Viewer]]
"""Opens the viewer; `size` is columns and lines."""


def bash_turn(problem_id: str, command: str, *, number: int = 0, **changes: Any) -> AnyEvent:
    """A turn that ran a command."""
    action = {"name": "bash", "arguments": {"command": command}}
    return turn(
        f"I try {command}",
        number=number,
        problem_id=problem_id,
        kind=TurnKind.ACTION,
        action=action,
        **changes,
    )


def solved(problem_id: str, row: int, command: str = "echo 42", **changes: Any) -> Iterator[AnyEvent]:
    """A whole trajectory: a command, and an end."""
    yield began(problem_id, row=row)
    yield bash_turn(problem_id, command)
    yield terminated(problem_id, **changes)
