"""Aggregates of scored trajectories: the report's summary, mean@k with its errors, max@k and pass@k. Pure."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from runner import statistics
from runner.protocol.score import SCORE_METHOD_PREFIX, AnswerStatus, ScoreMethod, Termination
from runner.results.figures import significant
from runner.statistics import Basis

_ENGINE_SIDE = frozenset({Termination.CONTEXT_LENGTH_EXCEEDED, Termination.REQUEST_ERROR})


@dataclass(frozen=True)
class ScoredRow:
    """One scored trajectory, as aggregates need it."""

    problem_id: str
    sample: int
    score: float
    score_method: ScoreMethod
    termination: Termination
    answer_status: AnswerStatus


def report_summary(rows: Sequence[ScoredRow], *, problems: int, samples: int) -> dict[str, Any]:
    """Return the summary in the report's form and names, over the rows there are.

    `pass@k` there is the share of problems solved at least once, `error_count` counts context and
    request errors. Problems without a row count in no figure but `items` and `expected_count`.
    """
    by_problem = scores_by_problem(rows)
    by_sample: dict[int, list[float]] = defaultdict(list)
    for row in rows:
        by_sample[row.sample].append(row.score)
    best = [max(scores) for scores in by_problem.values()]
    solved = sum(1 for score in best if score >= 1.0)
    mean = _mean([row.score for row in rows])
    return {
        "count": len(rows),
        "valid_count": len(rows),
        "error_count": sum(1 for row in rows if row.termination in _ENGINE_SIDE),
        "items": problems,
        "samples": samples,
        "expected_count": problems * samples,
        "average": mean,
        "mean_score": mean,
        f"max@{samples}": _mean(best),
        f"pass@{samples}": solved / len(best) if best else 0.0,
        f"pass@{samples}_count": solved,
        "max": max((row.score for row in rows), default=0.0),
        "score_methods": dict(Counter(f"{SCORE_METHOD_PREFIX}{row.score_method.value}" for row in rows)),
        "termination_reasons": dict(Counter(row.termination.value for row in rows)),
        "answer_statuses": dict(Counter(row.answer_status.value for row in rows)),
        "by_sample": {
            str(sample): {"count": len(scores), "mean_score": _mean(scores)}
            for sample, scores in sorted(by_sample.items())
        },
    }


def pass_at_k(rows: Sequence[ScoredRow], k: int) -> float | None:
    """Return the unbiased estimate of pass@k over rows (`runner.statistics`)."""
    return statistics.pass_at_k(scores_by_problem(rows), k)


def standard_error_within_problems(rows: Sequence[ScoredRow]) -> float | None:
    """Return the standard error of the mean for the same problems and fresh samples (`runner.statistics`)."""
    return statistics.error_same_problems(scores_by_problem(rows))


def mean_errors(rows: Sequence[ScoredRow]) -> dict[str, Any]:
    """Return what the mean may be off by, for either question, and the interval that displays show."""
    scores = scores_by_problem(rows)
    middle = _mean([row.score for row in rows])
    shown = statistics.RunningMean()
    for row in rows:
        shown.add(row.problem_id, row.score)
    return {
        "interval": _shown(shown.interval()),
        "same_problems": _error(middle, statistics.error_same_problems(scores), Basis.SAME_PROBLEMS),
        "new_problems": _error(middle, statistics.error_new_problems(scores), Basis.NEW_PROBLEMS),
    }


def _shown(interval: statistics.Interval | None) -> dict[str, Any] | None:
    if interval is None:
        return None
    ends = {"low": interval.low, "high": interval.high}
    return {**significant(ends), "level": statistics.LEVEL, "basis": interval.basis.value}


def _error(middle: float, error: float | None, basis: Basis) -> dict[str, Any]:
    if error is None:
        return {"standard_error": None, "interval": None}
    interval = statistics.normal_interval(middle, error, basis)
    return {"standard_error": significant(error), "interval": significant([interval.low, interval.high])}


def scores_by_problem(rows: Sequence[ScoredRow]) -> dict[str, list[float]]:
    """Return the rows' scores by problem."""
    return statistics.grouped((row.problem_id, row.score) for row in rows)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
