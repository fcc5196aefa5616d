"""Results of a run, built from its state. Pure: whoever has the journal can build them again."""

from typing import Any

from runner.comparison import NO_PUBLISHED, verdict_of
from runner.events import DatasetRecord, EndReason, RunResumed
from runner.journal import JOURNAL_NAME, JournalFacts
from runner.results.aggregate import (
    ScoredRow,
    mean_errors,
    pass_at_k,
    report_summary,
    standard_error_within_problems,
)
from runner.results.cost import cost_results
from runner.results.engines import engine_results
from runner.results.figures import seconds, significant
from runner.results.provenance import provenance_results
from runner.results.records import scored_row, trajectory_record
from runner.results.tools import tool_counts
from runner.state import RunPart, RunState, TrajectoryState

RESULTS_VERSION = 1


def build_results(state: RunState, journal: JournalFacts | None = None) -> dict[str, Any]:
    """Return the whole results document; raise `ValueError` for a journal without a start.

    `journal` is the file that the state was read from, for the results to name it by.
    """
    started = state.started
    if started is None:
        raise ValueError("the journal holds no run_started event")
    return {
        "version": RESULTS_VERSION,
        "run_id": started.run_id,
        "recount": started.recount,
        "started_at": started.at,
        "ended_at": state.last_event_at,
        "end": None if state.ended is None else state.ended.reason.value,
        "complete": is_complete(state),
        "reproduction": not started.deviations,
        "deviations": list(started.deviations),
        "notes": list(started.notes),
        **_verdict(state),
        "journal": None
        if journal is None
        else {
            "file": JOURNAL_NAME,
            "events": journal.events,
            "sha256": journal.sha256,
            "chain": journal.chain or None,
        },
        "profile": started.profile,
        "overrides": list(started.overrides),
        "protocol": started.protocol,
        "engine": started.engine,
        "sandbox": started.sandbox,
        "concurrency": started.concurrency.model_dump(mode="json"),
        "provenance": provenance_results(started),
        "timings": _timings(state),
        "cost": cost_results(state),
        "engines": engine_results(state),
        "datasets": {record.name: _dataset_results(state, record) for record in started.datasets},
    }


def _verdict(state: RunState) -> dict[str, Any]:
    """Return the verdict, and the same as lines for a person; or why there is none."""
    verdict = verdict_of(state)
    if verdict is None:
        return {"verdict": None, "no_verdict_because": NO_PUBLISHED, "verdict_lines": []}
    from runner.verdict import verdict_lines  # noqa: PLC0415 - statistics are slow to import

    return {
        "verdict": significant(verdict.as_document()),
        "no_verdict_because": None,
        "verdict_lines": verdict_lines(verdict),
    }


def _timings(state: RunState) -> dict[str, Any]:
    """Return how long the run took, and each data set: both run together, so theirs overlap."""
    by_dataset = {}
    for record in state.datasets():
        mine = [one for key, one in state.trajectories.items() if key.dataset == record.name]
        ends = [one.terminated.at for one in mine if one.terminated is not None]
        by_dataset[record.name] = {
            "last_end_at": max(ends, default=None),
            "elapsed_s": seconds(sum(one.terminated.elapsed_s for one in mine if one.terminated is not None)),
        }
    return {
        "wall_s": seconds(state.wall_s),
        "paused_s": seconds(state.paused_s),
        "disk_full_s": seconds(state.disk_full_s),
        "faulty_s": seconds(state.faulty_s),
        "pauses": state.pauses,
        "stalls": state.stalls,
        "parts": [_part(part) for part in state.parts],
        "datasets": by_dataset,
    }


def _part(part: RunPart) -> dict[str, Any]:
    """Return one part of the run: when, how it ended, and what was found when it went on."""
    began = part.began
    resumed = began.resumed if isinstance(began, RunResumed) else None
    origin = began.provenance
    return {
        "started_at": began.at,
        "ended_at": part.last_event_at,
        "end": None if part.ended is None else part.ended.reason.value,
        "wall_s": seconds(part.wall_s),
        "recount": began.recount,
        "source": None if origin is None or origin.source is None else origin.source.model_dump(mode="json"),
        "gpus": None
        if origin is None or origin.gpus is None
        else [one.model_dump(mode="json") for one in origin.gpus],
        "resumed": None
        if resumed is None
        else resumed.model_dump(mode="json", exclude={"part", "cut"}) | {"cut": len(resumed.cut)},
    }


def is_complete(state: RunState) -> bool:
    """Say whether every trajectory of the run has a score."""
    return all(
        key in state.trajectories and state.trajectories[key].terminated is not None
        for key in state.planned()
    )


def end_reason(state: RunState) -> EndReason:
    """Say how a run that went through all its jobs ended."""
    return EndReason.COMPLETE if is_complete(state) else EndReason.INCOMPLETE


def _dataset_results(state: RunState, record: DatasetRecord) -> dict[str, Any]:
    samples = 0 if state.started is None else state.started.samples
    problems = {problem.id: problem for problem in record.problems}
    mine = [one for key, one in sorted(state.trajectories.items()) if key.dataset == record.name]
    scored = [one for one in mine if one.terminated is not None]
    rows = [row for row in map(scored_row, scored) if row is not None]
    planned = len(problems) * samples
    order = {problem.id: problem.row_index for problem in record.problems}
    scored.sort(key=lambda one: (order[one.key.problem_id], one.key.sample))
    return {
        "path": record.path,
        "sha256": record.sha256,
        "base_seed": record.base_seed,
        "problems": len(problems),
        "summary": report_summary(rows, problems=len(problems), samples=samples),
        "mean": _mean_with_error(rows, planned),
        "pass_at_k": {
            str(k): value for k in range(1, samples + 1) if (value := pass_at_k(rows, k)) is not None
        },
        "tools": tool_counts(turn for one in mine for turn in one.turns),
        "tokens": {
            "generated": sum(one.terminated.generated_tokens for one in scored if one.terminated),
            "largest_context": max(
                (one.terminated.max_context_tokens for one in scored if one.terminated), default=0
            ),
        },
        "infrastructure_retries": sum(len(one.retries) for one in mine),
        "unfinished": [_unfinished(one) for one in mine if one.terminated is None],
        "not_started": planned - len(mine),
        "trajectories": [trajectory_record(one, problems[one.key.problem_id]) for one in scored],
    }


def _mean_with_error(rows: list[ScoredRow], planned: int) -> dict[str, Any]:
    """Return the mean over scored trajectories, its standard errors for fresh samples of the same problems
    and for new problems, and what the mean would be with all that is missing wrong, and right."""
    total = sum(row.score for row in rows)
    missing = planned - len(rows)
    return {
        "value": total / len(rows) if rows else None,
        "standard_error": standard_error_within_problems(rows),
        **mean_errors(rows),
        "scored": len(rows),
        "planned": planned,
        "if_missing_wrong": total / planned if planned else None,
        "if_missing_right": (total + missing) / planned if planned else None,
    }


def _unfinished(trajectory: TrajectoryState) -> dict[str, Any]:
    """Return why a trajectory has no score, over all parts of the run."""
    cause = trajectory.cause
    newest = 0 if trajectory.unfinished is None and trajectory.given_up else trajectory.attempt
    return {
        "task_id": trajectory.key.problem_id,
        "sample_index": trajectory.key.sample,
        "attempts": newest + sum(one.attempt for one in trajectory.given_up),
        "turns_done": len(trajectory.turns),
        "cause": "the run stopped before it ended" if cause is None else cause.cause,
        **({"log": list(cause.log)} if cause is not None and cause.log else {}),
    }
