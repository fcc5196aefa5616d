"""A trajectory's record, in the report's fields, from its state. Pure."""

from typing import Any

from runner.events import ProblemRecord, TurnDone, TurnKind
from runner.protocol.prompt import ProtocolPack, observation_message
from runner.protocol.score import SCORE_METHOD_PREFIX
from runner.results.aggregate import ScoredRow
from runner.state import TrajectoryState


def trajectory_record(trajectory: TrajectoryState, problem: ProblemRecord) -> dict[str, Any]:
    """Return the record of a terminated trajectory, named as the report's rows are.

    Raises `ValueError` for one that has no score: a failure of ours never becomes a row.
    """
    end = trajectory.terminated
    if end is None:
        raise ValueError(f"{trajectory.key} has not terminated and has no record")
    steps = react_steps(trajectory)
    return {
        "key": f"{problem.id}:sample{trajectory.key.sample:02d}",
        "task_id": problem.id,
        "row_index": trajectory.row_index,
        "sample_index": trajectory.key.sample,
        "seed": trajectory.seed,
        "score": end.score,
        "answer": problem.answer,
        "prediction": end.prediction,
        "completion": trajectory.turns[-1].assistant if trajectory.turns else "",
        "used_bash": end.used_bash,
        "termination_reason": end.termination.value,
        "answer_status": end.answer_status.value,
        "max_context_tokens": end.max_context_tokens,
        "generated_tokens": end.generated_tokens,
        "react_error": end.react_error,
        "react_steps": steps,
        "trace_rounds": len(steps),
        "score_method": f"{SCORE_METHOD_PREFIX}{end.score_method.value}",
        "turn_seeds": list(end.turn_seeds),
        "attempts": trajectory.attempt,
        "elapsed_s": end.elapsed_s,
    }


def react_steps(trajectory: TrajectoryState) -> list[dict[str, Any]]:
    """Return one step a turn that went on; `turn` counts from 1, a format check has no action."""
    return [_step(turn) for turn in trajectory.turns if turn.observation is not None]


def _step(turn: TurnDone) -> dict[str, Any]:
    step: dict[str, Any] = {"turn": turn.turn + 1, "assistant": turn.assistant}
    if turn.kind is TurnKind.ACTION:
        step["action"] = turn.action
    return step | {"observation": turn.observation}


def messages_after_prompt(trajectory: TrajectoryState, pack: ProtocolPack) -> list[dict[str, str]]:
    """Return the conversation behind the first prompt, as it was at its end.

    The completion that ended the trajectory stands last, also one that could not be read; a turn that the
    engine refused has none.
    """
    messages: list[dict[str, str]] = []
    for turn in trajectory.turns:
        messages.append({"role": "assistant", "content": turn.assistant})
        if turn.observation is not None:
            name = pack.format_check_name if turn.action is None else str(turn.action["name"])
            message = observation_message(pack, name, turn.observation)
            messages.append({"role": message["role"], "content": message["content"]})
    return messages


def scored_row(trajectory: TrajectoryState) -> ScoredRow | None:
    """Return what aggregates need of a trajectory, or None where it has no score."""
    end = trajectory.terminated
    if end is None:
        return None
    return ScoredRow(
        problem_id=trajectory.key.problem_id,
        sample=trajectory.key.sample,
        score=end.score,
        score_method=end.score_method,
        termination=end.termination,
        answer_status=end.answer_status,
    )
