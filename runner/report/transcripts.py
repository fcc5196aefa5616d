"""Trajectories as the page's script gets them: an index of all, and their turns in compressed parts.

Everything that a model, a server or a data set wrote goes through `clean_text` here, once; the script writes
it into the page as text and nothing else.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from runner.clean import clean_text
from runner.engines.base import TrajectoryKey
from runner.events import DatasetRecord, ToolRecord, TurnDone
from runner.protocol.score import SCORE_METHOD_PREFIX
from runner.report.links import trajectory_link
from runner.report.outcomes import ID_CHARS, Outcome, outcome_of
from runner.results.traces import TRACE_DIR, trace_name
from runner.state import RunState, TrajectoryState

ScoreKey = tuple[str, str, int]
Scores = Mapping[str, Mapping[ScoreKey, float | None]]
"""Scores by their scorer's name, and by (data set, problem, sample); None is an answer without a score."""

_SHORT_CHARS = 300
"""Of what stands in the list and among the facts: an answer, a cause."""
_LOG_LINE_CHARS = 500


@dataclass(frozen=True)
class Clipping:
    """How long a text of a turn may be; None is as long as it is."""

    limit_chars: int | None = None

    def apply(self, text: str) -> tuple[str, int]:
        """Return a text, or its beginning and its end, and how many characters were left out."""
        limit = self.limit_chars
        if limit is None or len(text) <= limit:
            return text, 0
        head, tail = limit - limit // 3, limit // 3
        left_out = len(text) - head - tail
        return f"{text[:head]}\n[… {left_out:,} characters left out …]\n{text[len(text) - tail :]}", left_out


def index_of(state: RunState, scores: Scores) -> dict[str, Any]:
    """Return the list of all planned trajectories, with what the page shows, sorts and filters by."""
    scorers = list(scores)
    return {
        "scorers": [_short(name) for name in scorers],
        "datasets": [_dataset(record) for record in state.datasets()],
        "rows": [
            _row(state, record, number, place, sample, [scores[name] for name in scorers])
            for number, record in enumerate(state.datasets())
            for place in range(len(record.problems))
            for sample in range(0 if state.started is None else state.started.samples)
        ],
    }


def _dataset(record: DatasetRecord) -> dict[str, Any]:
    return {
        "name": _short(record.name),
        "problems": [
            {
                "id": clean_text(problem.id, keep_lines=False, limit_chars=ID_CHARS),
                "question": clean_text(problem.question, keep_lines=True),
                "answer": _short(problem.answer),
            }
            for problem in record.problems
        ],
    }


def _row(
    state: RunState,
    record: DatasetRecord,
    number: int,
    place: int,
    sample: int,
    scores: list[Mapping[ScoreKey, float | None]],
) -> dict[str, Any]:
    key = TrajectoryKey(record.name, record.problems[place].id, sample)
    one = state.trajectories.get(key)
    outcome = outcome_of(one)
    row: dict[str, Any] = {
        "dataset": number,
        "problem": place,
        "sample": sample,
        "link": trajectory_link(key),
        "outcome": outcome.value,
        "scores": [found.get((key.dataset, key.problem_id, key.sample)) for found in scores],
    }
    return row if one is None else row | _of_trajectory(one, outcome)


def _of_trajectory(one: TrajectoryState, outcome: Outcome) -> dict[str, Any]:
    row: dict[str, Any] = {
        "seed": one.seed,
        "attempts": one.attempt,
        "turns": len(one.turns),
        "trace": f"{TRACE_DIR}/{trace_name(one)}",
        "retries": [_short(retry.cause) for retry in one.retries],
        "givenUp": [_short(before.cause) for before in one.given_up],
    }
    end = one.terminated
    if end is not None:
        return row | {
            "score": end.score,
            "termination": end.termination.value,
            "method": f"{SCORE_METHOD_PREFIX}{end.score_method.value}",
            "status": end.answer_status.value,
            "prediction": _short(end.prediction),
            "usedBash": end.used_bash,
            "tokens": end.generated_tokens,
            "context": end.max_context_tokens,
            "seconds": end.elapsed_s,
            "error": None if end.react_error is None else _short(end.react_error),
        }
    cause = one.cause
    return row | {
        "cause": "the run stopped before it ended" if cause is None else _short(cause.cause),
        "log": []
        if cause is None
        else [clean_text(line, keep_lines=False, limit_chars=_LOG_LINE_CHARS) for line in cause.log],
        "partial": outcome is Outcome.UNFINISHED and bool(one.turns),
    }


def turns_of(trajectory: TrajectoryState, clipping: Clipping) -> tuple[list[dict[str, Any]], int]:
    """Return a trajectory's turns and how many characters of them were left out."""
    left_out, turns = 0, []
    for turn in trajectory.turns:
        shown, missing = _turn(turn, clipping)
        turns.append(shown)
        left_out += missing
    return turns, left_out


def _turn(turn: TurnDone, clipping: Clipping) -> tuple[dict[str, Any], int]:
    assistant, missing = clipping.apply(clean_text(turn.assistant, keep_lines=True))
    shown: dict[str, Any] = {
        "turn": turn.turn + 1,
        "kind": turn.kind.value,
        "assistant": assistant,
        "engine": _short(turn.engine),
        "finish": _short(turn.finish_reason),
        "seeds": list(turn.seeds),
        "prompt": turn.prompt_tokens,
        "completion": turn.completion_tokens,
        "generate": turn.generate_s,
        "wait": turn.generate_wait_s,
    }
    if turn.action is not None:
        shown["action"], more = clipping.apply(action_text(turn.action))
        missing += more
    if turn.observation is not None:
        shown["observation"], more = clipping.apply(clean_text(turn.observation, keep_lines=True))
        missing += more
    if turn.tool is not None:
        shown["tool"] = _tool(turn.tool)
        shown["toolWait"], shown["toolTime"] = turn.tool_wait_s, turn.tool_s
    return shown, missing


def _tool(tool: ToolRecord) -> dict[str, Any]:
    return {
        "exit": tool.exit_code,
        "timedOut": tool.timed_out,
        "limits": [_short(limit) for limit in tool.limits],
        "wall": tool.wall_s,
        "cpu": tool.cpu_s,
        "memory": tool.peak_memory_bytes,
        "stdout": tool.stdout_bytes,
        "stderr": tool.stderr_bytes,
    }


def action_text(action: Mapping[str, Any]) -> str:
    """Return an action as a person reads it: a command as it was run, anything else as JSON."""
    arguments = action.get("arguments")
    if action.get("name") == "bash" and isinstance(arguments, Mapping) and set(arguments) == {"command"}:
        return clean_text(str(arguments["command"]), keep_lines=True)
    return clean_text(json.dumps(action, ensure_ascii=False, sort_keys=True), keep_lines=True)


def text_lengths(state: RunState) -> Iterator[int]:
    """Yield how long each text of each turn is, as good as exactly: cleaning changes little."""
    for trajectory in state.trajectories.values():
        for turn in trajectory.turns:
            yield len(turn.assistant)
            if turn.observation is not None:
                yield len(turn.observation)
            if turn.action is not None:
                yield len(str(turn.action))


def _short(text: str) -> str:
    return clean_text(text, keep_lines=False, limit_chars=_SHORT_CHARS)
