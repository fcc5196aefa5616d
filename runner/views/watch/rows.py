"""One trajectory as the table shows it: facts and where its lines stand, none of its long texts."""

from array import array
from dataclasses import dataclass, field
from enum import Enum

from runner.clean import clean_text
from runner.engines.base import TrajectoryKey
from runner.events import TurnDone
from runner.protocol.score import Termination

SHOWN_CHARS = 200
"""Of a command or a prediction in the table: more than the widest terminal's last column."""


class Outcome(str, Enum):
    """Where a trajectory stands. The order is the table's."""

    RUNNING = "running"
    RIGHT = "right"
    """It has its full score, whatever ended it."""
    WRONG = "wrong"
    """It answered, and has not the full score."""
    LIMIT = "limit"
    """A limit of the protocol ended it, without the full score."""
    UNFINISHED = "unfinished"
    """Our own side kept failing: no score."""
    STOPPED = "stopped"
    """The run ended before it did: no score."""
    WAITING = "waiting"
    """It has not started."""


SCORED = frozenset({Outcome.RIGHT, Outcome.WRONG, Outcome.LIMIT})


@dataclass(frozen=True)
class ProblemFacts:
    """A problem as filters and the table need it; shared by its samples."""

    question: str
    gold: str
    place: tuple[int, int]
    """Of the data set in the profile, and of the problem in it."""


@dataclass(slots=True)
class Row:
    """One trajectory. Times in seconds since the epoch, offsets in bytes into the journal.

    `doing` and `prediction` are cleaned and cut: they may be shown as they are.
    """

    key: TrajectoryKey
    problem: ProblemFacts
    outcome: Outcome = Outcome.WAITING
    attempt: int = 0
    seed: int | None = None
    started_at: float | None = None
    elapsed_s: float | None = None
    """From start to end, by the run's own clock; None while it has not ended."""
    ended_at: float | None = None
    turns: int = 0
    generated_tokens: int = 0
    context_tokens: int = 0
    termination: Termination | None = None
    score: float | None = None
    doing: str = ""
    prediction: str = ""
    retries: int = 0
    turn_offsets: "array[int]" = field(default_factory=lambda: array("Q"))
    """Of the newest attempt's turns, in order."""
    end_offset: int | None = None
    """Of the line that ended it, or gave it up."""
    retry_offsets: "array[int]" = field(default_factory=lambda: array("Q"))
    version: int = 0
    """Grows with every change, so that what was drawn of it can be kept."""

    def elapsed_at(self, now: float) -> float | None:
        """How long it took, or has taken so far."""
        if self.elapsed_s is not None or self.started_at is None:
            return self.elapsed_s
        return max((self.ended_at or now) - self.started_at, 0.0)


def doing_of(turn: TurnDone) -> str:
    """Return in one harmless line what a turn did: its command, else what became of it."""
    command = command_of(turn)
    return shown(command) if command is not None else f"({turn.kind.value.replace('_', ' ')})"


def command_of(turn: TurnDone) -> str | None:
    """Return the command a turn asked for, raw; the whole call where it is none of bash's, or None."""
    action = turn.action
    if action is None:
        return None
    arguments = action.get("arguments")
    command = arguments.get("command") if isinstance(arguments, dict) else None
    return command if isinstance(command, str) else f"{action.get('name')} {arguments}"


def shown(text: str) -> str:
    """Return text of any origin as one harmless line for a cell."""
    return clean_text(text, keep_lines=False, limit_chars=SHOWN_CHARS)
