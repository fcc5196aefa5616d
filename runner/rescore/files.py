"""Scores of a run by other scorers, as files beside its journal: `scores/SCORER.json`.

The journal and the results of the run are left as they are. A file names the journal it was made from, by
hash, and one that was made from another is stale and not used.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from runner import __version__, statistics
from runner.atomic import write_text
from runner.engines.base import TrajectoryKey
from runner.errors import InfrastructureError, UserError
from runner.events import UntrustedText
from runner.journal import JournalFacts
from runner.rescore.model import Failure, Grade, GradeLimits, Rescored, Rescoring
from runner.rescore.registry import Scorer
from runner.results.figures import significant

SCORES_DIR = "scores"
SCORES_VERSION: Literal[1] = 1
ScoreKey = tuple[str, str, int]
"""Data set, problem, sample."""


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class ScoreRecord(_Strict):
    """One trajectory's scores."""

    dataset: str
    task_id: str
    sample_index: int
    answer: UntrustedText | None
    gold: UntrustedText
    recorded_score: float
    score: float | None
    differs: bool
    method: UntrustedText
    failure: Failure | None
    detail: UntrustedText
    read_answer: UntrustedText | None
    read_gold: UntrustedText | None


class JournalRecord(_Strict):
    """The journal that scores were made from."""

    events: int
    sha256: str


class ScoresFile(_Strict):
    """A whole file of scores."""

    version: Literal[1] = SCORES_VERSION
    scorer: Scorer
    recount: str
    versions: dict[str, str]
    limits: dict[str, float] | None
    run_id: str
    journal: JournalRecord
    unfinished: int
    datasets: dict[str, dict[str, Any]]
    trajectories: tuple[ScoreRecord, ...]

    @property
    def scores(self) -> dict[ScoreKey, float | None]:
        """Scores by trajectory; None where the scorer failed."""
        return {(one.dataset, one.task_id, one.sample_index): one.score for one in self.trajectories}

    @property
    def rescoring(self) -> Rescoring:
        """The same as it was made."""
        rows = [
            Rescored(
                TrajectoryKey(one.dataset, one.task_id, one.sample_index),
                one.answer,
                one.gold,
                one.recorded_score,
                Grade(one.score, one.method, one.failure, one.detail, one.read_answer, one.read_gold),
            )
            for one in self.trajectories
        ]
        limits = None if self.limits is None else _limits_of(self.limits)
        return Rescoring(self.scorer, self.versions, limits, rows, self.unfinished)


def scores_path(run_dir: Path, scorer: Scorer) -> Path:
    """Return where a scorer's scores of a run are."""
    return run_dir / SCORES_DIR / f"{scorer.value}.json"


def write_scores(run_dir: Path, run_id: str, journal: JournalFacts, rescoring: Rescoring) -> Path:
    """Write a scorer's file, whole or not at all; return where it is. Raises `InfrastructureError`."""
    path = scores_path(run_dir, rescoring.scorer)
    try:
        path.parent.mkdir(exist_ok=True)
    except OSError as error:
        raise InfrastructureError(f"cannot create {path.parent}: {error.strerror or error}") from error
    write_text(path, json.dumps(scores_document(run_id, journal, rescoring), indent=1) + "\n")
    return path


def scores_document(run_id: str, journal: JournalFacts, rescoring: Rescoring) -> dict[str, Any]:
    """Return what a scorer's file holds."""
    limits = rescoring.limits
    names = list(dict.fromkeys(row.key.dataset for row in rescoring.rows))
    return {
        "version": SCORES_VERSION,
        "scorer": rescoring.scorer.value,
        "recount": __version__,
        "versions": dict(rescoring.versions),
        "limits": None if limits is None else {"wall_s": limits.wall_s, "memory_bytes": limits.memory_bytes},
        "run_id": run_id,
        "journal": {"events": journal.events, "sha256": journal.sha256},
        "unfinished": rescoring.unfinished,
        "datasets": {
            name: dataset_scores([row for row in rescoring.rows if row.key.dataset == name]) for name in names
        },
        "trajectories": [_record(row) for row in rescoring.rows],
    }


def dataset_scores(rows: list[Rescored]) -> dict[str, Any]:
    """Return the figures of one data set: the mean over what has a score, and between what it lies.

    `recorded_mean` is the run's own, over the same trajectories: a scorer's failures are in neither.
    """
    scored = [(row, row.grade.score) for row in rows if row.grade.score is not None]
    by_problem = statistics.grouped((row.key.problem_id, score) for row, score in scored)
    total, count = sum(score for _, score in scored), len(rows)
    figures: dict[str, Any] = significant(
        {
            "trajectories": count,
            "scored": len(scored),
            "failed": count - len(scored),
            "differs": sum(row.differs for row in rows),
            "recorded_mean": statistics.mean(row.recorded for row, _ in scored),
            "mean": statistics.mean(score for _, score in scored),
            "standard_error_same_problems": statistics.error_same_problems(by_problem),
            "standard_error_new_problems": statistics.error_new_problems(by_problem),
            "if_failed_wrong": total / count if count else None,
            "if_failed_right": (total + count - len(scored)) / count if count else None,
        }
    )
    return figures


def read_scores(run_dir: Path, journal: JournalFacts) -> tuple[dict[Scorer, ScoresFile], list[str]]:
    """Return the files of scores that are of this journal, and a sentence for each that is not.

    Raises `UserError` for one that cannot be read.
    """
    found: dict[Scorer, ScoresFile] = {}
    stale: list[str] = []
    for scorer in Scorer:
        path = scores_path(run_dir, scorer)
        if not path.is_file():
            continue
        file = _read(path)
        if file.journal.sha256 == journal.sha256:
            found[scorer] = file
        else:
            stale.append(f"{SCORES_DIR}/{path.name} is of an earlier journal: score the run again")
    return found, stale


def scores_by_name(files: Mapping[Scorer, ScoresFile]) -> dict[str, dict[ScoreKey, float | None]]:
    """Return scores by the name of their scorer, as reports take them."""
    return {scorer.value: file.scores for scorer, file in files.items()}


def _read(path: Path) -> ScoresFile:
    remedy = f"remove it, then `recount report RUN --scorer {path.stem}`"
    try:
        return ScoresFile.model_validate(json.loads(path.read_bytes()))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise UserError(f"{path}: {place}: {first['msg']}", remedy=remedy) from error
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path} cannot be read: {error}", remedy=remedy) from error


def _limits_of(recorded: Mapping[str, float]) -> GradeLimits:
    return GradeLimits(wall_s=recorded["wall_s"], memory_bytes=int(recorded["memory_bytes"]))


def _record(row: Rescored) -> dict[str, Any]:
    grade = row.grade
    return {
        "dataset": row.key.dataset,
        "task_id": row.key.problem_id,
        "sample_index": row.key.sample,
        "answer": row.answer,
        "gold": row.gold,
        "recorded_score": row.recorded,
        "score": grade.score,
        "differs": row.differs,
        "method": grade.method,
        "failure": None if grade.failure is None else grade.failure.value,
        "detail": grade.detail,
        "read_answer": grade.read_answer,
        "read_gold": grade.read_gold,
    }
