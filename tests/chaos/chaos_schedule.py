"""What happens to a run and when, from a seed: the same seed is the same schedule."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

FEWEST, MOST = 3, 6
WITHIN_S = 5.0
"""An undisturbed run takes about as long."""
LONGEST_S = 3.0


class Deed(str, Enum):
    """What is done to a run. Those that last are undone after a while."""

    RUNNER_KILLED = "runner killed"
    RUNNER_STALLED = "runner stalled"
    RUNNER_STOPPED = "runner asked to end"
    TAIL_TORN = "runner killed, tail of the journal torn"
    TAIL_GARBLED = "runner killed, garbage behind the journal"
    BROKER_KILLED = "broker killed"
    BROKER_STALLED = "broker stalled"
    SOCKET_DROPPED = "connections to the broker dropped"
    ENGINE_DIES = "engine dies"
    ENGINES_DIE = "all engines die"
    ENGINE_HANGS = "engine hangs"
    DISK_FULL = "disk full"
    DAEMON_DOWN = "daemon down"
    DAEMON_HANGS = "daemon hangs"
    CONTAINERS_DIE = "containers die"


ANYWHERE = (
    Deed.RUNNER_KILLED,
    Deed.RUNNER_STALLED,
    Deed.RUNNER_STOPPED,
    Deed.TAIL_TORN,
    Deed.TAIL_GARBLED,
    Deed.BROKER_KILLED,
    Deed.BROKER_STALLED,
    Deed.SOCKET_DROPPED,
    Deed.ENGINE_DIES,
    Deed.ENGINES_DIE,
    Deed.ENGINE_HANGS,
    Deed.DISK_FULL,
    Deed.CONTAINERS_DIE,
)
DAEMON = (Deed.DAEMON_DOWN, Deed.DAEMON_HANGS)
"""Only where the daemon is nobody else's."""


@dataclass(frozen=True)
class Step:
    """One deed, `at_s` after the run began; `lasts_s` is for those that last, `number` for a choice."""

    at_s: float
    deed: Deed
    lasts_s: float
    number: int


def schedule_of(seed: int, deeds: Sequence[Deed]) -> tuple[Step, ...]:
    """Return the steps of a seed, in order."""
    drawn = random.Random(seed)  # noqa: S311 - no secret
    steps = [
        Step(
            at_s=round(drawn.uniform(0, WITHIN_S), 3),
            deed=drawn.choice(list(deeds)),
            lasts_s=round(drawn.uniform(0.1, LONGEST_S), 3),
            number=drawn.randrange(1 << 16),
        )
        for _ in range(drawn.randint(FEWEST, MOST))
    ]
    return tuple(sorted(steps, key=lambda one: one.at_s))
