"""Trajectories as rows: JSON lines with everything, CSV with what fits a table."""

import csv
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from runner.atomic import write_text
from runner.clean import clean_text
from runner.results.records import trajectory_record
from runner.state import RunState, TrajectoryState

COLUMNS = (
    "run_id",
    "dataset",
    "task_id",
    "row_index",
    "sample_index",
    "seed",
    "score",
    "score_method",
    "termination_reason",
    "answer_status",
    "used_bash",
    "answer",
    "prediction",
    "turns",
    "prompt_tokens",
    "generated_tokens",
    "max_context_tokens",
    "attempts",
    "elapsed_s",
    "unfinished",
)
"""Of the CSV file."""
_CELL_CHARS = 1000
_FORMULA = re.compile(r"[=+\-@\t\r]")
_NUMBER = re.compile(r"[-+]?[0-9.,/eE]*")


def write_jsonl(state: RunState, path: Path) -> None:
    """Write a line a trajectory: its record, as in results, with run, data set, question and turns."""
    # Escaped to ASCII: half a surrogate pair, which models write, is no UTF-8.
    write_text(path, "".join(json.dumps(row) + "\n" for row in _records(state)))


def write_csv(state: RunState, path: Path) -> None:
    """Write a line a trajectory with `COLUMNS`. One that is unfinished has an empty score, never a 0."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(COLUMNS)
    for trajectory in _ordered(state):
        row = _row(state, trajectory)
        writer.writerow([_cell(row[name]) for name in COLUMNS])
    write_text(path, text.getvalue())


def _records(state: RunState) -> Iterator[dict[str, Any]]:
    run_id = "" if state.started is None else state.started.run_id
    for trajectory in _ordered(state):
        problem = state.problems(trajectory.key.dataset)[trajectory.key.problem_id]
        head = {
            "run_id": run_id,
            "dataset": trajectory.key.dataset,
            "question": problem.question,
            "unfinished": trajectory.terminated is None,
        }
        turns = [turn.model_dump(mode="json", exclude={"at", "type", "dataset"}) for turn in trajectory.turns]
        if trajectory.terminated is not None:
            yield {**head, **trajectory_record(trajectory, problem), "turns": turns}
        else:
            yield {
                **head,
                "key": f"{problem.id}:sample{trajectory.key.sample:02d}",
                "task_id": problem.id,
                "row_index": trajectory.row_index,
                "sample_index": trajectory.key.sample,
                "seed": trajectory.seed,
                "score": None,
                "answer": problem.answer,
                "attempts": trajectory.attempt,
                "cause": None if trajectory.unfinished is None else trajectory.unfinished.cause,
                "turns": turns,
            }


def _row(state: RunState, trajectory: TrajectoryState) -> dict[str, object]:
    key, end = trajectory.key, trajectory.terminated
    row: dict[str, object] = dict.fromkeys(COLUMNS)
    row |= {
        "run_id": "" if state.started is None else state.started.run_id,
        "dataset": key.dataset,
        "task_id": key.problem_id,
        "row_index": trajectory.row_index,
        "sample_index": key.sample,
        "seed": trajectory.seed,
        "answer": state.problems(key.dataset)[key.problem_id].answer,
        "turns": len(trajectory.turns),
        "prompt_tokens": sum(turn.prompt_tokens for turn in trajectory.turns),
        "attempts": trajectory.attempt,
        "unfinished": end is None,
    }
    if end is not None:
        row |= {
            "score": end.score,
            "score_method": end.score_method.value,
            "termination_reason": end.termination.value,
            "answer_status": end.answer_status.value,
            "used_bash": end.used_bash,
            "prediction": end.prediction,
            "generated_tokens": end.generated_tokens,
            "max_context_tokens": end.max_context_tokens,
            "elapsed_s": end.elapsed_s,
        }
    return row


def _cell(value: object) -> str:
    """Return a cell that a spreadsheet shows and does not act on: a model may write `=HYPERLINK(...)`."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str):
        return str(value)
    shown = clean_text(value, keep_lines=False, limit_chars=_CELL_CHARS)
    return f"'{shown}" if _FORMULA.match(shown) and not _NUMBER.fullmatch(shown) else shown


def _ordered(state: RunState) -> Iterator[TrajectoryState]:
    """Yield what began, in the order of the run's data sets."""
    for key in state.planned():
        if key in state.trajectories:
            yield state.trajectories[key]
