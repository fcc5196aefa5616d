"""What a display's state is made of: what runs, what ended, what went wrong, how far and how fast."""

from collections import deque
from dataclasses import dataclass, field
from enum import Enum

from runner.engines.base import TrajectoryKey
from runner.statistics import RunningMean

KEPT_ENDS = 256
RATE_WINDOW_S = 600.0
"""A rate is that of the last ten minutes: trajectories take minutes, and load changes over a run."""
TOKEN_WINDOW_S = 60.0


class RunningPhase(str, Enum):
    """What a running trajectory is at."""

    MODEL = "model"
    """It generates, or waits to."""
    COMMAND = "command"
    RETRY = "retry"
    """Our side failed; it waits to start again."""


class ErrorClass(str, Enum):
    """Whose failure it was, and what it cost."""

    RETRY = "retry"
    UNFINISHED = "unfinished"
    ENGINE = "engine"
    REQUEST = "request"
    """The model's own: the engine refused the prompt, or the completion cannot be read. It is scored."""
    RUN = "run"
    LOG = "log"
    """A line that a library or a child process wrote."""
    NOTE = "note"
    """Nothing that failed for good: a download that is tried again."""


@dataclass
class Running:
    """A trajectory that runs. `context_tokens` are those of its newest turn."""

    key: TrajectoryKey
    attempt: int
    started_at: float
    phase: RunningPhase = RunningPhase.MODEL
    turns: int = 0
    context_tokens: int = 0
    command: str = ""
    """The one under way, else the last."""


@dataclass(frozen=True)
class Ended:
    """A trajectory that has its score."""

    key: TrajectoryKey
    score: float
    termination: str
    prediction: str
    gold: str
    turns: int
    elapsed_s: float


@dataclass(frozen=True)
class ErrorNote:
    """Something that went wrong. `at` is seconds since the epoch."""

    at: float
    kind: ErrorClass
    where: str
    cause: str


@dataclass
class Tally:
    """How far a data set is. Unfinished trajectories are tried, and have no score."""

    name: str
    planned: int = 0
    mean: RunningMean = field(default_factory=RunningMean)
    unfinished: set[TrajectoryKey] = field(default_factory=set)
    ended_at: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT_ENDS))

    @property
    def scored(self) -> int:
        """How many trajectories have a score."""
        return self.mean.count

    @property
    def tried(self) -> int:
        """How many trajectories have come to an end."""
        return self.scored + len(self.unfinished)

    def per_s(self, now: float, begun_at: float) -> float | None:
        """Return how many come to an end a second; None until that can be told."""
        since = max(begun_at, now - RATE_WINDOW_S)
        if len(self.ended_at) == KEPT_ENDS:
            since = max(since, self.ended_at[0])
        seen = sum(1 for at in self.ended_at if at >= since)
        return seen / (now - since) if seen and now > since else None

    def left_s(self, now: float, begun_at: float) -> float | None:
        """Return how long the rest takes at this rate; None until that can be told."""
        per_s, rest = self.per_s(now, begun_at), self.planned - self.tried
        if rest <= 0:
            return 0.0
        return None if per_s is None else rest / per_s


class TokenRate:
    """Tokens a second over the last minute, second by second."""

    def __init__(self) -> None:
        """Nothing is known yet."""
        self._seconds: deque[tuple[int, int]] = deque(maxlen=int(TOKEN_WINDOW_S))
        self._first_at: float | None = None

    def add(self, at: float, tokens: int) -> None:
        """Note tokens that were done at `at`."""
        self._first_at = at if self._first_at is None else self._first_at
        second = int(at)
        if self._seconds and self._seconds[-1][0] == second:
            tokens += self._seconds.pop()[1]
        self._seconds.append((second, tokens))

    def per_s(self, now: float, begun_at: float) -> float | None:
        """Return the rate; None where nothing was ever done."""
        if self._first_at is None:
            return None
        since = max(now - TOKEN_WINDOW_S, begun_at)
        total = sum(tokens for second, tokens in self._seconds if second + 1 > since)
        return total / max(now - since, 1.0)
