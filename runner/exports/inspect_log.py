"""A run as logs of Inspect AI, a log a data set, written by Inspect's own library: `inspect view` shows them.

A sample of ours is an epoch of theirs. The journal holds what the model said and saw, not the protocol's
sentences: a conversation begins with the problem.
"""

import importlib
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from runner import __version__
from runner.errors import UserError
from runner.events import DatasetRecord, EndReason, RunStarted
from runner.exports.files import new_directory
from runner.exports.inspect_sample import SCORER, AllScores, SampleMaker
from runner.exports.inspect_values import file_time, iso_time, plain_json, plain_text, slug, stable_id
from runner.rescore.files import ScoreKey
from runner.results.aggregate import ScoredRow, mean_errors
from runner.results.records import scored_row
from runner.state import RunState

_ENDS = {None: "started", EndReason.INTERRUPTED: "cancelled", EndReason.COMPLETE: "success"}


def write_inspect_logs(state: RunState, directory: Path, *, scores: AllScores | None = None) -> list[Path]:
    """Write a log for every data set; return where they are. `scores` are those of other scorers.

    Raises `UserError` where Inspect AI is not installed, and as `new_directory` does.
    """
    started = state.started
    if started is None:
        raise UserError("the run never started")
    maker = _Maker(_inspect(), state, started, scores or {})
    names = []
    with new_directory(directory) as aside:
        for record in started.datasets:
            log = maker.log(record)
            name = f"{file_time(started.at)}_{slug(log.eval.task)}_{log.eval.task_id}.eval"
            maker.inspect.log.write_eval_log(log, str(aside / name), format="eval")
            names.append(name)
    return [directory / name for name in names]


def _inspect() -> ModuleType:
    try:
        for part in ("log", "model", "scorer", "tool", "event"):
            importlib.import_module(f"inspect_ai.{part}")
        return importlib.import_module("inspect_ai")
    except ImportError as error:
        raise UserError(
            f"Inspect AI is not installed: {error}",
            remedy="pip install '.[inspect]' where Recount's source is",
        ) from error


class _Maker:
    """Makes Inspect's objects of a run's. Untyped from here on: their library is an extra."""

    def __init__(self, inspect: ModuleType, state: RunState, started: RunStarted, scores: AllScores) -> None:
        self.inspect: Any = inspect
        self._state, self._started, self._scores = state, started, scores
        self._samples = SampleMaker(inspect, started, scores)

    def log(self, record: DatasetRecord) -> Any:  # noqa: ANN401 - theirs
        log, started = self.inspect.log, self._started
        trajectories = [
            self._state.trajectories[key]
            for key in self._state.planned()
            if key.dataset == record.name and key in self._state.trajectories
        ]
        problems = {problem.id: problem for problem in record.problems}
        samples = [self._samples.sample(one, problems[one.key.problem_id]) for one in trajectories]
        rows = [row for row in map(scored_row, trajectories) if row is not None]
        complete = len(rows) == len(problems) * started.samples
        reason = None if self._state.ended is None else self._state.ended.reason
        status = _ENDS.get(reason, "error")
        return log.EvalLog(
            status=status if complete or status != "success" else "error",
            eval=self._spec(record),
            plan=log.EvalPlan(steps=[log.EvalPlanStep(solver="recount", params={"version": __version__})]),
            results=self._results(rows, record, len(problems) * started.samples),
            stats=log.EvalStats(
                started_at=iso_time(started.at),
                completed_at=iso_time(self._state.last_event_at or started.at),
                model_usage={
                    self._samples.model: self._samples.usage(
                        turn for one in trajectories for turn in one.turns
                    )
                },
            ),
            error=None if status in {"success", "started", "cancelled"} and complete else self._error(reason),
            samples=samples,
        )

    def _error(self, reason: EndReason | None) -> Any:  # noqa: ANN401
        if reason in {None, EndReason.INTERRUPTED}:
            return None
        message = "" if self._state.ended is None else self._state.ended.message
        return self.inspect.log.EvalError(
            message=plain_text(message or "trajectories are unfinished"), traceback="", traceback_ansi=""
        )

    def _spec(self, record: DatasetRecord) -> Any:  # noqa: ANN401
        log, started = self.inspect.log, self._started
        return log.EvalSpec(
            eval_id=stable_id(started.run_id, record.name, "eval"),
            run_id=stable_id(started.run_id),
            created=iso_time(started.at),
            task=plain_text(record.name),
            task_id=stable_id(started.run_id, record.name),
            dataset=log.EvalDataset(
                name=plain_text(record.name),
                location=plain_text(record.path),
                samples=len(record.problems),
                sample_ids=[plain_text(problem.id) for problem in record.problems],
                shuffled=False,
            ),
            model=self._samples.model,
            config=log.EvalConfig(epochs=started.samples),
            packages={"recount": started.recount},
            metadata=plain_json(
                {
                    "run_id": started.run_id,
                    "data_set_sha256": record.sha256,
                    "protocol": started.protocol,
                    "profile": started.profile,
                    "engine": started.engine,
                    "sandbox": started.sandbox,
                    "deviations": list(started.deviations),
                }
            ),
        )

    def _results(self, rows: list[ScoredRow], record: DatasetRecord, planned: int) -> Any:  # noqa: ANN401
        log = self.inspect.log
        named: dict[str, list[ScoredRow]] = {SCORER: rows}
        for name, scores in self._scores.items():
            if name != SCORER:
                named[name] = _scored_again(rows, record.name, scores)
        return log.EvalResults(
            total_samples=planned,
            completed_samples=len(rows),
            scores=[
                log.EvalScore(
                    name=name,
                    scorer=name,
                    reducer="mean",
                    scored_samples=len(mine),
                    unscored_samples=planned - len(mine),
                    metrics=self._metrics(mine),
                )
                for name, mine in named.items()
            ],
        )

    def _metrics(self, rows: list[ScoredRow]) -> dict[str, Any]:
        errors = mean_errors(rows)
        values = {
            "mean": sum(row.score for row in rows) / len(rows) if rows else None,
            "stderr": errors["new_problems"]["standard_error"],
            "stderr_same_problems": errors["same_problems"]["standard_error"],
        }
        metric = self.inspect.log.EvalMetric
        return {name: metric(name=name, value=value) for name, value in values.items() if value is not None}


def _scored_again(
    rows: list[ScoredRow], dataset: str, scores: Mapping[ScoreKey, float | None]
) -> list[ScoredRow]:
    found = []
    for row in rows:
        value = scores.get((dataset, row.problem_id, row.sample))
        if value is not None:
            found.append(
                ScoredRow(
                    row.problem_id, row.sample, value, row.score_method, row.termination, row.answer_status
                )
            )
    return found
