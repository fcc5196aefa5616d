"""A run pauses where its own side fails again and again, instead of burning the attempts of all that is left.

Failures are told apart by whose they are: engines, or sandboxes. Several in a row of one class, of more than
one trajectory and with nothing of that class done in between, open the breaker: no attempt begins, what runs
goes on to its end, the machine is examined and a person told. Then one attempt at a time is let by as a
probe, with growing pauses, until one gets done what had failed; or until too long has passed, and the run
ends, to be gone on with. What fails meanwhile is not held against its trajectory.

A command that timed out, a refused prompt, turns that ran out: those are the model's, and here they count as
successes, since whatever ran them works.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from itertools import count

import anyio

from runner.engines.base import EngineUnavailableError, ScriptExhaustedError, TrajectoryKey
from runner.errors import InfrastructureError, RecountError
from runner.events import Event, Fault, RunContinued, RunExamined, RunPaused
from sandbox import SandboxError, SandboxInfrastructureError

logger = logging.getLogger(__name__)

EXAMINE_TIMEOUT_S = 60.0
"""The doctor's own bounds lie below."""

Examine = Callable[[], Awaitable[Sequence[str]]]
"""Looks at the machine and says what is wrong with it, a line each."""


@dataclass(frozen=True)
class BreakerPolicy:
    """When a run pauses and how long. Times in seconds.

    `failures` in a row of at least `trajectories` different ones open it: a single one may be its own cause.
    `free_failures` bounds what is not held against one trajectory.
    """

    failures: int = 5
    trajectories: int = 2
    first_probe_s: float = 5.0
    probe_cap_s: float = 60.0
    give_up_s: float = 1800.0
    """Half an hour: an engine or a daemon is restarted within it, and a rented node is not idle overnight."""
    free_failures: int = 20


def fault_of(error: BaseException) -> Fault | None:
    """Return whose failure an error is; None for one that says nothing of engines or sandboxes."""
    if isinstance(error, SandboxInfrastructureError):
        return Fault.SANDBOX
    if isinstance(error, EngineUnavailableError) and not isinstance(error, ScriptExhaustedError):
        return Fault.ENGINE
    return None


class PausedTooLongError(InfrastructureError):
    """The cause of a pause did not go in time: the run ends, and can be gone on with."""


class _State(Enum):
    CLOSED = "closed"
    OPEN = "open"
    PROBING = "probing"
    """One attempt is let by, or will be as soon as one comes."""


@dataclass
class _Tally:
    """Failures of one trajectory: those that use up its attempts, and those that do not."""

    counted: int = 0
    free: int = 0

    @property
    def failures(self) -> int:
        return self.counted + self.free


@dataclass(eq=False)
class _Waiter:
    """An attempt at the gate. `failures` are its trajectory's, `number` counts arrivals."""

    key: TrajectoryKey
    failures: int
    number: int
    called: anyio.Event = field(default_factory=anyio.Event)
    is_probe: bool = False


@dataclass
class _Pause:
    fault: Fault
    cause: str
    since: float
    probes: int = 0
    probe: TrajectoryKey | None = None
    probe_ended: anyio.Event = field(default_factory=anyio.Event)
    nudged: anyio.Event = field(default_factory=anyio.Event)


class Breaker:
    """Counts failures in a row and holds attempts back. `watch` has to run beside the attempts."""

    def __init__(
        self,
        policy: BreakerPolicy | None = None,
        *,
        emit: Callable[[Event], object] = lambda _: None,
        tell: Callable[[str], None] = lambda _: None,
        examine: Examine | None = None,
        revive: Callable[[Fault], None] = lambda _: None,
    ) -> None:
        """`tell` is given what a person should know, `examine` looks for the cause when a pause begins.

        `revive` is called before each probe: what had been given up may be tried again.
        """
        self._policy = policy or BreakerPolicy()
        self._emit = emit
        self._tell = tell
        self._examine = examine
        self._revive = revive
        self._state = _State.CLOSED
        self._streaks: dict[Fault, list[TrajectoryKey]] = {fault: [] for fault in Fault}
        self._tallies: dict[TrajectoryKey, _Tally] = {}
        self._pause: _Pause | None = None
        self._gate: list[_Waiter] = []
        self._numbers = count()
        self._opened = anyio.Event()

    # ── what attempts tell ───────────────────────────────────────────────────────────────────────────────

    async def admit(self, key: TrajectoryKey) -> None:
        """Return when an attempt may begin: at once, or after the pause, or as its probe."""
        while self._state is not _State.CLOSED:
            pause = self._pause
            if self._state is _State.PROBING and pause is not None and pause.probe is None:
                pause.probe = key
                return
            waiter = _Waiter(key, self._tallies.get(key, _Tally()).failures, next(self._numbers))
            self._gate.append(waiter)
            try:
                await waiter.called.wait()
            finally:
                with suppress(ValueError):  # whoever was called is out of it
                    self._gate.remove(waiter)
            if waiter.is_probe:
                return

    def succeeded(self, fault: Fault, key: TrajectoryKey, began_at: float) -> None:
        """An attempt got something done of what this class fails at, begun then by the event loop's clock."""
        self._streaks[fault].clear()
        pause = self._pause
        if pause is None or fault is not pause.fault:
            return
        if key == pause.probe or began_at > pause.since:
            self._close(pause)
        else:
            # Begun before the pause, it says little of now: a probe shows at once whether the cause has gone.
            pause.nudged.set()

    def failed(self, fault: Fault | None, key: TrajectoryKey, cause: str) -> int:
        """An attempt failed on our side; return how many failures are held against its trajectory by now."""
        tally = self._tallies.setdefault(key, _Tally())
        if fault is None:
            tally.counted += 1
            return tally.counted
        if self._pause is not None:
            if key == self._pause.probe:
                self._pause.fault, self._pause.cause = fault, cause
            self._forgive(tally, counted_already=False)
            return tally.counted
        tally.counted += 1
        streak = self._streaks[fault]
        streak.append(key)
        policy = self._policy
        if len(streak) >= policy.failures and len(set(streak)) >= policy.trajectories:
            self._open(fault, cause, streak)
        return tally.counted

    def ended(self, key: TrajectoryKey) -> None:
        """An attempt is over, however it went; as a probe it may have shown nothing."""
        if self._pause is not None and key == self._pause.probe:
            self._pause.probe_ended.set()

    def done(self, key: TrajectoryKey) -> None:
        """A trajectory has its end: nothing of it is needed any more."""
        self._tallies.pop(key, None)

    def _forgive(self, tally: _Tally, *, counted_already: bool) -> None:
        if tally.free < self._policy.free_failures:
            tally.free += 1
            tally.counted -= counted_already
        else:
            tally.counted += not counted_already

    # ── the pause ────────────────────────────────────────────────────────────────────────────────────────

    def _open(self, fault: Fault, cause: str, streak: list[TrajectoryKey]) -> None:
        for key in streak:
            if (tally := self._tallies.get(key)) is not None:
                self._forgive(tally, counted_already=True)
        failures = len(streak)
        self._forget_streaks()
        self._state = _State.OPEN
        self._pause = _Pause(fault, cause, anyio.current_time())
        self._opened.set()
        self._emit(RunPaused(fault=fault, failures=failures, cause=cause))
        self._tell(
            f"paused: {failures} failures in a row of the {fault.value}, the last: {_first_line(cause)};"
            f" nothing begins until it works again, for {self._policy.give_up_s:g} s at most"
        )

    def _close(self, pause: _Pause) -> None:
        paused_s = anyio.current_time() - pause.since
        self._state, self._pause = _State.CLOSED, None
        self._opened = anyio.Event()
        self._forget_streaks()
        pause.nudged.set()
        pause.probe_ended.set()
        for waiter in self._gate:
            waiter.called.set()
        self._gate.clear()
        self._emit(RunContinued(fault=pause.fault, paused_s=round(paused_s, 6), probes=pause.probes))
        self._tell(f"the {pause.fault.value} works again after {paused_s:.0f} s: the run goes on")

    def _forget_streaks(self) -> None:
        for streak in self._streaks.values():
            streak.clear()

    def _let_one_by(self, pause: _Pause) -> None:
        """Make one attempt the probe: of those at the gate the one that has failed least."""
        pause.nudged, pause.probe_ended, pause.probe = anyio.Event(), anyio.Event(), None
        pause.probes += 1
        self._revive(pause.fault)
        self._state = _State.PROBING
        if self._gate:
            waiter = min(self._gate, key=lambda one: (one.failures, one.number))
            self._gate.remove(waiter)
            pause.probe, waiter.is_probe = waiter.key, True
            waiter.called.set()

    async def watch(self) -> None:
        """Lead every pause to its end; raise `PausedTooLongError` where the cause does not go."""
        while True:
            await self._opened.wait()
            pause = self._pause
            if pause is None:
                continue
            with anyio.move_on_after(self._policy.give_up_s) as patience:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._look, pause)
                    await self._probe_until_closed(pause)
                    tasks.cancel_scope.cancel()
            if patience.cancelled_caught and self._pause is pause:
                raise PausedTooLongError(
                    f"the run was paused for {self._policy.give_up_s:g} s, and the {pause.fault.value}"
                    f" did not work in any of {pause.probes} tries; the last: {pause.cause}",
                    remedy="see `recount doctor`, then go on with `recount eval --resume RUN`",
                )

    async def _probe_until_closed(self, pause: _Pause) -> None:
        wait_s = self._policy.first_probe_s
        while self._pause is pause:
            with anyio.move_on_after(wait_s):
                await pause.nudged.wait()
                wait_s = self._policy.first_probe_s / 2
            if self._pause is not pause:
                return  # it ended without a probe
            self._let_one_by(pause)
            await pause.probe_ended.wait()
            if self._pause is pause:
                self._state = _State.OPEN
                wait_s = min(wait_s * 2, self._policy.probe_cap_s)

    async def _look(self, pause: _Pause) -> None:
        """Examine the machine and say what was found. It helps a person and decides nothing."""
        if self._examine is None:
            return
        findings: Sequence[str] = (f"the examination took more than {EXAMINE_TIMEOUT_S:g} s",)
        with anyio.move_on_after(EXAMINE_TIMEOUT_S):
            try:
                findings = await self._examine()
            except (RecountError, SandboxError, OSError) as error:
                findings = (f"the examination failed: {error}",)
            except Exception as error:
                # It decides nothing: neither does a fault in it, least of all to end the run.
                logger.exception("the examination failed")
                findings = (f"the examination failed: {type(error).__name__}: {error}",)
        self._emit(RunExamined(fault=pause.fault, findings=tuple(findings)))
        for line in findings or ("the doctor finds nothing wrong",):
            self._tell(line)


def _first_line(cause: str) -> str:
    return cause.partition("\n")[0]
