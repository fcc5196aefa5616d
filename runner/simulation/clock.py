"""An event loop whose time passes only when nothing else is left to do.

Code that sleeps, waits with limits and measures by the loop's clock (anyio does all three) runs unchanged,
and hours pass in seconds. Whatever waits for the real world (a socket, a thread) must not be used under it.
"""

import asyncio
import selectors
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import anyio
from typing_extensions import override

T = TypeVar("T")


class _PatientSelector(selectors.DefaultSelector):
    """Instead of waiting for files, moves the clock on by what the loop would have waited."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0

    @override
    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready: list[tuple[selectors.SelectorKey, int]] = super().select(0)
        if ready:
            return ready
        if timeout is None:
            raise DeadlockError("every task waits for something that no timer will bring about")
        self.now_s += max(timeout, 0.0)
        return ready


class DeadlockError(RuntimeError):
    """Nothing can happen any more."""


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An asyncio loop that starts at time 0 and jumps from timer to timer."""

    def __init__(self) -> None:
        """Begin at 0 s."""
        self._patient = _PatientSelector()
        super().__init__(self._patient)
        # Timers this close fall together; the default (a clock's tick) would let them drift apart.
        self._clock_resolution = 1e-9

    @override
    def time(self) -> float:
        return self._patient.now_s


def run_in_virtual_time(function: Callable[..., Awaitable[T]], *args: Any) -> T:  # noqa: ANN401 - handed on
    """Run `function(*args)` to its end under a simulated clock and return what it returns."""
    return anyio.run(function, *args, backend_options={"loop_factory": VirtualTimeLoop})
