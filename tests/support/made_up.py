"""Made-up runs on disk: a journal as a run writes it, without model and sandbox."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from runner.events import (
    ConcurrencyRecord,
    DatasetRecord,
    EndReason,
    Event,
    ProblemRecord,
    RunEnded,
    RunStarted,
    Terminated,
    ToolRecord,
    TrajectoryStarted,
    TurnDone,
    TurnKind,
    Unfinished,
)
from runner.journal import JOURNAL_NAME, JournalWriter
from runner.protocol.answer import displayed_prediction
from runner.protocol.score import Termination, answer_status, score_trajectory
from runner.protocol.seeds import trajectory_seed, turn_seed
from runner.run import write_results
from support.builders import BASE_SEED, answer, bash

TOOL = ToolRecord(
    exit_code=0,
    timed_out=False,
    limits=(),
    wall_s=0.2,
    cpu_s=0.1,
    throttled_s=0.0,
    peak_memory_bytes=1 << 20,
    stdout_bytes=3,
    stderr_bytes=0,
)
LOST = "lost"
"""In the place of an answer: our own side failed for good."""


def made_up_run(
    directory: Path,
    answers: Mapping[str, Sequence[str]],
    *,
    gold: Mapping[str, str] | None = None,
    dataset: str = "set",
    question: str = "How many?",
    termination: Termination = Termination.FINAL_ANSWER,
    ended: bool = True,
    **changes: Any,
) -> Path:
    """Write a run that gave `answers` by problem and sample; gold answers are 42 unless told otherwise.

    An answer is what stands in the box of the last completion, scored as the run would score it.
    """
    samples = max(len(one) for one in answers.values())
    golds = {name: (gold or {}).get(name, "42") for name in answers}
    problems = tuple(
        ProblemRecord(id=name, row_index=row, question=f"{question} ({row})", answer=golds[name])
        for row, name in enumerate(answers)
    )
    values: dict[str, Any] = {
        "run_id": directory.name,
        "recount": "0",
        "profile": {"name": "made-up", "limits": {"max_turns": 4, "context_tokens": 4000}, "sampling": {}},
        "samples": samples,
        "datasets": (
            DatasetRecord(
                name=dataset, path=f"{dataset}.jsonl", sha256="0" * 64, base_seed=BASE_SEED, problems=problems
            ),
        ),
        "protocol": {"rules": "esopt-math-react", "pack": "pack.json", "pack_sha256": "1" * 64},
        "engine": {"kind": "openai", "model": "m"},
        "sandbox": {},
        "concurrency": ConcurrencyRecord(trajectories=1, generations=1, tools=1),
    }
    events: list[Event] = [RunStarted(**values | changes)]
    for row, (name, given) in enumerate(answers.items()):
        for sample, text in enumerate(given):
            events += _trajectory(dataset, name, row, sample, text, golds[name], termination)
    if ended:
        events.append(RunEnded(reason=EndReason.COMPLETE))
    directory.mkdir(parents=True)
    moments = iter(range(1_700_000_000, 1_800_000_000))
    with JournalWriter(directory / JOURNAL_NAME, clock=lambda: float(next(moments))) as journal:
        for event in events:
            journal.append(event)
    write_results(directory)
    return directory


def _trajectory(
    dataset: str, name: str, row: int, sample: int, text: str, gold: str, termination: Termination
) -> list[Event]:
    where: dict[str, Any] = {"dataset": dataset, "problem_id": name, "sample": sample}
    seed = trajectory_seed(BASE_SEED, row, sample)
    began = TrajectoryStarted(**where, row_index=row, seed=seed)
    if text == LOST:
        return [began, Unfinished(**where, cause="the engine is gone")]
    first, last = bash("echo 42"), answer(text)
    command = {"name": "bash", "arguments": {"command": "echo 42"}}
    told: dict[str, Any] = {
        **where,
        "engine": "e0",
        "prompt_tokens": 10,
        "completion_tokens": 5,
        "finish_reason": "stop",
        "generate_wait_s": 0.0,
        "generate_s": 0.5,
    }
    score = score_trajectory(last, gold, used_bash=True, termination=termination)
    return [
        began,
        TurnDone(
            **told,
            turn=0,
            seeds=(turn_seed(seed, 0),),
            assistant=first,
            kind=TurnKind.ACTION,
            action=command,
            observation="42\n[exit_code] 0",
            tool=TOOL,
            tool_s=0.2,
        ),
        TurnDone(**told, turn=1, seeds=(turn_seed(seed, 1),), assistant=last, kind=TurnKind.FINAL_ANSWER),
        Terminated(
            **where,
            termination=termination,
            score=score.value,
            score_method=score.method,
            answer_status=answer_status(last),
            prediction=displayed_prediction(last),
            used_bash=True,
            max_context_tokens=15,
            generated_tokens=10,
            turn_seeds=(turn_seed(seed, 0), turn_seed(seed, 1)),
            elapsed_s=1.5,
        ),
    ]


def document(path: Path) -> Any:
    """What a JSON file holds."""
    return json.loads(path.read_bytes())
