"""What an examination says: checks, each with a state, what was found and what to do about it."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import Enum

from runner.errors import ExitCode


class State(str, Enum):
    """How a check came out."""

    OK = "ok"
    WARNING = "warning"
    """A run works, but slower, or with something to say about its result."""
    FAILED = "failed"
    """A run would fail, or would not be what it says."""
    SKIPPED = "skipped"
    """It does not concern this profile, or could not be looked at because of another check."""


@dataclass(frozen=True)
class Finding:
    """What one check found. `remedy` is for warnings and failures."""

    state: State
    detail: str
    remedy: str | None = None


def ok(detail: str) -> Finding:
    """All is well."""
    return Finding(State.OK, detail)


def warning(detail: str, remedy: str) -> Finding:
    """Something to know."""
    return Finding(State.WARNING, detail, remedy)


def failed(detail: str, remedy: str | None) -> Finding:
    """Something to mend."""
    return Finding(State.FAILED, detail, remedy)


def skipped(detail: str) -> Finding:
    """Nothing was looked at, and why."""
    return Finding(State.SKIPPED, detail)


@dataclass(frozen=True)
class Check:
    """A finding with its name and how long it took."""

    name: str
    state: State
    detail: str
    remedy: str | None
    seconds: float


@dataclass(frozen=True)
class Report:
    """All checks of one profile on this machine."""

    profile: str
    checks: tuple[Check, ...]

    def of_state(self, state: State) -> Sequence[Check]:
        """Return the checks that came out so."""
        return [one for one in self.checks if one.state is state]

    @property
    def holds(self) -> bool:
        """Whether a run can start."""
        return not self.of_state(State.FAILED)

    @property
    def exit_code(self) -> ExitCode:
        """What a command exits with: everything that can fail here is the user's to mend."""
        return ExitCode.OK if self.holds else ExitCode.BAD_INPUT

    @property
    def summary(self) -> str:
        """How many came out how, in one line."""
        counts = [(len(self.of_state(state)), state.value) for state in State]
        return ", ".join(f"{count} {word}" for count, word in counts if count)

    def document(self) -> dict[str, object]:
        """Return it as JSON has it."""
        return {
            "profile": self.profile,
            "ok": self.holds,
            "checks": [asdict(one) | {"state": one.state.value} for one in self.checks],
        }
