"""What a display keeps of a run: reduced from the same events as everything else, but bounded.

A run's whole state holds every completion; a display that lives as long as the run keeps figures, what runs
now, and the last few of what ended or went wrong. The engines' part is the one all others use.
"""

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil

from runner.engine_state import EnginesState
from runner.engines.base import TrajectoryKey
from runner.events import (
    EngineDown,
    EngineSample,
    EngineUp,
    Event,
    InfrastructureRetry,
    RunEnded,
    RunStarted,
    Terminated,
    TrajectoryStarted,
    TurnDone,
    Unfinished,
)
from runner.protocol.observation import SCRIPT_PREFIX
from runner.views.live_parts import Ended, ErrorClass, ErrorNote, Running, RunningPhase, Tally, TokenRate

KEPT_ENDED = 24
KEPT_ERRORS = 24
KEPT_CHARS = 2000
"""Of any text: a row shows at most some hundred characters of it."""
KEPT_LATENCIES = 512
"""Quantiles are of the last so many actions: they show the present, and cost the same for ever."""


@dataclass
class LiveState:
    """A run as a display sees it. `apply` takes one event, in journal order."""

    started: RunStarted | None = None
    ended: RunEnded | None = None
    tallies: dict[str, Tally] = field(default_factory=dict)
    terminations: Counter[str] = field(default_factory=Counter)
    engines: EnginesState = field(default_factory=EnginesState)
    token_rates: dict[str, TokenRate] = field(default_factory=dict)
    actions: int = 0
    failed_actions: int = 0
    limits: Counter[str] = field(default_factory=Counter)
    retries: int = 0
    last_ended: deque[Ended] = field(default_factory=lambda: deque(maxlen=KEPT_ENDED))
    last_errors: deque[ErrorNote] = field(default_factory=lambda: deque(maxlen=KEPT_ERRORS))
    _running: dict[TrajectoryKey, Running] = field(default_factory=dict)
    _by_workspace: dict[str, Running] = field(default_factory=dict)
    _slots: list[Running | None] = field(default_factory=list)
    _gold: dict[tuple[str, str], str] = field(default_factory=dict)
    _latencies: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT_LATENCIES))

    def apply(self, event: Event) -> None:
        """Take in one event. One of a trajectory that nobody saw begin counts where that needs no more."""
        if isinstance(event, RunStarted):
            self._begin(event)
        elif isinstance(event, TrajectoryStarted):
            self._start(event)
        elif isinstance(event, TurnDone):
            self._turn(event)
        elif isinstance(event, Terminated):
            self._terminated(event)
        elif isinstance(event, InfrastructureRetry | Unfinished):
            self._failed(event)
        elif isinstance(event, EngineUp | EngineDown | EngineSample):
            self.engines.apply(event)
            if isinstance(event, EngineDown):
                self.note_error(event.at, ErrorClass.ENGINE, event.name, event.cause)
        elif isinstance(event, RunEnded):
            self.ended = event
            if event.message:
                self.note_error(event.at, ErrorClass.RUN, event.reason.value, event.message)

    def note_error(self, at: float, kind: ErrorClass, where: str, cause: str) -> None:
        """Keep something that went wrong."""
        self.last_errors.append(ErrorNote(at, kind, where[:KEPT_CHARS], cause[:KEPT_CHARS]))

    def note_command(self, workspace_id: str, script: str | None) -> None:
        """A command begins in a workspace, or (None) ended. A journal holds what is done: no event tells."""
        running = self._by_workspace.get(workspace_id)
        if running is None:
            return
        if script is None:
            running.phase = RunningPhase.MODEL
        else:
            running.phase = RunningPhase.COMMAND
            running.command = script.removeprefix(SCRIPT_PREFIX)[:KEPT_CHARS]

    @property
    def running(self) -> list[Running]:
        """What runs, each at its place for as long as it does: a row that jumps cannot be read."""
        return [one for one in self._slots if one is not None]

    @property
    def planned(self) -> int:
        """All trajectories of the run."""
        return sum(one.planned for one in self.tallies.values())

    @property
    def tried(self) -> int:
        """All that came to an end."""
        return sum(one.tried for one in self.tallies.values())

    @property
    def unfinished(self) -> int:
        """All that our side failed for good."""
        return sum(len(one.unfinished) for one in self.tallies.values())

    def left_s(self, now: float) -> float | None:
        """Return how long the run still takes, which is as long as its slowest data set."""
        if self.started is None:
            return None
        rests = [one.left_s(now, self.started.at) for one in self.tallies.values()]
        return None if None in rests else max((rest for rest in rests if rest is not None), default=None)

    def latency_s(self, quantile: float) -> float | None:
        """Return a quantile (nearest rank) of the last actions' durations."""
        if not self._latencies:
            return None
        ordered = sorted(self._latencies)
        return ordered[max(ceil(quantile * len(ordered)) - 1, 0)]

    @property
    def max_turns(self) -> int | None:
        """How many turns a trajectory may take; None where the profile does not tell."""
        limits = {} if self.started is None else self.started.profile.get("limits", {})
        most = limits.get("max_turns") if isinstance(limits, Mapping) else None
        return most if isinstance(most, int) else None

    def _begin(self, event: RunStarted) -> None:
        self.started, self.ended = event, None
        self.engines.begin(event.at)
        self._running.clear()
        self._by_workspace.clear()
        self._slots.clear()
        self.token_rates.clear()
        for dataset in event.datasets:
            tally = self.tallies.setdefault(dataset.name, Tally(dataset.name))
            tally.planned = len(dataset.problems) * event.samples
            tally.ended_at.clear()
            tally.unfinished.clear()  # a run that goes on tries them again
            self._gold |= {(dataset.name, one.id): one.answer[:KEPT_CHARS] for one in dataset.problems}

    def _tally(self, dataset: str) -> Tally:
        return self.tallies.setdefault(dataset, Tally(dataset))

    def _start(self, event: TrajectoryStarted) -> None:
        running = Running(event.key, event.attempt, event.at)
        before = self._running.get(event.key)
        if before is not None:
            self._by_workspace.pop(_workspace_id(before), None)
        self._running[event.key] = self._by_workspace[_workspace_id(running)] = running
        if before is not None:
            self._slots[_place(self._slots, before)] = running
        elif None in self._slots:
            self._slots[_place(self._slots, None)] = running
        else:
            self._slots.append(running)

    def _turn(self, event: TurnDone) -> None:
        self.engines.count(event)
        self.token_rates.setdefault(event.engine, TokenRate()).add(event.at, event.completion_tokens)
        if event.tool is not None:
            self.actions += 1
            self.failed_actions += event.tool.exit_code not in {0, None}
            self.limits.update(event.tool.limits)
            self._latencies.append(event.tool_s)
        running = self._running.get(event.key)
        if running is None:
            return
        running.phase, running.turns = RunningPhase.MODEL, event.turn + 1
        running.context_tokens = event.prompt_tokens + event.completion_tokens
        running.command = command_of(event) or running.command

    def _terminated(self, event: Terminated) -> None:
        tally = self._tally(event.dataset)
        tally.mean.add(event.problem_id, event.score)
        tally.unfinished.discard(event.key)
        tally.ended_at.append(event.at)
        self.terminations[event.termination.value] += 1
        self.last_ended.append(
            Ended(
                event.key,
                event.score,
                event.termination.value,
                event.prediction[:KEPT_CHARS],
                self._gold.get((event.dataset, event.problem_id), ""),
                len(event.turn_seeds),
                event.elapsed_s,
            )
        )
        if event.react_error is not None and event.react_error not in _NO_ERRORS:
            self.note_error(event.at, ErrorClass.REQUEST, short_name(event.key), event.react_error)
        self._leave(event.key)

    def _failed(self, event: InfrastructureRetry | Unfinished) -> None:
        if isinstance(event, InfrastructureRetry):
            self.retries += 1
            self.note_error(event.at, ErrorClass.RETRY, short_name(event.key), event.cause)
            running = self._running.get(event.key)
            if running is not None:
                running.phase = RunningPhase.RETRY
            return
        tally = self._tally(event.dataset)
        tally.unfinished.add(event.key)
        tally.ended_at.append(event.at)
        self.note_error(event.at, ErrorClass.UNFINISHED, short_name(event.key), event.cause)
        self._leave(event.key)

    def _leave(self, key: TrajectoryKey) -> None:
        running = self._running.pop(key, None)
        if running is not None:
            self._by_workspace.pop(_workspace_id(running), None)
            self._slots[_place(self._slots, running)] = None


def _place(slots: list[Running | None], one: Running | None) -> int:
    # By identity: comparing dataclasses field by field is slow, and two may be equal.
    return next(index for index, slot in enumerate(slots) if slot is one)


def _workspace_id(running: Running) -> str:
    return f"{running.key}:{running.attempt}"


_NO_ERRORS = frozenset({"max_react_turns_exceeded", "context_length_exceeded"})
"""What a trajectory's error says where a limit of the protocol ended it: counted, and no news."""


def short_name(key: TrajectoryKey) -> str:
    """Return a trajectory's name as displays have it."""
    return f"{key.dataset}/{key.problem_id}:{key.sample}"


def command_of(turn: TurnDone) -> str:
    """Return the command of a turn as far as it is shown; empty where it has none."""
    if turn.action is None:
        return ""
    arguments = turn.action.get("arguments")
    command = arguments.get("command") if isinstance(arguments, Mapping) else None
    return command[:KEPT_CHARS] if isinstance(command, str) else ""
