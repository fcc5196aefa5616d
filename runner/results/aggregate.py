"""Aggregates of scored trajectories: the report's summary, and mean@k, max@k and pass@k. Pure."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import comb, sqrt
from typing import Any

from runner.protocol.score import SCORE_METHOD_PREFIX, AnswerStatus, ScoreMethod, Termination

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
    by_problem = _scores_by_problem(rows)
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
    """Return the unbiased estimate of pass@k: the mean of 1 - C(n-c, k)/C(n, k) over problems.

    (Chen et al. 2021, Evaluating Large Language Models Trained on Code.) None unless every problem has
    at least k samples.
    """
    by_problem = _scores_by_problem(rows)
    if k < 1 or not by_problem or any(len(scores) < k for scores in by_problem.values()):
        return None
    total = Fraction(0)
    for scores in by_problem.values():
        n, correct = len(scores), sum(1 for score in scores if score >= 1.0)
        total += 1 - Fraction(comb(n - correct, k), comb(n, k))
    return float(total / len(by_problem))


def standard_error_within_problems(rows: Sequence[ScoredRow]) -> float | None:
    """Return the standard error of the mean for the same problems and fresh samples.

    Only the variance of samples within problems counts, since a reproduction keeps the problems. None
    where some problem has fewer than two samples: one draw says nothing about its own spread.
    """
    by_problem = _scores_by_problem(rows)
    if not by_problem or any(len(scores) < 2 for scores in by_problem.values()):
        return None
    variance = 0.0
    for scores in by_problem.values():
        n, mean = len(scores), _mean(scores)
        variance += sum((score - mean) ** 2 for score in scores) / (n - 1) / n
    return sqrt(variance) / len(by_problem)


def _scores_by_problem(rows: Sequence[ScoredRow]) -> dict[str, list[float]]:
    by_problem: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        by_problem[row.problem_id].append(row.score)
    return by_problem


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
