"""Scoring a run's trajectories again. What the protocol forbids to credit stays at 0, whoever compares."""

from dataclasses import replace

from runner.errors import UserError
from runner.protocol.answer import explicit_answer
from runner.protocol.score import ScoreMethod, score_trajectory
from runner.rescore.grader import Progress, command_of, grade_all
from runner.rescore.model import Grade, GradeLimits, Rescored, Rescoring
from runner.rescore.registry import Scorer
from runner.rescore.scorers import Pair
from runner.state import RunState, TrajectoryState


async def rescore(
    state: RunState,
    scorer: Scorer,
    *,
    limits: GradeLimits | None = None,
    progress: Progress = lambda _done, _of: None,
) -> Rescoring:
    """Score every trajectory that has a score again; nothing of the run is changed.

    Raises `UserError` where the scorer is not installed or there is nothing to score, `InfrastructureError`
    where its process does not start. An answer that it does not get through is a failure in its grade.
    """
    rows = exact_rows(state)
    if not rows:
        raise UserError(
            "no trajectory of the run has a score", remedy="let the run go on, then score it again"
        )
    unfinished = len(state.planned()) - len(rows)
    if scorer is Scorer.EXACT:
        return Rescoring(scorer, {}, None, rows, unfinished)
    chosen = limits or GradeLimits()
    pairs = {row.key: pair for row in rows if (pair := _compared(row)) is not None}
    grades, versions = await grade_all(pairs.values(), chosen, command_of(scorer), progress=progress)
    graded = [replace(row, grade=grades[pairs[row.key]]) if row.key in pairs else row for row in rows]
    return Rescoring(scorer, versions, chosen, graded, unfinished)


def exact_rows(state: RunState) -> list[Rescored]:
    """Return every trajectory that has a score, scored again as the report scores."""
    return [_exact(one, state) for _, one in sorted(state.trajectories.items()) if one.terminated]


def _exact(trajectory: TrajectoryState, state: RunState) -> Rescored:
    end = trajectory.terminated
    if end is None:
        raise ValueError(f"{trajectory.key} has no score")
    gold = state.problems(trajectory.key.dataset)[trajectory.key.problem_id].answer
    last = trajectory.turns[-1].assistant if trajectory.turns else ""
    score = score_trajectory(last, gold, used_bash=end.used_bash, termination=end.termination)
    grade = Grade(score.value, score.method.value)
    return Rescored(trajectory.key, explicit_answer(last), gold, end.score, grade)


def _compared(row: Rescored) -> Pair | None:
    """Return what a scorer compares; None where the trajectory's end, or want of an answer, decides."""
    if row.grade.method != ScoreMethod.EXACT_FALLBACK.value or row.answer is None:
        return None
    return row.answer, row.gold
