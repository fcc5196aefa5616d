"""Scored trajectories derived once more from their own turns: the journal must agree with itself. Pure.

The chain says that a line is the one that was written; this says that what was written follows: score,
answer, seeds and token counts of every trajectory, from its last completion, the gold answer and the rules.
"""

from collections.abc import Iterator

from runner.events import DatasetRecord, ProblemRecord, Terminated, TurnDone, TurnKind
from runner.protocol.action import bash_command, parse_turn
from runner.protocol.answer import displayed_prediction
from runner.protocol.score import answer_status, score_trajectory
from runner.protocol.seeds import trajectory_seed, turn_seed
from runner.state import RunState, TrajectoryState
from runner.trajectory import BASH

Difference = tuple[str, str]
"""The place, and what is wrong there."""


def recheck_trajectories(state: RunState) -> Iterator[Difference]:
    """Yield every figure of a trajectory that its turns do not give."""
    records = {record.name: record for record in state.datasets()}
    problems = {name: state.problems(name) for name in records}
    for key, trajectory in sorted(state.trajectories.items()):
        problem = problems[key.dataset][key.problem_id]
        found = [*_seeds(trajectory, records[key.dataset], problem)]
        if trajectory.terminated is not None:
            found += _end(trajectory, trajectory.terminated, problem)
        for what, recorded, derived in found:
            if recorded != derived:
                yield str(key), f"{what} is {recorded!r}, its turns give {derived!r}"


_Figure = tuple[str, object, object]
"""What it is, as recorded, as derived."""


def _seeds(trajectory: TrajectoryState, record: DatasetRecord, problem: ProblemRecord) -> Iterator[_Figure]:
    yield "row index", trajectory.row_index, problem.row_index
    seed = trajectory_seed(record.base_seed, problem.row_index, trajectory.key.sample)
    yield "seed", trajectory.seed, seed
    for index, turn in enumerate(trajectory.turns):
        yield f"number of turn {index}", turn.turn, index
        yield f"seeds of turn {index}", turn.seeds, (turn_seed(seed, index),) * len(turn.seeds)


def _end(trajectory: TrajectoryState, end: Terminated, problem: ProblemRecord) -> Iterator[_Figure]:
    turns = trajectory.turns
    last = turns[-1].assistant if turns else ""
    used_bash = any(_ran_bash(turn) for turn in turns)
    score = score_trajectory(last, problem.answer, used_bash=used_bash, termination=end.termination)
    yield "attempt", end.attempt, trajectory.attempt
    yield "used_bash", end.used_bash, used_bash
    yield "score", end.score, score.value
    yield "score method", end.score_method, score.method
    yield "answer status", end.answer_status, answer_status(last)
    yield "prediction", end.prediction, displayed_prediction(last)
    yield "tokens generated", end.generated_tokens, sum(turn.completion_tokens for turn in turns)
    asked = tuple(seed for turn in turns for seed in turn.seeds)
    # A turn that the engine refused was asked for as well, and has no completion.
    yield "turn seeds", end.turn_seeds[: len(asked)], asked
    largest = max((turn.prompt_tokens + turn.completion_tokens for turn in turns), default=0)
    # A prompt that was too long was counted as well, and was no turn.
    yield "largest context", end.max_context_tokens, max(largest, end.max_context_tokens)


def _ran_bash(turn: TurnDone) -> bool:
    if turn.kind is not TurnKind.ACTION:
        return False
    action = parse_turn(turn.assistant).action
    return action is not None and action.name == BASH and bool(bash_command(action).strip())
