"""The run as the viewer keeps it: a row a trajectory, sums, engines and the last errors.

`runner.state` keeps every turn's text, which a viewer of thousands of trajectories must not; this keeps
where turns stand in the journal instead. Pure: events in, facts out. An event that cannot stand where it
does is an error to show and no reason to stop: the viewer is for looking at runs that went wrong.
"""

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from runner.clean import clean_text
from runner.engine_state import EnginesState
from runner.engines.base import TrajectoryKey
from runner.events import (
    DatasetRecord,
    EngineDown,
    EngineSample,
    EngineUp,
    InfrastructureRetry,
    RunContinued,
    RunEnded,
    RunExamined,
    RunPaused,
    RunStarted,
    Stalled,
    Terminated,
    TrajectoryStarted,
    TurnDone,
    Unfinished,
)
from runner.protocol.score import Termination
from runner.results.aggregate import ScoredRow
from runner.views.watch.figures import Mean, mean_with_interval
from runner.views.watch.rows import SCORED, Outcome, ProblemFacts, Row, doing_of, shown
from runner.views.watch.search import TextSearch
from runner.views.watch.tail import Damage, Located

ERRORS_KEPT = 500
"""The last ones; all are counted."""
_CAUSE_CHARS = 2000
_NOWHERE = ProblemFacts(question="", gold="", place=(1 << 30, 0))


class ErrorClass(str, Enum):
    """What kind of failure an error was. None of them is the model's."""

    RETRY = "retry"
    UNFINISHED = "unfinished"
    ENGINE_LOST = "engine lost"
    ENGINE_GIVEN_UP = "engine given up"
    PAUSE = "pause"
    """The run paused for failures of our own side in a row."""
    DOCTOR = "doctor"
    """What an examination found while it was paused."""
    STALL = "stall"
    RUN = "run"
    DAMAGE = "damage"
    """A line of the journal that cannot be read, or cannot stand where it does."""


@dataclass(frozen=True)
class ErrorNote:
    """One failure. `cause` is cleaned; `at` is None for damage, which has no time."""

    at: float | None
    kind: ErrorClass
    where: str
    cause: str


class RunIndex:
    """A run as far as its journal was read."""

    def __init__(self, journal_name: str) -> None:
        """`journal_name` stands in front of the line numbers of damage."""
        self._journal_name = journal_name
        self.started: RunStarted | None = None
        self.ended: RunEnded | None = None
        self.pause: RunPaused | None = None
        """The pause that the run is in, if it is in one."""
        self.last_event_at: float | None = None
        self.rows: dict[TrajectoryKey, Row] = {}
        self.engines = EnginesState()
        self.errors: deque[ErrorNote] = deque(maxlen=ERRORS_KEPT)
        self.error_counts: Counter[ErrorClass] = Counter()
        self.tallies: dict[str, Counter[Outcome]] = {}
        self.generated_tokens = 0
        self.search: TextSearch | None = None
        self._scored: dict[str, dict[TrajectoryKey, ScoredRow]] = {}
        self._ends: Counter[str] = Counter()
        self._means: dict[str, tuple[int, Mean | None]] = {}
        self._changed: set[TrajectoryKey] = set()
        self._datasets: tuple[DatasetRecord, ...] = ()

    @property
    def datasets(self) -> tuple[DatasetRecord, ...]:
        """In the profile's order."""
        return self._datasets

    def mean(self, dataset: str) -> Mean | None:
        """The mean score of a data set so far, worked out again only when there is another score."""
        ends = self._ends[dataset]
        known = self._means.get(dataset)
        if known is None or known[0] != ends:
            rows = list(self._scored.get(dataset, {}).values())
            known = self._means[dataset] = (ends, mean_with_interval(rows))
        return known[1]

    def take_changed(self) -> set[TrajectoryKey]:
        """Return which rows are new or changed since this was last asked."""
        changed, self._changed = self._changed, set()
        return changed

    def take_in(self, found: Iterable[Located | Damage]) -> None:
        """Take in what was read, in order."""
        for one in found:
            if isinstance(one, Damage):
                self._damage(one.line, one.reason)
            else:
                self._apply(one)

    def _apply(self, located: Located) -> None:
        event = located.event
        if isinstance(event, RunStarted):
            self._begin(event)
        elif isinstance(event, RunEnded):
            self._end(event)
        elif isinstance(event, EngineUp | EngineDown | EngineSample):
            self._engine(event)
        elif isinstance(event, TrajectoryStarted):
            self._start(event, located)
        elif isinstance(event, TurnDone):
            self._turn(event, located)
        elif isinstance(event, Terminated):
            self._terminate(event, located)
        elif isinstance(event, InfrastructureRetry):
            self._retry(event, located)
        elif isinstance(event, Unfinished):
            self._give_up(event, located)
        elif isinstance(event, RunPaused | RunExamined | RunContinued | Stalled):
            self._trouble(event)
        self.last_event_at = event.at

    def _begin(self, event: RunStarted) -> None:
        """A run starts, or starts again: what had not ended begins anew."""
        self.engines.begin(event.at)
        self.started, self.ended, self.pause, self._datasets = event, None, None, event.datasets
        for row in self.rows.values():
            if row.outcome not in SCORED:
                self._set(row, Outcome.WAITING)
        for number, dataset in enumerate(event.datasets):
            for problem in dataset.problems:
                facts = ProblemFacts(problem.question, problem.answer, (number, problem.row_index))
                for sample in range(event.samples):
                    key = TrajectoryKey(dataset.name, problem.id, sample)
                    known = self.rows.get(key)
                    if known is None:
                        self._new_row(key, facts)
                    else:
                        known.problem = facts

    def _end(self, event: RunEnded) -> None:
        self.ended, self.pause = event, None
        for row in self.rows.values():
            if row.outcome is Outcome.RUNNING:
                row.ended_at = event.at
                self._set(row, Outcome.STOPPED)
        if event.message:
            self._error(event.at, ErrorClass.RUN, event.reason.value, event.message)

    def _engine(self, event: EngineUp | EngineDown | EngineSample) -> None:
        self.engines.apply(event)
        if isinstance(event, EngineDown):
            kind = ErrorClass.ENGINE_GIVEN_UP if event.given_up else ErrorClass.ENGINE_LOST
            self._error(event.at, kind, event.name, event.cause)

    def _trouble(self, event: RunPaused | RunExamined | RunContinued | Stalled) -> None:
        if isinstance(event, RunPaused):
            self.pause = event
            cause = f"{event.failures} failures in a row, the last: {event.cause}"
            self._error(event.at, ErrorClass.PAUSE, event.fault.value, cause)
        elif isinstance(event, RunContinued):
            self.pause = None
        elif isinstance(event, RunExamined):
            for finding in event.findings:
                self._error(event.at, ErrorClass.DOCTOR, event.fault.value, finding)
        else:
            waits = "; ".join(event.waits) or "nobody waits"
            self._error(
                event.at, ErrorClass.STALL, event.report, f"silent for {event.silent_s:.0f} s: {waits}"
            )

    def _start(self, event: TrajectoryStarted, located: Located) -> None:
        row = self._row(event, located)
        row.attempt, row.seed, row.started_at = event.attempt, event.seed, event.at
        row.turns = row.generated_tokens = row.context_tokens = 0
        row.turn_offsets = row.turn_offsets[:0]
        row.elapsed_s = row.ended_at = row.score = row.termination = row.end_offset = None
        row.doing = row.prediction = ""
        self._set(row, Outcome.RUNNING)

    def _turn(self, event: TurnDone, located: Located) -> None:
        row = self._row(event, located)
        self.engines.count(event)
        self.generated_tokens += event.completion_tokens
        row.turns += 1
        row.generated_tokens += event.completion_tokens
        row.context_tokens = max(row.context_tokens, event.prompt_tokens + event.completion_tokens)
        row.turn_offsets.append(located.offset)
        row.doing = doing_of(event)
        if self.search is not None:
            self.search.see(event)
        self._set(row, row.outcome)

    def _terminate(self, event: Terminated, located: Located) -> None:
        row = self._row(event, located)
        row.termination, row.score = event.termination, event.score
        row.generated_tokens = event.generated_tokens
        row.context_tokens = event.max_context_tokens
        row.elapsed_s, row.ended_at, row.end_offset = event.elapsed_s, event.at, located.offset
        row.prediction = shown(event.prediction)
        self._ends[event.dataset] += 1
        self._scored.setdefault(event.dataset, {})[event.key] = ScoredRow(
            problem_id=event.problem_id,
            sample=event.sample,
            score=event.score,
            score_method=event.score_method,
            termination=event.termination,
            answer_status=event.answer_status,
        )
        self._set(row, _outcome_of(event))

    def _retry(self, event: InfrastructureRetry, located: Located) -> None:
        row = self._row(event, located)
        row.retries += 1
        row.retry_offsets.append(located.offset)
        self._error(event.at, ErrorClass.RETRY, f"{event.key} attempt {event.attempt}", event.cause)
        self._set(row, row.outcome)

    def _give_up(self, event: Unfinished, located: Located) -> None:
        row = self._row(event, located)
        row.ended_at, row.end_offset = event.at, located.offset
        self._error(event.at, ErrorClass.UNFINISHED, f"{event.key} attempts {event.attempt}", event.cause)
        self._set(row, Outcome.UNFINISHED)

    def _row(
        self,
        event: TrajectoryStarted | TurnDone | Terminated | InfrastructureRetry | Unfinished,
        located: Located,
    ) -> Row:
        """Return the trajectory's row; one that cannot be there is damage, and shown all the same."""
        row = self.rows.get(event.key)
        if row is None:
            row = self._new_row(event.key, _NOWHERE)
            if self.started is not None:
                self._damage(located.line, f"{event.key} is no trajectory of this run")
        if row.outcome is Outcome.WAITING and not isinstance(event, TrajectoryStarted):
            self._damage(located.line, f"{event.type} of {event.key}, which never started")
            row.attempt, row.started_at = event.attempt, event.at
            self._set(row, Outcome.RUNNING)
        return row

    def _new_row(self, key: TrajectoryKey, facts: ProblemFacts) -> Row:
        row = self.rows[key] = Row(key, facts)
        self.tallies.setdefault(key.dataset, Counter())[Outcome.WAITING] += 1
        self._changed.add(key)
        return row

    def _set(self, row: Row, outcome: Outcome) -> None:
        if outcome is not row.outcome:
            tally = self.tallies[row.key.dataset]
            tally[row.outcome] -= 1
            tally[outcome] += 1
            row.outcome = outcome
        row.version += 1
        self._changed.add(row.key)

    def _damage(self, line: int, reason: str) -> None:
        self._error(None, ErrorClass.DAMAGE, f"{self._journal_name}:{line}", reason)

    def _error(self, at: float | None, kind: ErrorClass, where: str, cause: str) -> None:
        self.error_counts[kind] += 1
        cleaned = clean_text(cause, keep_lines=True, limit_chars=_CAUSE_CHARS)
        self.errors.append(ErrorNote(at, kind, shown(where), cleaned))


def _outcome_of(event: Terminated) -> Outcome:
    if event.score >= 1.0:
        return Outcome.RIGHT
    return Outcome.WRONG if event.termination is Termination.FINAL_ANSWER else Outcome.LIMIT
