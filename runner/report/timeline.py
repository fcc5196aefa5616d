"""What engines did over the time of a run: batch, idle time, queue, losses, and what was left to do. Pure.

A pool's samples tell it best. Where there are none (a server, a script), the turns themselves do: each says
how long it was generated and when it was over.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from runner.engine_state import EngineState
from runner.events import EngineSample, EngineUseRecord, RunResumed, TurnDone
from runner.state import RunState

BINS = 160
"""Steps of the time axis: what a screen can tell apart."""
_MOST_ENGINES = 16
"""Drawn one by one; figures of all of them stand in the table."""


class Source(str, Enum):
    """Where a timeline is from."""

    SAMPLES = "what the engines' pool counted"
    TURNS = "the turns that ended, waiting for a place in an engine included"


@dataclass(frozen=True)
class Loss:
    """An engine was gone: when, in seconds of work, and why."""

    at_s: float
    cause: str


@dataclass(frozen=True)
class EngineLine:
    """One engine, a value a step. None is a step that nothing is told of."""

    name: str
    batch: tuple[float | None, ...]
    """Turns at once, on average."""
    idle: tuple[float | None, ...]
    """Share of the time that it was up with nothing to do."""
    losses: tuple[Loss, ...]


@dataclass(frozen=True)
class Timeline:
    """A run from its start to its last event, pauses between its parts left out."""

    work_s: float
    source: Source
    engines: tuple[EngineLine, ...]
    engines_not_shown: int
    queue: tuple[float | None, ...]
    left: tuple[float, ...]
    """Trajectories that had not ended, at the end of each step."""
    resumed_at_s: tuple[float, ...]

    @property
    def largest_batch(self) -> float:
        """The most in any step, and at least 1."""
        return max((value or 0.0 for one in self.engines for value in one.batch), default=0.0) or 1.0


class _Sums:
    """Amounts over time, collected into steps in proportion to how long they lie in each."""

    def __init__(self, whole_s: float) -> None:
        self._whole_s = whole_s
        self.values = [0.0] * BINS
        self.told = [False] * BINS

    def add(self, begin_s: float, end_s: float, amount: float) -> None:
        if end_s <= begin_s or self._whole_s <= 0:
            return
        width = self._whole_s / BINS
        first, last = int(begin_s // width), int(end_s // width)
        for index in range(max(first, 0), min(last, BINS - 1) + 1):
            inside = min(end_s, (index + 1) * width) - max(begin_s, index * width)
            if inside > 0:
                self.values[index] += amount * inside / (end_s - begin_s)
                self.told[index] = True


def timeline_of(state: RunState, samples: Sequence[EngineSample | RunResumed]) -> Timeline | None:
    """Return the timeline of a run; None where it has no length, or asked no engine anything."""
    work_s, engines = state.wall_s, list(state.engines.by_name.values())
    if work_s <= 0 or not engines:
        return None
    pairs = list(_pairs(samples))
    by_samples = any(_used(before, after) for before, after in pairs)
    lines = _lines_of_samples(state, pairs) if by_samples else _lines_of_turns(state)
    shown = engines[:_MOST_ENGINES]
    parts = state.parts[1:]
    return Timeline(
        work_s=work_s,
        source=Source.SAMPLES if by_samples else Source.TURNS,
        engines=tuple(_line(state, one, lines) for one in shown),
        engines_not_shown=len(engines) - len(shown),
        queue=_queue(state, pairs),
        left=_left(state),
        resumed_at_s=tuple(state.work_s(part.began.at) for part in parts),
    )


Batches = Mapping[str, tuple[tuple[float | None, ...], tuple[float | None, ...]]]


def _line(state: RunState, engine: EngineState, lines: Batches) -> EngineLine:
    nothing: tuple[float | None, ...] = (None,) * BINS
    batch, idle = lines.get(engine.name, (nothing, nothing))
    losses = tuple(Loss(state.work_s(loss.at), loss.cause) for loss in engine.last_losses)
    return EngineLine(engine.name, batch, idle, losses)


def _pairs(samples: Sequence[EngineSample | RunResumed]) -> Iterable[tuple[EngineSample, EngineSample]]:
    """Yield samples that follow each other in one part of the run: a new part counts from 0."""
    before: EngineSample | None = None
    for one in samples:
        if isinstance(one, RunResumed):
            before = None
            continue
        if before is not None and one.at > before.at:
            yield before, one
        before = one


def _used(before: EngineSample, after: EngineSample) -> bool:
    first = {one.name: one for one in before.engines}
    return any(one.name in first and one.serving_s > first[one.name].serving_s for one in after.engines)


def _lines_of_samples(state: RunState, pairs: Iterable[tuple[EngineSample, EngineSample]]) -> Batches:
    work_s = state.wall_s
    batch: dict[str, _Sums] = {}
    busy: dict[str, _Sums] = {}
    serving: dict[str, _Sums] = {}
    for before, after in pairs:
        first = {one.name: one for one in before.engines}
        begin_s, end_s = state.work_s(before.at), state.work_s(after.at)
        for one in after.engines:
            if one.name not in first:
                continue
            gained = _gained(first[one.name], one)
            for sums, amount in zip((batch, busy, serving), gained, strict=True):
                sums.setdefault(one.name, _Sums(work_s)).add(begin_s, end_s, amount)
    width = work_s / BINS
    return {
        name: (
            tuple(
                value / width if told else None
                for value, told in zip(batch[name].values, batch[name].told, strict=True)
            ),
            tuple(
                1 - min(used / up, 1.0) if up > 0 else None
                for used, up in zip(busy[name].values, serving[name].values, strict=True)
            ),
        )
        for name in batch
    }


def _gained(before: EngineUseRecord, after: EngineUseRecord) -> tuple[float, float, float]:
    return (
        max(after.batch_s - before.batch_s, 0.0),
        max(after.busy_s - before.busy_s, 0.0),
        max(after.serving_s - before.serving_s, 0.0),
    )


def _lines_of_turns(state: RunState) -> Batches:
    spans: dict[str, list[tuple[float, float]]] = {}
    for trajectory in state.trajectories.values():
        for turn in trajectory.turns:
            spans.setdefault(turn.engine, []).append(_generated(state, turn))
    return {name: _overlaps(found, state.wall_s) for name, found in spans.items()}


def _generated(state: RunState, turn: TurnDone) -> tuple[float, float]:
    """Return from when to when a turn was generated, in seconds of work: its tool ran after that."""
    end_s = max(state.work_s(turn.at) - turn.tool_wait_s - turn.tool_s, 0.0)
    return max(end_s - turn.generate_s, 0.0), end_s


def _overlaps(
    spans: Iterable[tuple[float, float]], work_s: float
) -> tuple[tuple[float | None, ...], tuple[float | None, ...]]:
    batch, busy = _Sums(work_s), _Sums(work_s)
    reached_s = 0.0
    for begin_s, end_s in sorted(spans):
        batch.add(begin_s, end_s, end_s - begin_s)
        new_s = max(begin_s, reached_s)
        busy.add(new_s, end_s, end_s - new_s)
        reached_s = max(reached_s, end_s)
    width = work_s / BINS
    return (
        tuple(value / width for value in batch.values),
        tuple(1 - min(value / width, 1.0) for value in busy.values),
    )


def _queue(state: RunState, pairs: Iterable[tuple[EngineSample, EngineSample]]) -> tuple[float | None, ...]:
    sums = _Sums(state.wall_s)
    for before, after in pairs:
        begin_s, end_s = state.work_s(before.at), state.work_s(after.at)
        sums.add(begin_s, end_s, before.queued * (end_s - begin_s))
    width = state.wall_s / BINS
    return tuple(value / width if told else None for value, told in zip(sums.values, sums.told, strict=True))


def _left(state: RunState) -> tuple[float, ...]:
    ends = sorted(
        state.work_s(end.at)
        for one in state.trajectories.values()
        if (end := one.terminated or one.unfinished) is not None
    )
    planned, width, done = len(state.planned()), state.wall_s / BINS, 0
    left = []
    for index in range(BINS):
        # The last step holds the last event, wherever rounding puts its end.
        until_s = (index + 1) * width if index < BINS - 1 else state.wall_s + 1.0
        while done < len(ends) and ends[done] <= until_s:
            done += 1
        left.append(float(planned - done))
    return tuple(left)
