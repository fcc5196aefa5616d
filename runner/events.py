"""What a run's journal is made of. Everything else (state, views, results, exports) derives from it.

Events are validated when they are read, since a journal is an input like any other. Text that a model
wrote, a server answered or a file system names may hold lone surrogates (JSON escapes bring them in),
which pydantic's own `str` refuses: such fields are `UntrustedText`.
"""

from enum import Enum
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, TypeAdapter

from runner.engines.base import TrajectoryKey
from runner.protocol.score import AnswerStatus, ScoreMethod, Termination

JOURNAL_VERSION: Literal[1] = 1


def _require_str(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("not a string")  # noqa: TRY004 - pydantic collects ValueError
    return value


UntrustedText: TypeAlias = Annotated[str, PlainValidator(_require_str)]


class TurnKind(str, Enum):
    """What became of a completion."""

    ACTION = "action"
    FORMAT_CHECK = "format_check"
    FINAL_ANSWER = "final_answer"
    PARSE_ERROR = "parse_error"
    """It cannot be read, and that ended the trajectory."""


class EndReason(str, Enum):
    """How a run ended."""

    COMPLETE = "complete"
    INCOMPLETE = "incomplete"
    """Every trajectory was tried, some are unfinished."""
    INTERRUPTED = "interrupted"
    FAILED = "failed"


class Event(BaseModel):
    """Common to all events. `at` is seconds since the epoch, stamped by the journal's writer."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    at: float = 0.0


class TrajectoryEvent(Event):
    """An event of one trajectory; `attempt` counts from 1 and grows when it starts again."""

    dataset: str
    problem_id: str
    sample: int
    attempt: int = 1

    @property
    def key(self) -> TrajectoryKey:
        """The trajectory this is about."""
        return TrajectoryKey(self.dataset, self.problem_id, self.sample)


class ProblemRecord(BaseModel):
    """One problem as the run saw it."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    id: str
    row_index: int
    question: str
    answer: str
    source: str = ""


class DatasetRecord(BaseModel):
    """One data set as the run saw it; `sha256` is the whole file's, `problems` those that ran."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: str
    path: UntrustedText
    sha256: str
    base_seed: int
    problems: tuple[ProblemRecord, ...]


class ConcurrencyRecord(BaseModel):
    """What runs at once, and a sentence for each figure that the host made smaller than the profile's."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    trajectories: int
    generations: int
    tools: int
    notes: tuple[str, ...] = ()


class RunStarted(Event):
    """First event of a journal: everything a result depends on."""

    type: Literal["run_started"] = "run_started"
    version: Literal[1] = JOURNAL_VERSION
    run_id: str
    recount: str
    profile: dict[str, Any]
    overrides: tuple[UntrustedText, ...] = ()
    samples: int
    datasets: tuple[DatasetRecord, ...]
    protocol: dict[str, Any]
    engine: dict[str, Any]
    sandbox: dict[str, Any]
    concurrency: ConcurrencyRecord
    deviations: tuple[UntrustedText, ...] = ()


class TrajectoryStarted(TrajectoryEvent):
    """A trajectory (or a further attempt at it) begins."""

    type: Literal["trajectory_started"] = "trajectory_started"
    row_index: int
    seed: int


class ToolRecord(BaseModel):
    """How one bash action went, beside what the model saw of it. Times in seconds, memory in bytes."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    exit_code: int | None
    timed_out: bool
    limits: tuple[str, ...]
    wall_s: float
    cpu_s: float | None
    throttled_s: float | None
    peak_memory_bytes: int | None
    stdout_bytes: int
    stderr_bytes: int


class TurnDone(TrajectoryEvent):
    """One completion and what came of it. `turn` counts from 0."""

    type: Literal["turn"] = "turn"
    turn: int
    seeds: tuple[int, ...]
    """Every seed asked with; a refused turn is asked twice."""
    engine: str
    assistant: UntrustedText
    prompt_tokens: int
    completion_tokens: int
    finish_reason: UntrustedText
    kind: TurnKind
    action: dict[str, Any] | None = None
    observation: UntrustedText | None = None
    tool: ToolRecord | None = None
    generate_wait_s: float
    generate_s: float
    tool_wait_s: float = 0.0
    tool_s: float = 0.0


class Terminated(TrajectoryEvent):
    """A trajectory ended by the model's own doing or by a limit of the protocol: it has a score."""

    type: Literal["terminated"] = "terminated"
    termination: Termination
    score: float
    score_method: ScoreMethod
    answer_status: AnswerStatus
    prediction: UntrustedText
    used_bash: bool
    max_context_tokens: int
    generated_tokens: int
    turn_seeds: tuple[int, ...]
    react_error: UntrustedText | None = None
    elapsed_s: float


class InfrastructureRetry(TrajectoryEvent):
    """Our own side failed in this attempt; the trajectory starts again."""

    type: Literal["infrastructure_retry"] = "infrastructure_retry"
    cause: UntrustedText


class Unfinished(TrajectoryEvent):
    """Our own side kept failing: no score, ever."""

    type: Literal["unfinished"] = "unfinished"
    cause: UntrustedText


class RunEnded(Event):
    """Last event of a run that could still write it."""

    type: Literal["run_ended"] = "run_ended"
    reason: EndReason
    message: UntrustedText = ""


AnyEvent: TypeAlias = Annotated[
    RunStarted | TrajectoryStarted | TurnDone | Terminated | InfrastructureRetry | Unfinished | RunEnded,
    Field(discriminator="type"),
]
EVENT_ADAPTER: TypeAdapter[AnyEvent] = TypeAdapter(AnyEvent)
