"""Markdown traces as the original's skill distillation reads them: named by outcome, laid out as its own.

Its reader takes the outcome from the file's name and cuts the text at the last rule and RESULT heading. What
a model wrote is cleaned of what a terminal acts on; blocks are fenced longer than any backticks in them.
"""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

from runner.atomic import write_text
from runner.clean import clean_text
from runner.events import ProblemRecord
from runner.exports.files import new_directory
from runner.protocol.score import SCORE_METHOD_PREFIX
from runner.results.records import react_steps
from runner.state import RunState, TrajectoryState
from runner.statistics import RIGHT

SETTING = "math_reasoning"
"""What the reader knows this kind of task by."""
SUCCEED, FAILED = "SUCCEED", "FAILED"
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]+")
_LONGEST_NAME = 120


def write_distillation_traces(state: RunState, directory: Path) -> int:
    """Write a trace for every trajectory with a score, a directory a data set; return how many.

    Unfinished trajectories have none: nobody knows whether they would have succeeded. Raises as
    `new_directory` and `write_text` do.
    """
    written = 0
    with new_directory(directory) as aside:
        for record in state.datasets():
            folder = aside / _safe(record.name)
            folder.mkdir()
            problems = {problem.id: problem for problem in record.problems}
            alike = Counter(_safe(one) for one in problems)
            for key in state.planned():
                one = state.trajectories.get(key)
                if key.dataset == record.name and one is not None and one.terminated is not None:
                    name = _name(one, is_unique=alike[_safe(key.problem_id)] == 1)
                    write_text(
                        folder / name, distillation_trace(one, problems[key.problem_id]), durable=False
                    )
                    written += 1
    return written


def distillation_trace(trajectory: TrajectoryState, problem: ProblemRecord) -> str:
    """Return the trace of a trajectory with a score; raise `ValueError` for one without."""
    end = trajectory.terminated
    if end is None:
        raise ValueError(f"{trajectory.key} has no score")
    outcome = _outcome(end.score)
    reason = end.react_error or ("" if outcome == SUCCEED else f"score {end.score}")
    lines = [
        f"# Chat History {SETTING}_{_line(problem.id)}",
        "",
        f"Task ID: {_line(problem.id)}",
        f"Setting: {SETTING}",
        f"Sample index: {trajectory.key.sample}",
        f"Score: {end.score}",
        f"Score method: {SCORE_METHOD_PREFIX}{end.score_method.value}",
        f"Outcome: {outcome}",
        f"Failure reason: {_line(reason)}",
        "",
        "## Problem",
        "",
        _text(problem.question),
        "",
        f"Expected answer: {_line(problem.answer)}",
        "",
        "## Trace",
        "",
    ]
    for number, step in enumerate(react_steps(trajectory), start=1):
        lines += [f"## Round {number}", "", "### Assistant", "", _text(step["assistant"]), ""]
        if step.get("action"):
            lines += ["### Action", "", *_block("json", json.dumps(step["action"])), ""]
        if step["observation"].strip():
            lines += ["### Observation", "", *_block("text", _text(step["observation"])), ""]
    lines += ["## Prediction", "", _text(end.prediction), "", "---", "", "## RESULT", outcome, ""]
    return "\n".join(lines)


def _name(trajectory: TrajectoryState, *, is_unique: bool) -> str:
    key, end = trajectory.key, trajectory.terminated
    safe = _safe(key.problem_id)
    # Ids that look alike once they are safe are told apart by their row.
    name = safe if is_unique else f"{safe}_row{trajectory.row_index:04d}"
    return f"math_agent_{name}_sample{key.sample:02d}_{_outcome(0.0 if end is None else end.score)}.md"


def _safe(text: str) -> str:
    return _UNSAFE.sub("_", text)[:_LONGEST_NAME].strip(".") or "_"


def _outcome(score: float) -> str:
    return SUCCEED if score >= RIGHT else FAILED


def _line(text: str) -> str:
    return clean_text(text, keep_lines=False)


def _text(text: Any) -> str:  # noqa: ANN401 - a step's value
    return clean_text(str(text), keep_lines=True).strip()


def _block(kind: str, text: str) -> list[str]:
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return [f"{fence}{kind}", text, fence]
