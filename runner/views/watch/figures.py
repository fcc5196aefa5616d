"""Means with an interval, and numbers as the viewer writes them. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import isfinite

from runner.results.aggregate import ScoredRow
from runner.statistics import Interval, RunningMean

_MINUTE_S = 60
_HOUR_S = 3600
_LONGEST_S = 1e7
"""Beyond this (four months) a time is a clock's fault, and not written out."""


@dataclass(frozen=True)
class Mean:
    """A mean and its 95 % interval."""

    value: float
    interval: Interval


def mean_with_interval(rows: Iterable[ScoredRow]) -> Mean | None:
    """Return the mean score so far, its interval as every display has it; None while nothing is scored."""
    running = RunningMean()
    for row in rows:
        running.add(row.problem_id, row.score)
    value, interval = running.value, running.interval()
    return None if value is None or interval is None else Mean(value, interval)


def mean_text(mean: Mean | None) -> str:
    """Return `0.725 [0.57, 0.87]`; a `~` before the interval of independent trajectories."""
    if mean is None:
        return "-"
    hint = "~" if mean.interval.is_hint else ""
    return f"{mean.value:.3f} {hint}[{mean.interval.low:.2f}, {mean.interval.high:.2f}]"


def duration_text(duration_s: float | None) -> str:
    """Return `7.3s`, `4m05s` or `2h03m`: five characters or so."""
    if duration_s is None:
        return ""
    if not isfinite(duration_s) or abs(duration_s) > _LONGEST_S:
        return "?"
    if duration_s < _MINUTE_S:
        return f"{duration_s:.1f}s"
    whole = int(duration_s)
    if whole < _HOUR_S:
        return f"{whole // _MINUTE_S}m{whole % _MINUTE_S:02d}s"
    return f"{whole // _HOUR_S}h{whole % _HOUR_S // _MINUTE_S:02d}m"


def count_text(count: int) -> str:
    """Return `950`, `12.3k` or `4.1M`."""
    for size, letter in ((10**9, "G"), (10**6, "M"), (10**4, "k")):
        if count >= size:
            return f"{count / (1000 if letter == 'k' else size):.1f}{letter}"
    return str(count)


def share_text(share: float | None) -> str:
    """Return `87%`, or a dash where nobody told."""
    return "-" if share is None else f"{share:.0%}"


def gibibytes_text(size_bytes: int | None) -> str:
    """Return `63.9` GiB, or a dash where nobody told."""
    return "-" if size_bytes is None else f"{size_bytes / 2**30:.1f}"
