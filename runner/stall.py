"""Notices a run in which nothing moves, and writes down what it waits for while that can still be seen.

A report is a file beside the journal: what each trajectory waits for and since when, how engines and sandbox
answer just now, the stack of every task and thread. It is made by a task of the run; where that does not get
its turn, because something holds the event loop, a thread writes what it can see. Neither ends anything:
limits do that, and they are elsewhere.
"""

import asyncio
import faulthandler
import logging
import tempfile
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType

import anyio

from runner.atomic import write_text
from runner.engines.base import Engine
from runner.errors import InfrastructureError, JournalWriteError
from runner.events import EngineSample, Event, RunExamined, Stalled
from runner.groups import first_error_only
from runner.waiting import Wait, Waiting
from sandbox import Sandbox, SandboxError

PROBE_TIMEOUT_S = 30.0
"""How long engines, and then the sandbox, may take to answer for a report."""
PROBE_CLOSE_TIMEOUT_S = 2.0
"""Shielded, so it counts against the ten seconds within which Ctrl-C ends a run; what is not closed goes with
the run's label."""
PROBE_WORKSPACE = "stall-probe"
_MOST_TASKS = 300
_MOST_FRAMES = 40
_MOST_WAITS = 2000
_MOST_KINDS = 8

logger = logging.getLogger(__name__)

_NO_MOVES = (EngineSample, RunExamined, Stalled)
"""Events that come by themselves."""


@dataclass(frozen=True)
class StallPolicy:
    """When nothing has moved for too long. Times in seconds.

    `silent_s` is more than a long completion of a lone trajectory takes; reports after the first come when
    the silence has doubled, `reports` at most. `blocked_s` is for the event loop, whose turns take
    milliseconds.
    """

    silent_s: float = 900.0
    blocked_s: float = 60.0
    check_s: float = 5.0
    reports: int = 20


class StallWatch:
    """Hears every event of a run, and reports when none that means progress comes."""

    def __init__(
        self,
        run_dir: Path,
        engine: Engine,
        sandbox: Sandbox,
        waiting: Waiting,
        *,
        policy: StallPolicy | None = None,
        emit: Callable[[Event], object] = lambda _: None,
        tell: Callable[[str], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Reports go to `run_dir`; `tell` is given a line for a person."""
        self._run_dir = run_dir
        self._engine, self._sandbox, self._waiting = engine, sandbox, waiting
        self._policy = policy or StallPolicy()
        self._emit, self._tell, self._clock = emit, tell, clock
        self._moved_at = self._event_at = self._turn_at = clock()
        self._last_event = "none"
        self._reports = 0
        # Both the task and the thread number their files.
        self._lock = threading.Lock()
        self._ended = threading.Event()

    def heard(self, event: Event) -> None:
        """Take note that something happened."""
        self._event_at = self._clock()
        self._last_event = type(event).__name__
        if not isinstance(event, _NO_MOVES):
            self._moved_at = self._event_at

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Watch for as long as the body runs."""
        self._moved_at = self._event_at = self._turn_at = self._clock()
        thread = threading.Thread(target=self._watch_loop, name="stall-watch", daemon=True)
        thread.start()
        try:
            with first_error_only():
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._watch)
                    yield
                    tasks.cancel_scope.cancel()
        finally:
            self._ended.set()
            thread.join(self._policy.check_s)

    async def _watch(self) -> None:
        due_s = self._policy.silent_s
        while True:
            await anyio.sleep(self._policy.check_s)
            self._turn_at = self._clock()
            silent_s = self._turn_at - self._moved_at
            if silent_s < self._policy.silent_s:
                due_s = self._policy.silent_s
            elif silent_s >= due_s:
                due_s = 2 * silent_s
                try:
                    await self._report(silent_s)
                except JournalWriteError:
                    raise
                except Exception:
                    # A report looks at what is broken already, and is no reason to lose the run.
                    logger.exception("no stall report")

    async def _report(self, silent_s: float) -> None:
        """Write a report and say where it is. What cannot be found out is left out; the run goes on."""
        waits = self._waiting.now()
        # Stacks first: what is asked afterwards leaves stacks of its own.
        stacks = [*_task_lines(), "", *_thread_lines()]
        lines = [
            f"nothing moved for {silent_s:.0f} s",
            f"the last event, {self._last_event}, came {self._clock() - self._event_at:.0f} s ago",
            "",
            *_wait_lines(waits, anyio.current_time()),
            "",
            *await self._engine_lines(),
            "",
            *await self._sandbox_lines(),
            "",
            *stacks,
        ]
        name = self._write(lines)
        if name is None:
            return
        kinds = tuple(_kinds(waits))
        self._emit(Stalled(silent_s=round(silent_s, 3), report=name, waits=kinds))
        self._tell(f"nothing moved for {silent_s:.0f} s: {'; '.join(kinds) or 'nobody waits'}; see {name}")

    async def _engine_lines(self) -> list[str]:
        lines = ["engines"]
        began = self._clock()
        with anyio.move_on_after(PROBE_TIMEOUT_S) as patience:
            try:
                snapshot = await self._engine.snapshot()
            except InfrastructureError as error:
                return [*lines, f"  do not answer: {error}"]
            except Exception as error:
                logger.exception("the engines' snapshot failed")
                return [*lines, f"  cannot be asked: {type(error).__name__}: {error}"]
            if snapshot is None:
                return [*lines, "  this kind tells nothing of itself"]
            lines += [
                f"  {snapshot.queued} turns wait for a place",
                *(f"  {one}" for one in snapshot.replicas),
            ]
        if patience.cancelled_caught:
            lines.append(f"  no answer within {PROBE_TIMEOUT_S:g} s")
        return [*lines, f"  asking took {self._clock() - began:.3f} s"]

    async def _sandbox_lines(self) -> list[str]:
        """Open a workspace and run nothing in it: what every command needs, broker and daemon included."""
        lines = ["sandbox"]
        step, began = "opening a workspace", self._clock()
        with anyio.move_on_after(PROBE_TIMEOUT_S) as patience:
            try:
                workspace = await self._sandbox.open(PROBE_WORKSPACE)
                try:
                    lines.append(f"  {step} took {self._clock() - began:.3f} s")
                    step, began = "a command", self._clock()
                    await workspace.run("true", PROBE_TIMEOUT_S)
                    lines.append(f"  {step} took {self._clock() - began:.3f} s")
                finally:
                    with anyio.move_on_after(PROBE_CLOSE_TIMEOUT_S, shield=True), suppress(SandboxError):
                        await workspace.close()
            except SandboxError as error:
                lines.append(f"  {step} failed after {self._clock() - began:.3f} s: {error}")
        if patience.cancelled_caught:
            lines.append(f"  {step} was not done within {PROBE_TIMEOUT_S:g} s")
        return lines

    def _write(self, lines: Sequence[str]) -> str | None:
        with self._lock:
            if self._reports >= self._policy.reports:
                return None
            self._reports += 1
            path = _free(self._run_dir, self._reports)
            now = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
            try:
                write_text(path, "\n".join((now, *lines)) + "\n", durable=False)
            except InfrastructureError:
                # A full disk stalls runs too, and the journal says so.
                return None
            return path.name

    def _watch_loop(self) -> None:
        """In a thread of its own: whether the event loop gets round."""
        due_s = self._policy.blocked_s
        while not self._ended.wait(min(self._policy.check_s, self._policy.blocked_s)):
            blocked_s = self._clock() - self._turn_at - self._policy.check_s
            if blocked_s < self._policy.blocked_s:
                due_s = self._policy.blocked_s
            elif blocked_s >= due_s:
                due_s = 2 * blocked_s
                self._write(
                    [
                        f"the event loop did not come round for {blocked_s:.0f} s: something holds it",
                        f"the last event was {self._last_event}",
                        "",
                        *_thread_lines(),
                    ]
                )


def _free(run_dir: Path, number: int) -> Path:
    """Return the first name from `number` on that no earlier part of the run took."""
    while (path := run_dir / f"stall-{number}.txt").exists():
        number += 1
    return path


def _kinds(waits: Sequence[Wait]) -> list[str]:
    return [
        f"{many} wait for {what}"
        for what, many in Counter(_kind(one) for one in waits).most_common(_MOST_KINDS)
    ]


def _kind(wait: Wait) -> str:
    """Turns of one kind are told together, whichever they are."""
    head, separator, _ = wait.what.partition(", for turn ")
    return f"{head}, for a turn" if separator else wait.what


def _wait_lines(waits: Sequence[Wait], now: float) -> list[str]:
    lines = [f"what is waited for: {len(waits)} waits", *(f"  {one}" for one in _kinds(waits))]
    lines += [f"  {now - one.since:8.1f} s  {one.who}: {one.what}" for one in waits[:_MOST_WAITS]]
    return lines


def _task_lines() -> list[str]:
    """Where every task of the event loop stands, from the outside in."""
    tasks = sorted(asyncio.all_tasks(), key=lambda one: one.get_name())
    lines = [f"tasks: {len(tasks)}"]
    for task in tasks[:_MOST_TASKS]:
        lines.append(f"  {task.get_name()}")
        lines += [f"    {one}" for one in _frames_of(task.get_coro())]
    if len(tasks) > _MOST_TASKS:
        lines.append(f"  and {len(tasks) - _MOST_TASKS} more")
    return lines


def _frames_of(awaited: object) -> list[str]:
    """Follow what is awaited: a task's own `get_stack` tells the outermost frame alone."""
    lines: list[str] = []
    while awaited is not None and len(lines) < _MOST_FRAMES:
        code, frame, inner = _looked_into(awaited)
        if code is None:
            lines.append(f"on {type(awaited).__name__}")
            return lines
        line = "?" if frame is None else frame.f_lineno
        lines.append(f"{code.co_filename}:{line} in {code.co_name}")
        awaited = inner
    return lines


def _looked_into(awaited: object) -> tuple[CodeType | None, FrameType | None, object]:
    """Coroutines, generators and asynchronous generators name the same three things differently."""
    for prefix, inner in (("cr", "cr_await"), ("gi", "gi_yieldfrom"), ("ag", "ag_await")):
        code = getattr(awaited, f"{prefix}_code", None)
        if isinstance(code, CodeType):
            return code, getattr(awaited, f"{prefix}_frame", None), getattr(awaited, inner, None)
    return None, None, None


def _thread_lines() -> list[str]:
    """Where every thread stands. It is written to a file first, and a disk may be what the run waits for."""
    try:
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as file:
            faulthandler.dump_traceback(file, all_threads=True)
            file.seek(0)
            return ["threads", *(f"  {line}" for line in file.read().splitlines())]
    except OSError as error:
        return ["threads", f"  cannot be told: {error}"]
