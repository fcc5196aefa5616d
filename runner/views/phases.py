"""What a run as a whole is at, and how far: set by whoever does it, shown by every view."""

from dataclasses import dataclass
from enum import Enum


class Phase(str, Enum):
    """The stages of a run, in their order."""

    CHECKING = "checking"
    """The sandbox opens, and this machine is examined."""
    FETCHING = "fetching"
    VERIFYING = "verifying"
    STARTING = "starting"
    """Engines and the sandbox come up."""
    RUNNING = "running"
    PAUSED = "paused"
    """Our own side failed again and again, and nothing begins until it works."""
    ENDING = "ending"
    """Results are derived and written, engines and the sandbox closed."""


AT_WORK = frozenset({Phase.RUNNING, Phase.PAUSED, Phase.ENDING})
"""From the first event of the run on."""


@dataclass(frozen=True)
class PhaseState:
    """The phase under way. `done` of `total` draw a bar; None where a step has no measure."""

    phase: Phase
    since: float
    detail: str = ""
    done: float | None = None
    total: float | None = None
    in_bytes: bool = False

    @property
    def share(self) -> float | None:
        """How much is done, from 0 to 1."""
        if self.done is None or not self.total:
            return None
        return min(max(self.done / self.total, 0.0), 1.0)
