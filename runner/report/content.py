"""All that the template shows, put together from the state of a run and its results. Pure."""

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

from runner.comparison import profile_name
from runner.events import EngineSample, RunResumed
from runner.report import tables
from runner.report.distributions import distributions
from runner.report.intervals import compared, differences_plot, means_plot
from runner.report.origin import origin
from runner.report.outcomes import Outcome, heat_map, outcomes_in
from runner.report.standing import notices
from runner.report.timeline import Timeline, timeline_of
from runner.report.timeline_plots import engine_plot, line_plot
from runner.report.transcripts import Scores
from runner.state import RunState

_END_KEYS = (
    ("Ended by", "termination_reasons", "ended"),
    ("Scored by", "score_methods", ""),
    ("Answer", "answer_statuses", ""),
)


def content_of(
    state: RunState,
    results: Mapping[str, Any],
    samples: Sequence[EngineSample | RunResumed],
    scores: Scores,
) -> dict[str, Any]:
    """Return the template's variables."""
    datasets = list(results["datasets"])
    return {
        "profile": "" if state.started is None else profile_name(state.started),
        "datasets": datasets,
        "notices": notices(state, results),
        **_verdict(results),
        "score_rows": tables.score_rows(results),
        "scorers": list(tables.scorer_rows(scores, datasets)),
        "maps": [(record.name, _map(state, record)) for record in state.datasets()],
        "outcomes": list(Outcome),
        "ends": [
            (name, tables.segments(tables.end_counts(dataset)))
            for name, dataset in results["datasets"].items()
        ],
        "end_tables": [(label, tables.end_rows(results, key), link) for label, key, link in _END_KEYS],
        "distributions": distributions(state),
        "tool_rows": tables.tool_rows(results),
        "engine_table": tables.engine_rows(results),
        "node_table": tables.node_rows(results),
        "time_shares": _time_shares(results),
        "cost_rows": tables.cost_rows(),
        "timeline": _timeline(timeline_of(state, samples)),
        "origin": origin(results),
    }


def _verdict(results: Mapping[str, Any]) -> dict[str, Any]:
    verdict = results["verdict"]
    rows = compared(results)
    differences = None
    if verdict is not None:
        settings = verdict["settings"]
        differences = differences_plot(rows, settings["margin"], settings["interval_level"])
    return {
        "headline": _headline(results),
        "comparisons": tables.comparisons(results),
        "means_plot": means_plot(rows) if rows else None,
        "differences_plot": differences,
        "solved": _solved(results),
    }


def _headline(results: Mapping[str, Any]) -> str:
    """Return the verdict's first sentence, without the word that stands above it in large letters."""
    lines = list(takewhile(bool, results["verdict_lines"]))
    sentence = " ".join(line.strip() for line in lines)
    verdict = results["verdict"]
    return sentence if verdict is None else sentence.removeprefix(f"verdict: {verdict['word']}: ")


def _solved(results: Mapping[str, Any]) -> list[tuple[str, tuple[object, ...], Mapping[str, Any]]]:
    """Return max@k and pass@k against the published ones, by their places."""
    verdict = results["verdict"]
    if verdict is None:
        return []
    return [
        (name, ("verdict", "datasets", name, "solved_at_least_once", index), figure)
        for name, judgement in verdict["datasets"].items()
        for index, figure in enumerate(judgement["solved_at_least_once"])
    ]


def _map(state: RunState, record: Any) -> dict[str, Any]:  # noqa: ANN401 - a DatasetRecord
    columns = heat_map(state, record)
    return {"columns": columns, "outcomes": outcomes_in(columns)}


def _time_shares(results: Mapping[str, Any]) -> list[tuple[str, str, tables.Segment]]:
    shares = results["engines"]["trajectories"]
    found, start = [], 0.0
    for label, key in tables.TIME_SHARES:
        share = max(shares[key] or 0.0, 0.0)
        segment = tables.Segment(
            label, 0, round(100 * start, 3), round(100 * share, 3), f"time-{key.removesuffix('_share')}"
        )
        found.append((label, key, segment))
        start += share
    return found if shares["elapsed_s"] else []


def _timeline(timeline: Timeline | None) -> dict[str, Any] | None:
    if timeline is None:
        return None
    queue = [value for value in timeline.queue if value is not None]
    left = line_plot(timeline.left, timeline, "Trajectories that had not ended, over time", "left")
    waiting = line_plot(timeline.queue, timeline, "Turns that waited for a place in an engine", "queue")
    return {
        "work_s": timeline.work_s,
        "source": timeline.source.value,
        "largest_batch": timeline.largest_batch,
        "engines": [(one.name, engine_plot(one, timeline)) for one in timeline.engines],
        "not_shown": timeline.engines_not_shown,
        "left": left,
        "queue": waiting if any(queue) else None,
        "largest_queue": max(queue, default=0.0),
        "axis": [timeline.work_s * share for share in (0.0, 0.25, 0.5, 0.75, 1.0)],
        "losses": [(one.name, loss.at_s, loss.cause) for one in timeline.engines for loss in one.losses],
    }
