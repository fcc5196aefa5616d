"""Which figures of the results document stand in which table, by their places. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from runner.protocol.score import SCORE_METHOD_PREFIX
from runner.report.figures import NOT_TOLD, Kind
from runner.report.intervals import comparison_keys
from runner.report.outcomes import Outcome

Place = tuple[object, ...]


@dataclass(frozen=True)
class Figure:
    """One figure by its place; an interval has two."""

    places: tuple[Place, ...]
    kind: str


@dataclass(frozen=True)
class Row:
    """One measure: a figure a column, None where there is none."""

    label: str
    cells: tuple[Figure | None, ...]
    hint: str = ""
    absent: str = NOT_TOLD
    """What stands where there is none."""


@dataclass(frozen=True)
class Comparison:
    """A row of the verdict's table."""

    name: str
    assumed: str
    place: Place | None
    word: str
    first: bool


def comparisons(results: Mapping[str, Any]) -> list[Comparison]:
    """Return a row for all problems and one a data set; two where trajectories are missing."""
    verdict = results["verdict"]
    if verdict is None:
        return []
    judged: list[tuple[str, Place, Mapping[str, Any]]] = []
    if verdict["pooled"] is not None:
        judged.append(("all problems", ("verdict", "pooled"), verdict["pooled"]))
    judged += [(name, ("verdict", "datasets", name), one) for name, one in verdict["datasets"].items()]
    rows = []
    for name, place, judgement in judged:
        keys = comparison_keys(judgement)
        rows += [
            Comparison(name, assumed, (*place, key), judgement["word"], first=index == 0)
            for index, (key, assumed) in enumerate(keys)
        ] or [Comparison(name, "", None, judgement["word"], first=True)]
    return rows


def score_rows(results: Mapping[str, Any]) -> list[Row]:
    """Return the scores of all data sets, a column each."""
    samples = max((one["summary"]["samples"] for one in results["datasets"].values()), default=0)
    rows = [
        _row(results, "Problems", ("problems",), Kind.COUNT),
        _row(results, "Trajectories scored", ("mean", "scored"), Kind.COUNT),
        _row(results, "Trajectories planned", ("mean", "planned"), Kind.COUNT),
        _row(results, f"mean@{samples}", ("mean", "value"), Kind.SCORE),
        _row(
            results,
            "standard error, fresh samples of the same problems",
            ("mean", "same_problems", "standard_error"),
            Kind.ERROR,
            hint="what a reproduction asks",
        ),
        _interval_row(results, "95 % interval, same problems", "same_problems"),
        _row(
            results,
            "standard error, new problems",
            ("mean", "new_problems", "standard_error"),
            Kind.ERROR,
            hint="clustered by problem: what a statement about ability asks",
        ),
        _interval_row(results, "95 % interval, new problems", "new_problems"),
        _row(results, f"max@{samples}", ("summary", f"max@{samples}"), Kind.SCORE, of_summary=True),
    ]
    rows += [
        _row(results, f"pass@{k}", ("pass_at_k", str(k)), Kind.SCORE, hint="unbiased estimate")
        for k in _shown_ks(samples)
    ]
    rows += [
        _row(
            results,
            f"mean of sample {sample}",
            ("summary", "by_sample", str(sample), "mean_score"),
            Kind.SCORE,
        )
        for sample in range(min(samples, _MOST_SAMPLES))
    ]
    return [row for row in rows if any(row.cells)]


_MOST_SAMPLES = 16


def _shown_ks(samples: int) -> list[int]:
    """Return each k of a small run, and powers of two of a large one."""
    if samples <= _MOST_SAMPLES:
        return list(range(1, samples + 1))
    return sorted({samples, *(2**power for power in range(samples.bit_length()) if 2**power <= samples)})


def tool_rows(results: Mapping[str, Any]) -> list[Row]:
    """Return what commands ran into."""
    counted = (
        ("Commands run", "actions", Kind.COUNT, ""),
        ("Exit code not 0", "nonzero_exit", Kind.COUNT, ""),
        ("Timed out", "timed_out", Kind.COUNT, ""),
        ("of these, hardly used a processor", "timed_out_waiting", Kind.COUNT, "asleep, or starved"),
        ("Network refused", "refused_network", Kind.COUNT, "by what they printed"),
        ("Wall time", "wall_s", Kind.SECONDS, "sum over commands"),
        ("Processor time", "cpu_s", Kind.SECONDS, ""),
        ("Throttled", "throttled_s", Kind.SECONDS, "held back by the processor limit"),
        ("Largest memory", "peak_memory_bytes", Kind.BYTES, ""),
    )
    rows = [_row(results, label, ("tools", key), kind, hint=hint) for label, key, kind, hint in counted]
    rows += _named(results, ("tools", "limits"), "Limit hit: ")
    rows += _named(results, ("tools", "missing_modules"), "Module missing: ")
    rows.append(_row(results, "Tokens generated", ("tokens", "generated"), Kind.COUNT))
    rows.append(_row(results, "Largest context", ("tokens", "largest_context"), Kind.COUNT))
    rows.append(_row(results, "Started again for our own failures", ("infrastructure_retries",), Kind.COUNT))
    return rows


def end_rows(results: Mapping[str, Any], key: str) -> list[Row]:
    """Return how often each termination, score method or answer status came, most frequent first."""
    prefix = SCORE_METHOD_PREFIX if key == "score_methods" else ""
    return _named(results, ("summary", key), "", prefix)


ENGINE_FIGURES = (
    ("Turns", "turns", Kind.COUNT),
    ("Tokens in", "prompt_tokens", Kind.COUNT),
    ("Tokens out", "completion_tokens", Kind.COUNT),
    ("Tokens out a second", "completion_tokens_per_s", Kind.RATE),
    ("Tokens out a busy second", "completion_tokens_per_busy_s", Kind.RATE),
    ("Up", "serving_s", Kind.SECONDS),
    ("Busy", "busy_s", Kind.SECONDS),
    ("Idle", "idle_share", Kind.SHARE),
    ("Mean batch", "mean_batch", Kind.RATE),
    ("Prefix cache hits", "prefix_cache_hit_share", Kind.SHARE),
    ("Most of the KV cache", "largest_kv_cache_usage", Kind.SHARE),
    ("GPU at work", "mean_gpu_utilization", Kind.SHARE),
    ("Preemptions", "preemptions", Kind.COUNT),
    ("Losses", "losses", Kind.COUNT),
    ("Restarts", "restarts", Kind.COUNT),
)
_MOST_ENGINES = 64


def engine_rows(results: Mapping[str, Any]) -> tuple[list[str], list[Row]]:
    """Return the names of the columns (the run, then each engine), and the figures that anybody told."""
    names = list(results["engines"]["by_engine"])[:_MOST_ENGINES]
    places: list[Place] = [("engines", "run"), *(("engines", "by_engine", name) for name in names)]
    rows = []
    for label, key, kind in ENGINE_FIGURES:
        known = any(_at(results, (*place, key)) is not None for place in places)
        if known:
            rows.append(Row(label, tuple(Figure(((*place, key),), kind.value) for place in places)))
    return ["all", *names], rows


NODE_FIGURES = (
    ("Engines at the end", "engines", Kind.COUNT),
    ("Turns", "turns", Kind.COUNT),
    ("Tokens in", "prompt_tokens", Kind.COUNT),
    ("Tokens out", "completion_tokens", Kind.COUNT),
    ("Tokens out a second", "completion_tokens_per_s", Kind.RATE),
    ("Losses", "losses", Kind.COUNT),
    ("Commands", "actions", Kind.COUNT),
)


def node_rows(results: Mapping[str, Any]) -> tuple[list[str], list[Row]]:
    """Return the names of a cluster's nodes, as columns, and their figures; nothing on one machine."""
    names = list(results["engines"]["by_node"])[:_MOST_ENGINES]
    if not names:
        return [], []
    rows = [
        Row(label, tuple(Figure((("engines", "by_node", name, key),), kind.value) for name in names))
        for label, key, kind in NODE_FIGURES
    ]
    return names, rows


TIME_SHARES = (
    ("generating", "generation_share"),
    ("waiting to generate", "generation_wait_share"),
    ("in commands", "tool_share"),
    ("waiting for commands", "tool_wait_share"),
    ("rest", "rest_share"),
)
COSTS = (
    ("Wall time, hours", "wall_hours", Kind.PLAIN),
    ("GPUs", "gpus", Kind.COUNT),
    ("GPU hours", "gpu_hours", Kind.PLAIN),
    ("Tokens in", "prompt_tokens", Kind.COUNT),
    ("Tokens out", "completion_tokens", Kind.COUNT),
    ("Tokens out a second", "completion_tokens_per_s", Kind.RATE),
    ("Tokens out a trajectory", "completion_tokens_per_trajectory", Kind.RATE),
    ("Tokens out a right answer", "completion_tokens_per_right_answer", Kind.RATE),
)


def cost_rows() -> list[Row]:
    """Return what the run cost."""
    return [Row(label, (Figure((("cost", key),), kind.value),)) for label, key, kind in COSTS]


@dataclass(frozen=True)
class Segment:
    """A part of a bar: from `start`, both in percent of its width."""

    label: str
    count: int
    start: float
    width: float
    shown_as: str


def segments(counts: Sequence[tuple[str, int, str]]) -> list[Segment]:
    """Return a bar of (label, how many, class), those of nothing left out."""
    total = sum(count for _, count, _ in counts)
    found: list[Segment] = []
    start = 0.0
    for label, count, shown_as in counts:
        if count > 0:
            width = 100 * count / total
            found.append(Segment(label, count, round(start, 3), round(width, 3), shown_as))
            start += width
    return found


def end_counts(dataset: Mapping[str, Any]) -> list[tuple[str, int, str]]:
    """Return how the trajectories of a data set ended, those without an end included, for a bar."""
    reasons = dataset["summary"]["termination_reasons"]
    ends = [(name, reasons[name], f"end-{name}") for name in sorted(reasons, key=lambda name: -reasons[name])]
    return [
        *ends,
        ("no score", len(dataset["unfinished"]), Outcome.UNFINISHED.value),
        ("never started", dataset["not_started"], Outcome.NOT_STARTED.value),
    ]


def _row(
    results: Mapping[str, Any],
    label: str,
    key: Place,
    kind: Kind,
    *,
    hint: str = "",
    of_summary: bool = False,
) -> Row:
    """Return a figure of each data set; `of_summary`: it is 0 there where nothing was scored."""
    cells: list[Figure | None] = []
    for name, dataset in results["datasets"].items():
        missing = _at(dataset, key) is None or (of_summary and not dataset["summary"]["count"])
        cells.append(None if missing else Figure((("datasets", name, *key),), kind.value))
    return Row(label, tuple(cells), hint)


def _interval_row(results: Mapping[str, Any], label: str, basis: str) -> Row:
    cells: list[Figure | None] = []
    for name, dataset in results["datasets"].items():
        place = ("datasets", name, "mean", basis, "interval")
        known = dataset["mean"][basis]["interval"] is not None
        cells.append(Figure(((*place, 0), (*place, 1)), Kind.SCORE.value) if known else None)
    return Row(label, tuple(cells))


def _named(results: Mapping[str, Any], key: Place, before: str, prefix: str = "") -> list[Row]:
    """Return a row for each name that any data set counts under a key."""
    totals: dict[str, int] = {}
    for dataset in results["datasets"].values():
        for name, count in _at(dataset, key).items():
            totals[name] = totals.get(name, 0) + count
    ordered = sorted(totals, key=lambda name: (-totals[name], name))
    rows = [_row(results, before + name.removeprefix(prefix), (*key, name), Kind.COUNT) for name in ordered]
    # A name that a data set does not hold was counted, and never seen.
    return [replace(row, absent="0") for row in rows]


def _at(document: Mapping[str, Any], key: Place) -> Any:  # noqa: ANN401 - any JSON value of the document
    found: Any = document
    for part in key:
        found = found.get(str(part)) if isinstance(found, Mapping) else None
    return found


def scorer_rows(
    scores: Mapping[str, Mapping[tuple[str, str, int], float | None]], datasets: Sequence[str]
) -> Iterator[tuple[str, list[tuple[float | None, int, int]]]]:
    """Yield each further scorer with its mean, how many it scored, and how many it could not, a data set."""
    for name, found in scores.items():
        cells: list[tuple[float | None, int, int]] = []
        for dataset in datasets:
            mine = [score for (of, _, _), score in found.items() if of == dataset]
            told = [score for score in mine if score is not None]
            cells.append((sum(told) / len(told) if told else None, len(told), len(mine) - len(told)))
        yield name, cells
