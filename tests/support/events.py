"""Events of a small run, one trajectory after another."""

from typing import Any

from runner.events import (
    ConcurrencyRecord,
    DatasetRecord,
    DiskWasFull,
    EndReason,
    Fault,
    InfrastructureRetry,
    ProblemRecord,
    ResumeRecord,
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
    TurnKind,
    Unfinished,
)
from runner.protocol.score import AnswerStatus, ScoreMethod, Termination


def run_started(*ids: str, samples: int = 1, dataset: str = "set", **changes: Any) -> RunStarted:
    """The first event of a run over problems of these ids."""
    problems = tuple(
        ProblemRecord(id=one, row_index=row, question="How many?", answer="42")
        for row, one in enumerate(ids or ("p0",))
    )
    values: dict[str, Any] = {
        "run_id": "run",
        "recount": "0",
        "profile": {},
        "samples": samples,
        "datasets": (
            DatasetRecord(name=dataset, path="set.jsonl", sha256="0" * 64, base_seed=1, problems=problems),
        ),
        "protocol": {},
        "engine": {},
        "sandbox": {},
        "concurrency": ConcurrencyRecord(trajectories=1, generations=1, tools=1),
    }
    return RunStarted(**values | changes)


def began(problem_id: str = "p0", *, attempt: int = 1, sample: int = 0, row: int = 0) -> TrajectoryStarted:
    """A trajectory begins."""
    return TrajectoryStarted(
        dataset="set", problem_id=problem_id, sample=sample, attempt=attempt, row_index=row, seed=7
    )


def turn(text: str = "Hm.", *, number: int = 0, problem_id: str = "p0", **changes: Any) -> TurnDone:
    """A turn is done."""
    values: dict[str, Any] = {
        "dataset": "set",
        "problem_id": problem_id,
        "sample": 0,
        "turn": number,
        "seeds": (7,),
        "engine": "fake",
        "assistant": text,
        "prompt_tokens": 3,
        "completion_tokens": 2,
        "finish_reason": "stop",
        "kind": TurnKind.FORMAT_CHECK,
        "observation": "go on",
        "generate_wait_s": 0.0,
        "generate_s": 0.1,
    }
    return TurnDone(**values | changes)


def terminated(problem_id: str = "p0", *, score: float = 1.0, sample: int = 0, **changes: Any) -> Terminated:
    """A trajectory has its score."""
    values: dict[str, Any] = {
        "dataset": "set",
        "problem_id": problem_id,
        "sample": sample,
        "termination": Termination.FINAL_ANSWER,
        "score": score,
        "score_method": ScoreMethod.EXACT_FALLBACK,
        "answer_status": AnswerStatus.ANSWERED,
        "prediction": "42",
        "used_bash": True,
        "max_context_tokens": 5,
        "generated_tokens": 2,
        "turn_seeds": (7,),
        "elapsed_s": 0.5,
    }
    return Terminated(**values | changes)


def retried(problem_id: str = "p0", *, attempt: int = 1, cause: str = "dead") -> InfrastructureRetry:
    """Our own side failed; it starts again."""
    return InfrastructureRetry(dataset="set", problem_id=problem_id, sample=0, attempt=attempt, cause=cause)


def unfinished(problem_id: str = "p0", *, attempt: int = 3, cause: str = "dead") -> Unfinished:
    """Our own side kept failing."""
    return Unfinished(dataset="set", problem_id=problem_id, sample=0, attempt=attempt, cause=cause)


def ended(reason: EndReason = EndReason.COMPLETE) -> RunEnded:
    """The last event of a run."""
    return RunEnded(reason=reason)


def run_resumed(*ids: str, missing: int = 1, part: int = 2, **changes: Any) -> RunResumed:
    """The run of `run_started` goes on."""
    began = run_started(*ids, **changes)
    values = {name: getattr(began, name) for name in RunStarted.model_fields if name != "type"}
    return RunResumed(**values, resumed=ResumeRecord(part=part, missing=missing))


def disk_was_full(waited_s: float = 4.0) -> DiskWasFull:
    """The journal waited for room."""
    return DiskWasFull(waited_s=waited_s, events=2)


def paused(cause: str = "dead", **changes: Any) -> RunPaused:
    """Sandboxes failed again and again."""
    return RunPaused(**{"fault": Fault.SANDBOX, "failures": 5, "cause": cause} | changes)


def examined(*findings: str) -> RunExamined:
    """The doctor looked at a run that is paused."""
    return RunExamined(fault=Fault.SANDBOX, findings=findings)


def continued(paused_s: float = 30.0) -> RunContinued:
    """Sandboxes work again."""
    return RunContinued(fault=Fault.SANDBOX, paused_s=paused_s, probes=3)


def stalled(silent_s: float = 900.0) -> Stalled:
    """Nothing moved."""
    return Stalled(silent_s=silent_s, report="stall-1.txt", waits=("2 wait for a permit to generate",))
