"""How a run is watched over: when it pauses for failures of our own side, and when it says that it stalls."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from runner.breaker import BreakerPolicy
from runner.doctor import Question, State, examine
from runner.stall import StallPolicy
from sandbox import Sandbox

ExamineSandbox = Callable[[Sandbox], Awaitable[Sequence[str]]]
"""Looks at the machine with the run's sandbox, which is open, and says what is wrong, a line each."""


@dataclass(frozen=True)
class Oversight:
    """Limits of a run's patience with its own side, and whom it tells."""

    breaker: BreakerPolicy = field(default_factory=BreakerPolicy)
    stall: StallPolicy = field(default_factory=StallPolicy)
    examine: ExamineSandbox | None = None
    tell: Callable[[str], None] = lambda _: None


def doctor_of(question: Question) -> ExamineSandbox:
    """Return an examination by the doctor: what failed and what it warns of, with its remedy."""

    async def look(sandbox: Sandbox) -> list[str]:
        report = await examine(question, sandbox=sandbox)
        return [
            f"{one.name}: {one.detail}" + (f" ({one.remedy})" if one.remedy else "")
            for one in report.checks
            if one.state in {State.FAILED, State.WARNING}
        ]

    return look
