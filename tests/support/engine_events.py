"""Events of engines, and an engine that tells of itself what a test says."""

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from typing_extensions import override

from runner.engines.base import GenerationRequest
from runner.engines.reports import PoolSnapshot, ReplicaReport, ReplicaSnapshot, ReplicaState, ReplicaStats
from runner.events import EngineDown, EngineSample, EngineStatsRecord, EngineUp, EngineUseRecord
from support.fake_engine import FakeEngine, Said


def engine_up(name: str = "a", *, at: float = 0.0, starts: int = 1, start_s: float = 2.5) -> EngineUp:
    """An engine serves."""
    return EngineUp(at=at, name=name, start_s=start_s, starts=starts)


def engine_down(name: str = "a", *, at: float = 0.0, cause: str = "killed", **changes: Any) -> EngineDown:
    """An engine is gone."""
    values: dict[str, Any] = {"at": at, "name": name, "cause": cause, "requeued": 1, "given_up": False}
    return EngineDown(**values | changes)


def use(name: str = "a", *, stats: dict[str, Any] | None = None, **changes: Any) -> EngineUseRecord:
    """How one engine was used; not at all where the test says nothing."""
    values: dict[str, Any] = {
        "name": name,
        "state": ReplicaState.SERVING,
        "running": 0,
        "turns": 0,
        "prompt_tokens": 0,
        "completion_tokens": 0,
        "serving_s": 0.0,
        "busy_s": 0.0,
        "batch_s": 0.0,
        "starts": 1,
        "stats": None if stats is None else EngineStatsRecord(**stats),
    }
    return EngineUseRecord(**values | changes)


def sample(*engines: EngineUseRecord, at: float = 0.0, queued: int = 0) -> EngineSample:
    """A sample of all engines."""
    return EngineSample(at=at, queued=queued, engines=engines)


def snapshot(*, queued: int = 0, stats: ReplicaStats | None = None, **changes: Any) -> PoolSnapshot:
    """What a pool of one engine tells."""
    values: dict[str, Any] = {
        "name": "fake",
        "state": ReplicaState.SERVING,
        "running": 0,
        "turns": 0,
        "prompt_tokens": 0,
        "completion_tokens": 0,
        "serving_s": 0.0,
        "busy_s": 0.0,
        "batch_s": 0.0,
        "starts": 1,
        "stats": stats,
    }
    return PoolSnapshot(queued=queued, replicas=(ReplicaSnapshot(**values | changes),))


Told = PoolSnapshot | None | Awaitable[PoolSnapshot | None]


class TellingEngine(FakeEngine):
    """Reports when the test says so, and answers `snapshot` with what `on_snapshot` says or raises."""

    def __init__(
        self,
        on_turn: Callable[[GenerationRequest], Said],
        on_snapshot: Callable[[], Told] = snapshot,
        before: tuple[ReplicaReport, ...] = (),
    ) -> None:
        """`before` is what happened before anybody listened."""
        super().__init__(on_turn)
        self.on_snapshot = on_snapshot
        self._before = before
        self._listeners: list[Callable[[ReplicaReport], None]] = []

    def report(self, report: ReplicaReport) -> None:
        """Tell all that listen."""
        for listener in self._listeners:
            listener(report)

    @override
    def report_to(self, listener: Callable[[ReplicaReport], None]) -> None:
        for report in self._before:
            listener(report)
        self._listeners.append(listener)

    @override
    async def snapshot(self) -> PoolSnapshot | None:
        told = self.on_snapshot()
        return await told if inspect.isawaitable(told) else told
