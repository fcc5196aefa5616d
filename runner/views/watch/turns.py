"""Reading one trajectory's lines back from the journal, when somebody opens it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from runner.engines.base import TrajectoryKey
from runner.events import InfrastructureRetry, Terminated, TrajectoryEvent, TurnDone, Unfinished
from runner.views.watch.rows import Row
from runner.views.watch.tail import LONGEST_LINE_BYTES, Damage, parse_line


@dataclass(frozen=True)
class Places:
    """Where a trajectory's lines stand: taken from its row before a thread reads them."""

    key: TrajectoryKey
    turns: tuple[int, ...]
    retries: tuple[int, ...]
    end: int | None

    @classmethod
    def of(cls, row: Row) -> "Places":
        """Return the places as they are now."""
        return cls(row.key, tuple(row.turn_offsets), tuple(row.retry_offsets), row.end_offset)


@dataclass(frozen=True)
class Told:
    """What the journal tells of one trajectory. `problems` says which lines could not be read again."""

    turns: tuple[TurnDone, ...] = ()
    retries: tuple[InfrastructureRetry, ...] = ()
    end: Terminated | Unfinished | None = None
    problems: tuple[str, ...] = ()


def read_trajectory(path: Path, places: Places) -> Told:
    """Return a trajectory's turns, retries and end.

    A line that is no longer there, or is another's by now (the file was replaced), is told as a problem.
    """
    turns: list[TurnDone] = []
    retries: list[InfrastructureRetry] = []
    ends: list[Terminated | Unfinished] = []
    problems: list[str] = []
    offsets: Sequence[int] = (*places.retries, *places.turns, *(() if places.end is None else (places.end,)))
    try:
        with path.open("rb") as file:
            for offset in offsets:
                file.seek(offset)
                found = parse_line(file.readline(LONGEST_LINE_BYTES), 0, offset)
                if isinstance(found, Damage):
                    problems.append(f"byte {offset}: {found.reason}")
                    continue
                event = found.event
                if not isinstance(event, TrajectoryEvent) or event.key != places.key:
                    problems.append(f"byte {offset}: another event stands there now")
                elif isinstance(event, TurnDone):
                    turns.append(event)
                elif isinstance(event, InfrastructureRetry):
                    retries.append(event)
                elif isinstance(event, Terminated | Unfinished):
                    ends.append(event)
    except OSError as error:
        problems.append(error.strerror or type(error).__name__)
    return Told(tuple(turns), tuple(retries), ends[-1] if ends else None, tuple(problems))
