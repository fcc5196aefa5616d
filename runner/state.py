"""State of a run, reduced from its journal: the one source of views and results.

`apply` takes one event at a time, so a view can follow a growing journal; it touches no clock or disk.
Turns of an attempt that failed on our side are dropped when the trajectory starts again: a result is
made of one whole attempt.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from runner.engine_state import EngineEvent, EnginesState
from runner.engines.base import TrajectoryKey
from runner.events import (
    AnyEvent,
    DatasetRecord,
    EndReason,
    InfrastructureRetry,
    ProblemRecord,
    RunEnded,
    RunStarted,
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


@dataclass
class RunState:
    """A run as far as its journal goes."""

    started: RunStarted | None = None
    ended: RunEnded | None = None
    trajectories: dict[TrajectoryKey, TrajectoryState] = field(default_factory=dict)
    engines: EnginesState = field(default_factory=EnginesState)
    last_event_at: float | None = None
    _earlier_s: float = 0.0
    _problems: set[tuple[str, str]] = field(default_factory=set)

    def apply(self, event: AnyEvent) -> None:
        """Take in one event, in journal order; raise `StateError` for one that cannot stand there."""
        if isinstance(event, RunStarted):
            self._earlier_s = self.wall_s
            self.engines.begin(event.at)
            self.started, self.ended = event, None
            self._problems = {(one.name, problem.id) for one in event.datasets for problem in one.problems}
        elif isinstance(event, RunEnded):
            self.ended = event
        elif isinstance(event, TrajectoryStarted):
            if self.started is not None and (event.dataset, event.problem_id) not in self._problems:
                raise StateError(f"{event.key} is no trajectory of this run")
            before = self.trajectories.get(event.key)
            retries = before.retries if before is not None else []
            self.trajectories[event.key] = TrajectoryState(
                event.key, event.row_index, event.seed, event.attempt, retries=retries
            )
        elif isinstance(event, EngineEvent):
            self.engines.apply(event)
        else:
            self._apply_to_trajectory(event)
        self.last_event_at = event.at

    def _apply_to_trajectory(self, event: TurnDone | Terminated | InfrastructureRetry | Unfinished) -> None:
        trajectory = self.trajectories.get(event.key)
        if trajectory is None:
            raise StateError(f"{event.type} of {event.key}, which never started")
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
        """How long the run has been at work, in seconds; pauses between its starts are not in it."""
        if self.started is None or self.last_event_at is None:
            return self._earlier_s
        return self._earlier_s + max(self.last_event_at - self.started.at, 0.0)

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

    def planned(self) -> list[TrajectoryKey]:
        """Every trajectory the run is made of, whether it has started or not."""
        samples = 0 if self.started is None else self.started.samples
        return [
            TrajectoryKey(record.name, problem.id, sample)
            for record in self.datasets()
            for problem in record.problems
            for sample in range(samples)
        ]


def reduce_events(events: Iterable[AnyEvent]) -> RunState:
    """Return the state after all of `events`."""
    state = RunState()
    for event in events:
        state.apply(event)
    return state
