"""Made-up scores: rows that give the published figures, and runs drawn around them."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runner.verdict import Judgement, PublishedRows, RunScores, Verdict, load_published
from runner.verdict.rows import rows_of_document

Scores = NDArray[np.float64]

PUBLISHED = load_published()


def _rows_of(problems: int, by_sample: tuple[float, ...], solved: int) -> Scores:
    """Scores [problem, sample] with these means of samples and so many problems solved at least once."""
    scores = np.zeros((problems, len(by_sample)))
    for sample, mean in enumerate(by_sample):
        scores[: round(mean * problems), sample] = 1.0
    turn = 0
    while (scores.max(axis=1) > 0).sum() < solved:
        sample = turn % len(by_sample)
        unsolved = int(np.flatnonzero(scores.max(axis=1) == 0)[0])
        donors = np.flatnonzero((scores.sum(axis=1) >= 2) & (scores[:, sample] == 1))
        scores[donors[turn % len(donors)], sample] = 0.0
        scores[unsolved, sample] = 1.0
        turn += 1
    return scores


def published_scores() -> dict[str, Scores]:
    """Scores that give every published figure of final4; which problem has which is made up."""
    figures = PUBLISHED.reports["final4"].figures
    return {
        name: _rows_of(problems, figures[name].by_sample, round((figures[name].max_at_k or 0.0) * problems))
        for name, problems in PUBLISHED.problems.items()
    }


def problem_ids() -> dict[str, list[str]]:
    """Ids of every data set, in its order."""
    return {
        name: [f"{name}_{index:03d}" for index in range(count)] for name, count in PUBLISHED.problems.items()
    }


def row_dicts(dataset: str, scores: Scores) -> list[dict[str, Any]]:
    """Rows in the report's own fields."""
    return [
        {
            "key": f"{dataset}_{index:03d}:sample{sample:02d}",
            "task_id": f"{dataset}_{index:03d}",
            "row_index": index,
            "sample_index": sample,
            "score": float(score),
            "react_steps": [{"turn": 1, "assistant": "…", "action": {"name": "bash"}}],
        }
        for index, samples in enumerate(scores)
        for sample, score in enumerate(samples)
    ]


def summaries(scores: Mapping[str, Scores] | None = None) -> dict[str, Any]:
    """The most plausible layout: one summary a data set, its rows under `scores`."""
    made = published_scores() if scores is None else scores
    return {
        f"{name}_eval": {"count": int(one.size), "average": float(one.mean()), "scores": row_dicts(name, one)}
        for name, one in made.items()
    }


def published_rows() -> PublishedRows:
    """Rows that give every published figure, as the reader returns them."""
    return rows_of_document(summaries(), PUBLISHED)


def run_of(dataset: str, scores: Scores) -> RunScores:
    """A run's scores from an array [problem, sample]."""
    return RunScores(
        dataset,
        int(scores.shape[1]),
        {f"{dataset}_{index:03d}": tuple(float(one) for one in row) for index, row in enumerate(scores)},
    )


def as_published(samples: int = 4) -> dict[str, Scores]:
    """Scores as the published rows have them."""
    return {name: scores[:, :samples].copy() for name, scores in published_scores().items()}


def runs(scores: dict[str, Scores]) -> list[RunScores]:
    """A run's data sets with these scores."""
    return [run_of(name, one) for name, one in scores.items()]


def by_name(verdict: Verdict) -> dict[str, Judgement]:
    """The judgements of single data sets."""
    return {judgement.name: judgement for judgement in verdict.datasets}
