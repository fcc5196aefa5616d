"""Putting a run's data set and what was published about it side by side."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from runner.verdict.beta import fit_mean_and_max, outcome_variance
from runner.verdict.compare import Pair, Side, Spread
from runner.verdict.model import Point, RunScores
from runner.verdict.published import Published, Report
from runner.verdict.rows import PublishedRows

WRONG, RIGHT = 0.0, 1.0


@dataclass(frozen=True)
class Reference:
    """What one data set of a run is held against, for the problems that can be compared."""

    dataset: str
    problems: tuple[str, ...]
    mean: float
    samples: int
    rows: Side | None
    assumed_variance: float | None
    points: tuple[Point, ...]
    notes: tuple[str, ...] = ()

    def pair(self, run: RunScores, unfinished_as: float) -> Pair:
        """Return both sides as arrays, with this score for what has none."""
        scores = [
            [unfinished_as if one is None else one for one in run.scores[name]] for name in self.problems
        ]
        return Pair(
            run=Side(np.asarray([scores], dtype=float)),
            published_mean=np.asarray([self.mean]),
            published_samples=self.samples,
            rows=self.rows,
            assumed_variance=None if self.assumed_variance is None else np.asarray([self.assumed_variance]),
        )

    def spread(self) -> Spread:
        """Return how precise a comparison with it can be, before any run."""
        w = None if self.rows is None else self.rows.outcome_variance()
        if w is None and self.assumed_variance is None:
            raise ValueError(f"{self.dataset}: nothing published tells the variance within problems")
        variance = float(w[0]) if w is not None else float(self.assumed_variance or 0.0)
        return Spread(len(self.problems), variance, variance, self.samples)


@dataclass(frozen=True)
class NotComparable:
    """Why a data set has nothing to be held against."""

    dataset: str
    why: str
    points: tuple[Point, ...] = ()


def find_reference(
    dataset: str,
    problems: Sequence[str],
    published: Published,
    reports: Sequence[Report],
    rows: PublishedRows | None,
) -> Reference | NotComparable:
    """Return what a data set's planned problems are held against.

    The mean is over all published samples of the reports, so it holds for all problems together; for some of
    them only rows know it.
    """
    reports = [report for report in reports if dataset in report.figures]
    points = tuple(_point(report, dataset) for report in reports)
    if not reports:
        return NotComparable(dataset, "nothing is published about it for this profile")
    published_problems = published.problems[dataset]
    known = rows.scores.get(dataset) if rows is not None and _holds(reports, rows) else None
    if known is None:
        if len(problems) != published_problems:
            return NotComparable(
                dataset,
                f"the published mean is over {published_problems} problems and cannot be held against"
                f" {len(problems)} of them without the published rows",
                points,
            )
        samples = sum(report.samples for report in reports)
        mean = sum(report.samples * report.figures[dataset].mean for report in reports) / samples
        assumed = _assumed_variance(dataset, reports)
        return Reference(dataset, tuple(problems), mean, samples, None, assumed, points)
    common = tuple(problem for problem in problems if problem in known)
    if not common:
        return NotComparable(dataset, "this run and the published rows have no problem in common", points)
    side = Side(np.asarray([[known[problem] for problem in common]], dtype=float))
    mean, samples = float(side.mean[0]), side.samples
    notes: list[str] = []
    if len(common) == published_problems == len(problems):
        others = [report for report in reports if rows is not None and report.name != rows.report]
        total = mean * samples + sum(report.samples * report.figures[dataset].mean for report in others)
        samples += sum(report.samples for report in others)
        mean = total / samples
    else:
        notes.append(
            f"only the {len(common)} problems that both sides have are compared,"
            f" of {published_problems} published and {len(problems)} planned"
        )
    return Reference(
        dataset, common, mean, samples, side, _assumed_variance(dataset, reports), points, tuple(notes)
    )


def _point(report: Report, dataset: str) -> Point:
    figures = report.figures[dataset]
    return Point(report.name, report.samples, figures.mean, figures.max_at_k)


def _holds(reports: Sequence[Report], rows: PublishedRows) -> bool:
    return any(report.name == rows.report for report in reports)


def _assumed_variance(dataset: str, reports: Sequence[Report]) -> float | None:
    for report in reports:
        figures: Any = report.figures[dataset]
        if report.samples >= 2 and figures.max_at_k is not None:
            return float(outcome_variance(*fit_mean_and_max(figures.mean, figures.max_at_k, report.samples)))
    return None
