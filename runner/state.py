"""State of a run, reduced from its journal: the one source of views and results.

`apply` takes one event at a time, so a view can follow a growing journal; it touches no clock or disk.
Turns of an attempt that failed on our side are dropped when the trajectory starts again: a result is
made of one whole attempt. A run that was resumed is one run: what it is made of stands in its first event,
and its parts are kept beside each other with the time between them.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from runner.engine_state import EngineEvent, EnginesState
from runner.engines.base import TrajectoryKey
from runner.events import (
    AnyEvent,
    DatasetRecord,
    DiskWasFull,
    EndReason,
    InfrastructureRetry,
    ProblemRecord,
    RunContinued,
    RunEnded,
    RunExamined,
    RunPaused,
    RunResumed,
    RunStarted,
    Stalled,
    Terminated,
    TrajectoryStarted,
    TurnDone,
    Unfinished,
)


class StateError(ValueError):
    """An event that cannot follow what came before it; the message names the trajectory."""


@dataclass
class TrajectoryState:
    """One trajectory: its newest attempt's turns and, once it ended, how."""

    key: TrajectoryKey
    row_index: int
    seed: int
    attempt: int
    turns: list[TurnDone] = field(default_factory=list)
    terminated: Terminated | None = None
    unfinished: Unfinished | None = None
    retries: list[InfrastructureRetry] = field(default_factory=list)
    given_up: list[Unfinished] = field(default_factory=list)
    """Each time that an earlier part of the run gave it up; it was tried again."""

    @property
    def cause(self) -> Unfinished | None:
        """Why it has no score: our own side's newest failure for good; None where the run stopped first."""
        return self.unfinished or (self.given_up[-1] if self.given_up else None)


@dataclass
class RunPart:
    """A run from one start to its next: `began` is its first event. Times in seconds since the epoch."""

    began: RunStarted
    last_event_at: float
    ended: RunEnded | None = None

    @property
    def wall_s(self) -> float:
        """How long it was at work."""
        return max(self.last_event_at - self.began.at, 0.0)


@dataclass
class RunState:
    """A run as far as its journal goes."""

    started: RunStarted | None = None
    """The first event, with what every part of the run adds to its deviations and notes."""
    ended: RunEnded | None = None
    parts: list[RunPart] = field(default_factory=list)
    trajectories: dict[TrajectoryKey, TrajectoryState] = field(default_factory=dict)
    engines: EnginesState = field(default_factory=EnginesState)
    last_event_at: float | None = None
    disk_full_s: float = 0.0
    """How long no turn began for want of room for the journal."""
    pause: RunPaused | None = None
    """The pause that the run is in, if it is in one; `pauses` counts all."""
    pauses: int = 0
    faulty_s: float = 0.0
    """How long no attempt began because our own side failed again and again."""
    stalls: int = 0
    _problems: set[tuple[str, str]] = field(default_factory=set)

    def apply(self, event: AnyEvent) -> None:
        """Take in one event, in journal order; raise `StateError` for one that cannot stand there."""
        if isinstance(event, RunStarted):
            self._begin(event)
        elif isinstance(event, RunEnded):
            self._end_pause(event.at)
            self.ended = event
        elif isinstance(event, TrajectoryStarted):
            self._start(event)
        elif isinstance(event, EngineEvent):
            self.engines.apply(event)
        elif isinstance(event, DiskWasFull):
            self.disk_full_s += event.waited_s
        elif isinstance(event, RunPaused | RunExamined | RunContinued | Stalled):
            self._take_trouble(event)
        else:
            self._apply_to_trajectory(event)
        self.last_event_at = event.at
        if self.parts:
            self.parts[-1].last_event_at = event.at
            self.parts[-1].ended = self.ended

    def _take_trouble(self, event: RunPaused | RunExamined | RunContinued | Stalled) -> None:
        if isinstance(event, RunPaused):
            self.pause = event
            self.pauses += 1
        elif isinstance(event, RunContinued):
            self.pause = None
            self.faulty_s += event.paused_s
        elif isinstance(event, Stalled):
            self.stalls += 1

    def _end_pause(self, at: float) -> None:
        """A pause that the run did not survive lasted until then."""
        if self.pause is not None:
            self.faulty_s += max(at - self.pause.at, 0.0)
            self.pause = None

    def _begin(self, event: RunStarted) -> None:
        """Take in a start of the run, its first or a further one."""
        before = self.started
        self._end_pause(self.last_event_at or event.at)
        if isinstance(event, RunResumed):
            if before is None:
                raise StateError(f"{event.run_id} goes on, and never began")
            self._resume(before, event)
        self.engines.begin(event.at)
        self.parts.append(RunPart(event, event.at))
        self.started, self.ended = _with_what_is_added(before, event), None
        self._problems = {(one.name, problem.id) for one in event.datasets for problem in one.problems}

    def _resume(self, before: RunStarted, event: RunResumed) -> None:
        same = (before.run_id, before.samples, before.datasets)
        if (event.run_id, event.samples, event.datasets) != same:
            raise StateError(f"{event.run_id} goes on as another run than {before.run_id} began")
        for trajectory in self.trajectories.values():
            if trajectory.unfinished is not None:
                trajectory.given_up.append(trajectory.unfinished)
                trajectory.unfinished = None

    def _start(self, event: TrajectoryStarted) -> None:
        if self.started is not None and (event.dataset, event.problem_id) not in self._problems:
            raise StateError(f"{event.key} is no trajectory of this run")
        before = self.trajectories.get(event.key)
        if before is None:
            self.trajectories[event.key] = TrajectoryState(
                event.key, event.row_index, event.seed, event.attempt
            )
            return
        if before.terminated is not None:
            raise StateError(f"{event.key} starts again, and has its score")
        self.trajectories[event.key] = TrajectoryState(
            event.key,
            event.row_index,
            event.seed,
            event.attempt,
            retries=before.retries,
            given_up=before.given_up,
        )

    def _apply_to_trajectory(self, event: TurnDone | Terminated | InfrastructureRetry | Unfinished) -> None:
        trajectory = self.trajectories.get(event.key)
        if trajectory is None:
            raise StateError(f"{event.type} of {event.key}, which never started")
        if trajectory.terminated is not None:
            raise StateError(f"{event.type} of {event.key}, which has its score")
        if isinstance(event, TurnDone):
            trajectory.turns.append(event)
            self.engines.count(event)
        elif isinstance(event, Terminated):
            trajectory.terminated = event
        elif isinstance(event, InfrastructureRetry):
            trajectory.retries.append(event)
        else:
            trajectory.unfinished = event

    @property
    def wall_s(self) -> float:
        """How long the run has been at work, in seconds; pauses between its parts are not in it."""
        return sum(part.wall_s for part in self.parts)

    @property
    def paused_s(self) -> float:
        """How long the run was not at work between its parts, in seconds."""
        return sum(
            max(after.began.at - before.last_event_at, 0.0)
            for before, after in zip(self.parts, self.parts[1:], strict=False)
        )

    def work_s(self, at: float) -> float:
        """Return how long the run had been at work at a moment (seconds since the epoch)."""
        return sum(max(min(at, part.last_event_at) - part.began.at, 0.0) for part in self.parts)

    @property
    def end_reason(self) -> EndReason | None:
        """How the run ended, or None while it runs or if it was killed."""
        return None if self.ended is None else self.ended.reason

    def datasets(self) -> tuple[DatasetRecord, ...]:
        """The data sets of the run, in the profile's order."""
        return () if self.started is None else self.started.datasets

    def problems(self, dataset: str) -> dict[str, ProblemRecord]:
        """The problems of a data set by id."""
        return {
            problem.id: problem
            for record in self.datasets()
            if record.name == dataset
            for problem in record.problems
        }

    @property
    def all_tried(self) -> bool:
        """Whether every planned trajectory has a score or is given up."""
        return all(
            (one := self.trajectories.get(key)) is not None
            and (one.terminated is not None or one.unfinished is not None)
            for key in self.planned()
        )

    def missing(self) -> list[TrajectoryKey]:
        """Every planned trajectory that has no score."""
        return [
            key
            for key in self.planned()
            if (one := self.trajectories.get(key)) is None or one.terminated is None
        ]

    def planned(self) -> list[TrajectoryKey]:
        """Every trajectory the run is made of, whether it has started or not."""
        samples = 0 if self.started is None else self.started.samples
        return [
            TrajectoryKey(record.name, problem.id, sample)
            for record in self.datasets()
            for problem in record.problems
            for sample in range(samples)
        ]


def _with_what_is_added(first: RunStarted | None, event: RunStarted) -> RunStarted:
    """Return the run's first event; what forbids any part to be called a reproduction forbids the whole."""
    if first is None:
        return event
    return first.model_copy(
        update={
            "deviations": tuple(dict.fromkeys((*first.deviations, *event.deviations))),
            "notes": tuple(dict.fromkeys((*first.notes, *event.notes))),
        }
    )


def reduce_events(events: Iterable[AnyEvent]) -> RunState:
    """Return the state after all of `events`."""
    state = RunState()
    for event in events:
        state.apply(event)
    return state
