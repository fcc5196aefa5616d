"""Engines in the journal: what they report is written as it happens, how they are used every few seconds.

It watches and touches nothing: it ends with the run, whatever an engine does, and a report becomes an event
in the run's own tasks, so that a full disk ends the run and no engine.
"""

from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict
from math import isfinite
from typing import Any

import anyio

from runner.engines.base import Engine
from runner.engines.reports import PoolSnapshot, ReplicaReport, ReplicaSnapshot, ReplicaUp
from runner.events import EngineDown, EngineSample, EngineUp, EngineUseRecord, Event
from runner.groups import first_error_only

SAMPLE_INTERVAL_S = 10.0
"""A run takes minutes to hours, and what a sample shows changes with turns, which take seconds."""
SAMPLE_INTERVAL_AN_ENGINE_S = 0.1
"""From a hundred engines on samples are further apart: they are half a kilobyte an engine, and those of a
thousand, every ten seconds, would be the larger part of a journal."""
SAMPLE_TIMEOUT_S = 10.0
"""Engines bound their own answer; this holds if one does not. A sample that takes longer is left out."""
LAST_SAMPLE_TIMEOUT_S = 2.0
"""The same at the end, of which a run that is stopped has only seconds."""

_CAUSE_CHARS = 2000
"""Kept of either end of a cause: it says what happened, then holds the last lines of an engine's log."""

Emit = Callable[[Event], object]


@asynccontextmanager
async def engine_log(engine: Engine, emit: Emit) -> AsyncIterator[None]:
    """Write what `engine` tells for as long as the body runs, and how it was used in the end.

    An error of the body leaves as it is. A failure of the engine to tell is a fault of the program and ends
    the body.
    """
    log = _EngineLog(engine, emit)
    log.begin()
    try:
        with first_error_only():
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(log.follow_reports)
                tasks.start_soon(log.follow_use)
                yield
                tasks.cancel_scope.cancel()
    except Exception:
        # What is raised already is the news, and may be why nothing can be written.
        with suppress(Exception):
            await log.end()
        raise
    except BaseException:
        await log.end()
        raise
    await log.end()


class _EngineLog:
    def __init__(self, engine: Engine, emit: Emit) -> None:
        self._engine = engine
        self._emit = emit
        self._reports: deque[ReplicaReport] = deque()
        self._more = anyio.Event()

    def begin(self) -> None:
        """Write what happened before, then listen."""
        self._engine.report_to(self._hear)
        self._write_reports()

    async def follow_reports(self) -> None:
        """Write reports as they come."""
        while True:
            await self._more.wait()
            self._more = anyio.Event()
            self._write_reports()

    async def follow_use(self) -> None:
        """Write a sample at once, then one every `SAMPLE_INTERVAL_S`."""
        while True:
            engines = 0
            with anyio.move_on_after(SAMPLE_TIMEOUT_S):
                engines = await self._sample()
            await anyio.sleep(max(SAMPLE_INTERVAL_S, engines * SAMPLE_INTERVAL_AN_ENGINE_S))

    async def end(self) -> None:
        """Write what is left and a last sample; shielded, since a stopped run has results too."""
        with anyio.move_on_after(LAST_SAMPLE_TIMEOUT_S, shield=True):
            await self._sample()
        self._write_reports()

    def _hear(self, report: ReplicaReport) -> None:
        # Called by the engine's own tasks; behind the journal's end nobody takes it from here.
        self._reports.append(report)
        self._more.set()

    def _write_reports(self) -> None:
        while self._reports:
            self._emit(report_event(self._reports.popleft()))

    async def _sample(self) -> int:
        """Write a sample; return of how many engines."""
        snapshot = await self._engine.snapshot()
        if snapshot is None:
            return 0
        # First what led to the states that the sample shows.
        self._write_reports()
        self._emit(sample_event(snapshot))
        return len(snapshot.replicas)


def report_event(report: ReplicaReport) -> EngineUp | EngineDown:
    """Return a replica's report as it stands in the journal."""
    if isinstance(report, ReplicaUp):
        took_s = round(report.start_s, 6)
        return EngineUp(name=report.name, start_s=took_s, starts=report.starts, node=report.node)
    return EngineDown(
        name=report.name,
        cause=_ends_of(report.cause),
        requeued=report.requeued,
        given_up=report.given_up,
    )


def _ends_of(cause: str) -> str:
    left_out = len(cause) - 2 * _CAUSE_CHARS
    if left_out <= 0:
        return cause
    return f"{cause[:_CAUSE_CHARS]}\n[{left_out} characters left out]\n{cause[-_CAUSE_CHARS:]}"


def sample_event(snapshot: PoolSnapshot) -> EngineSample:
    """Return how the engines are used as it stands in the journal."""
    return EngineSample(queued=snapshot.queued, engines=tuple(map(_use_record, snapshot.replicas)))


def _use_record(snapshot: ReplicaSnapshot) -> EngineUseRecord:
    values: dict[str, Any] = asdict(snapshot)
    if values["stats"] is not None:
        values["stats"] = {name: _told(value) for name, value in values["stats"].items()}
    for name in ("serving_s", "busy_s", "batch_s"):
        values[name] = round(values[name], 6)
    return EngineUseRecord.model_validate(values)


def _told(value: float | None) -> float | None:
    """A figure that an engine got wrong (0 divided by 0) is one it does not tell; JSON has no word for it."""
    if not isinstance(value, float):
        return value
    return round(value, 6) if isfinite(value) else None
