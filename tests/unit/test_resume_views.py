"""A run that went on shows right: in the viewer, in lines, and in frames' state."""

from pathlib import Path

import pytest
from support.events import began, disk_was_full, ended, run_resumed, run_started, terminated, turn, unfinished

from runner.engines.base import TrajectoryKey
from runner.events import EndReason, Event
from runner.journal import JOURNAL_NAME, JournalWriter
from runner.views.lines import LinesView
from runner.views.live_state import LiveState
from runner.views.watch.index import RunIndex
from runner.views.watch.rows import Outcome
from runner.views.watch.tail import JournalTail

IDS = ("p0", "p1", "p2")
FIRST: tuple[Event, ...] = (
    run_started(*IDS),
    began(),
    turn(),
    terminated(),
    began("p1", row=1),
    unfinished("p1"),
    began("p2", row=2),
    turn("cut", problem_id="p2"),
)
SECOND: tuple[Event, ...] = (
    run_resumed(*IDS, missing=2),
    began("p1", row=1),
    turn(problem_id="p1"),
    terminated("p1", score=0.0),
    disk_was_full(),
    began("p2", row=2),
    turn("again", problem_id="p2"),
)
LAST: tuple[Event, ...] = (terminated("p2"), ended())


class Followed:
    """A journal that grows, and the viewer's index that follows it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.now = 1000.0
        self.index = RunIndex(JOURNAL_NAME)
        self._tail = JournalTail(path)

    def write(self, *events: Event, torn: bytes = b"") -> None:
        with JournalWriter(self.path, clock=lambda: self.now) as journal:
            for event in events:
                self.now += 1
                journal.append(event)
        with self.path.open("ab") as file:
            file.write(torn)
        look = self._tail.look()
        assert not look.replaced
        self.index.take_in(look.found)

    def outcomes(self) -> list[Outcome]:
        return [self.index.rows[TrajectoryKey("set", one, 0)].outcome for one in IDS]


@pytest.fixture
def followed(tmp_path: Path) -> Followed:
    return Followed(tmp_path / JOURNAL_NAME)


def test_the_viewer_of_a_run_that_goes_on_shows_what_waits_what_runs_and_what_is_done(
    followed: Followed,
) -> None:
    followed.write(*FIRST, torn=b'{"type":"turn","assis')
    assert followed.outcomes() == [Outcome.RIGHT, Outcome.UNFINISHED, Outcome.RUNNING]

    followed.now += 3600
    followed.write(SECOND[0])
    assert followed.outcomes() == [Outcome.RIGHT, Outcome.WAITING, Outcome.WAITING]

    followed.write(*SECOND[1:])
    assert followed.outcomes() == [Outcome.RIGHT, Outcome.WRONG, Outcome.RUNNING]
    assert followed.index.rows[TrajectoryKey("set", "p2", 0)].turns == 1

    followed.write(*LAST)
    assert followed.outcomes() == [Outcome.RIGHT, Outcome.WRONG, Outcome.RIGHT]
    mean = followed.index.mean("set")
    assert mean is not None
    assert mean.value == pytest.approx(2 / 3)
    assert not followed.index.error_counts.get("damage")
    assert len(followed.index.rows) == len(IDS)


def test_the_viewer_of_a_run_that_goes_on_does_not_call_it_ended(followed: Followed) -> None:
    followed.write(*FIRST, ended(EndReason.INTERRUPTED))
    assert followed.index.ended is not None

    followed.write(*SECOND)

    assert followed.index.ended is None
    assert followed.index.started is not None


def test_lines_count_over_all_parts_and_say_that_the_run_goes_on() -> None:
    lines: list[str] = []
    view = LinesView(lines.append)
    for event in (*FIRST, *SECOND, *LAST):
        view(event)

    assert [line.split()[0] for line in lines if line.startswith("done=")] == [
        *("done=1/3", "done=2/3", "done=3/3")
    ]
    assert sum(line.startswith("run=run ") for line in lines) == 2
    assert lines[-1] == "ended=complete"


def test_a_display_that_saw_all_parts_knows_the_whole_run() -> None:
    state = LiveState()
    for event in (*FIRST, *SECOND):
        state.apply(event)

    (tally,) = state.tallies.values()
    assert (tally.planned, tally.scored) == (3, 2)
    assert tally.unfinished == set()
    assert [one.key.problem_id for one in state.running] == ["p2"]
    assert state.ended is None
