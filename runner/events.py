"""What a run's journal is made of. Everything else (state, views, results, exports) derives from it.

Events are validated when they are read, since a journal is an input like any other. Text that a model
wrote, a server answered or a file system names may hold lone surrogates (JSON escapes bring them in),
which pydantic's own `str` refuses: such fields are `UntrustedText`.
"""

from enum import Enum
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, TypeAdapter

from runner.chain import CHAIN_KEY
from runner.engines.base import TrajectoryKey
from runner.engines.reports import ReplicaState
from runner.protocol.score import AnswerStatus, ScoreMethod, Termination

JOURNAL_VERSION: Literal[1] = 1
"""Grows when a journal that was written stops meaning what it did. Kinds of event and fields with a default
are only added: every journal there is stays readable, and nothing was released that could not read these."""


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


class RowsRecord(BaseModel):
    """Published rows as they were read: one score a problem and sample, by data set."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    file: UntrustedText
    sha256: str
    report: UntrustedText
    samples: int
    scores: dict[UntrustedText, dict[UntrustedText, tuple[float, ...]]]
    places: dict[UntrustedText, UntrustedText]
    """Where in the file each data set's rows stand."""


class ComparisonRecord(BaseModel):
    """What a run's scores are held against, whole: so that a verdict needs nothing but the journal."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    source: UntrustedText
    """The published figures, as the profile names them."""
    sha256: str
    published: dict[str, Any]
    margin: float
    rows: RowsRecord | None = None
    no_rows_because: UntrustedText = ""


class SourceRecord(BaseModel):
    """The checkout that a run's own code came from. `dirty`: it differed from the commit."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    commit: str
    dirty: bool | None = None


class GpuRecord(BaseModel):
    """One GPU that the run could use; `capability` is CUDA's, such as (8, 0)."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: UntrustedText
    memory_bytes: int
    capability: tuple[int, int] | None = None


class DriverRecord(BaseModel):
    """The GPUs' driver, and the newest CUDA that it was made for."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    version: UntrustedText
    cuda: UntrustedText | None = None


class ArtifactsRecord(BaseModel):
    """What was fetched and hashed for the run."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    manifest: UntrustedText
    revision: UntrustedText | None = None
    """The commit of the model repository that its files are of."""
    sha256: dict[UntrustedText, str] = {}
    unverified: tuple[UntrustedText, ...] = ()
    unpinned: tuple[UntrustedText, ...] = ()
    notes: tuple[UntrustedText, ...] = ()


CODE = "recount_code"
"""In a run's versions: the hash of our own code (`code_sha256`), which changes more often than a version."""


class ProvenanceRecord(BaseModel):
    """Where a run took place and what with, beside what its settings say. What could not be told is None,
    and `not_told` says why, by the dotted name of the field."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    versions: dict[str, UntrustedText | None] = {}
    source: SourceRecord | None = None
    gpus: tuple[GpuRecord, ...] | None = None
    driver: DriverRecord | None = None
    runner_image: UntrustedText | None = None
    artifacts: ArtifactsRecord | None = None
    not_told: dict[str, UntrustedText] = {}


class CommandRecord(BaseModel):
    """What a run was asked for: enough to plan the same run again. `overrides` are of settings alone."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    profile: UntrustedText
    """A bundled profile's name, or a file."""
    overrides: dict[UntrustedText, Any] = {}
    data: dict[str, UntrustedText] = {}
    """Files of data sets that are not where the profile says."""
    only: tuple[str, ...] = ()
    limit: int | None = None
    allow_unverified: bool = False
    """Whether files were let pass that are not the published ones."""


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
    notes: tuple[UntrustedText, ...] = ()
    """What a reader of the verdict has to know besides: files without a published hash, say."""
    comparison: ComparisonRecord | None = None
    provenance: ProvenanceRecord | None = None
    command: CommandRecord | None = None
    """None in a journal of an earlier Recount."""


class CutRecord(BaseModel):
    """A trajectory that was under way when its run stopped. `turns` were done, and are done again."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    dataset: str
    problem_id: str
    sample: int
    turns: int


class ResumeRecord(BaseModel):
    """What a run found of itself when it went on."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    part: int
    """2 for the first time that it goes on."""
    missing: int
    """Trajectories without a score: those cut, those given up, those that never began."""
    cut: tuple[CutRecord, ...] = ()
    given_up: int = 0
    """Tried until all attempts had failed on our side; they get as many again."""
    torn_bytes: int = 0
    """Of a last line that a crash tore: cut off."""
    differs: tuple[UntrustedText, ...] = ()
    """What is otherwise than at the start and changes no result, a sentence each."""


class RunResumed(RunStarted):
    """A run goes on where it stopped: what it is made of now, whole, so that whoever follows a journal from
    here knows the run. What results depend on is what it was, or there would be no such event."""

    type: Literal["run_resumed"] = "run_resumed"  # type: ignore[assignment] # its own kind in the journal
    resumed: ResumeRecord


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
    node: UntrustedText | None = None
    """Of a Ray cluster, the one that it ran on; None on one machine."""


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
    cached_tokens: int | None = None
    """Of the prompt, from a prefix cache; None where the engine does not tell."""
    queue_s: float | None = None
    """Of `generate_s`: waiting for a place in an engine, prefill, decoding; None where it is not told."""
    prefill_s: float | None = None
    decode_s: float | None = None


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
    log: tuple[UntrustedText, ...] = ()
    """The last lines that engines and libraries had written by then."""


class EngineUp(Event):
    """An engine serves, at first or again; `starts` counts from 1.

    What happened before the run began is written at its beginning.
    """

    type: Literal["engine_up"] = "engine_up"
    name: UntrustedText
    start_s: float
    starts: int
    node: UntrustedText | None = None
    """Of a Ray cluster; None where the engines are on one machine, or nobody tells."""


class EngineDown(Event):
    """An engine is gone, or did not come up. `requeued` turns of it are generated elsewhere."""

    type: Literal["engine_down"] = "engine_down"
    name: UntrustedText
    cause: UntrustedText
    requeued: int
    given_up: bool


class EngineStatsRecord(BaseModel):
    """What an engine told of itself (`ReplicaStats`): totals since it last started; None was not told."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    running: int | None = None
    waiting: int | None = None
    prompt_tokens: int | None = None
    generation_tokens: int | None = None
    preemptions: int | None = None
    kv_cache_usage: float | None = None
    prefix_cache_queries: int | None = None
    prefix_cache_hits: int | None = None
    gpu_utilization: float | None = None
    gpu_memory_used_bytes: int | None = None
    gpu_memory_total_bytes: int | None = None


class EngineUseRecord(BaseModel):
    """How one engine has been used by the pool's own count (`ReplicaSnapshot`), since the pool began."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    name: UntrustedText
    state: ReplicaState
    running: int
    turns: int
    prompt_tokens: int
    completion_tokens: int
    serving_s: float
    busy_s: float
    batch_s: float
    starts: int
    stats: EngineStatsRecord | None = None
    node: UntrustedText | None = None


class EngineSample(Event):
    """How all engines are used; written now and then. `queued` turns wait for a place in one."""

    type: Literal["engine_sample"] = "engine_sample"
    queued: int
    engines: tuple[EngineUseRecord, ...]


class DiskWasFull(Event):
    """The journal's disk had no room for `waited_s` seconds, and no turn began. `events` waited in memory."""

    type: Literal["disk_was_full"] = "disk_was_full"
    waited_s: float
    events: int


class Fault(str, Enum):
    """Whose failures in a row pause a run."""

    ENGINE = "engine"
    SANDBOX = "sandbox"


class RunPaused(Event):
    """Our own side failed so often in a row that no attempt begins; `cause` is the last failure."""

    type: Literal["run_paused"] = "run_paused"
    fault: Fault
    failures: int
    cause: UntrustedText


class RunExamined(Event):
    """What an examination of the machine found when the run paused, a line each; none is nothing wrong."""

    type: Literal["run_examined"] = "run_examined"
    fault: Fault
    findings: tuple[UntrustedText, ...]


class RunContinued(Event):
    """The cause of a pause has gone, as the last of `probes` attempts showed."""

    type: Literal["run_continued"] = "run_continued"
    fault: Fault
    paused_s: float
    probes: int


class Stalled(Event):
    """Nothing moved for `silent_s` seconds; `report` beside the journal says what the run waited for.

    `waits` counts what was waited for, the most frequent first.
    """

    type: Literal["stalled"] = "stalled"
    silent_s: float
    report: UntrustedText
    waits: tuple[UntrustedText, ...] = ()


class RunEnded(Event):
    """Last event of a run that could still write it."""

    type: Literal["run_ended"] = "run_ended"
    reason: EndReason
    message: UntrustedText = ""


AnyEvent: TypeAlias = Annotated[
    RunStarted
    | RunResumed
    | TrajectoryStarted
    | TurnDone
    | Terminated
    | InfrastructureRetry
    | Unfinished
    | EngineUp
    | EngineDown
    | EngineSample
    | DiskWasFull
    | RunPaused
    | RunExamined
    | RunContinued
    | Stalled
    | RunEnded,
    Field(discriminator="type"),
]


def _without_chain(value: object) -> object:
    """A line's hash belongs to the journal, not to the event."""
    if isinstance(value, dict) and CHAIN_KEY in value:
        return {key: one for key, one in value.items() if key != CHAIN_KEY}
    return value


EVENT_ADAPTER: TypeAdapter[AnyEvent] = TypeAdapter(Annotated[AnyEvent, BeforeValidator(_without_chain)])
"""Reads what a line of a journal holds."""
