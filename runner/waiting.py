"""What each part of a run waits for, by name, and a limit for each wait that is on something of ours.

Engines and sandboxes bound their own work; the limits here lie above all of theirs and end what a fault in
those bounds would let hang. A wait that is over its limit is a failure of ours, named, and never a score.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count

import anyio

RENDER_TIMEOUT_S = 7200.0
"""A server that counts a prompt is asked for up to an hour, and its last answer waited for half of one."""
GENERATE_TIMEOUT_S = 18_000.0
"""One turn may see three engines die in it, each after an hour for a place and half of one at work."""
OPEN_TIMEOUT_S = 3600.0
"""A broker makes a workspace wait for room, for up to ten minutes, and is itself waited for."""
RUN_EXTRA_S = 3600.0
"""Beside the command's own time: a broker makes it wait for a permit, for up to half an hour."""


@dataclass(frozen=True)
class Wait:
    """Somebody waits for something, `since` on the event loop's clock."""

    who: str
    what: str
    since: float


class Waiting:
    """Keeps what is being waited for. Costs a dictionary entry a wait, since every turn has several."""

    def __init__(self) -> None:
        """Nobody waits."""
        self._waits: dict[int, Wait] = {}
        self._numbers = count()

    @contextmanager
    def on(self, who: object, what: str) -> Iterator[None]:
        """Somebody waits for something as long as the body runs; a wait inside a wait is both."""
        number = next(self._numbers)
        self._waits[number] = Wait(str(who), what, anyio.current_time())
        try:
            yield
        finally:
            del self._waits[number]

    @contextmanager
    def within(self, who: object, what: str, limit_s: float, failure: type[Exception]) -> Iterator[None]:
        """The same with a limit, past which `failure` is raised with the name of what was waited for."""
        with self.on(who, what):
            try:
                with anyio.fail_after(limit_s):
                    yield
            except TimeoutError as error:
                raise failure(f"{what} took more than {limit_s:g} s") from error

    def now(self) -> list[Wait]:
        """Return all waits, the longest first."""
        return sorted(self._waits.values(), key=lambda one: one.since)
