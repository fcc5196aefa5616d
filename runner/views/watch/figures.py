"""Means with an interval, and numbers as the viewer writes them. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite, sqrt

from runner.results.aggregate import ScoredRow, standard_error_within_problems

Z_95 = 1.959964
"""Of the 95 % interval."""
_MINUTE_S = 60
_HOUR_S = 3600
_LONGEST_S = 1e7
"""Beyond this (four months) a time is a clock's fault, and not written out."""


@dataclass(frozen=True)
class Mean:
    """A mean and its 95 % interval. `within_problems` says which: see `mean_with_interval`."""

    value: float
    low: float
    high: float
    within_problems: bool


def mean_with_interval(rows: Sequence[ScoredRow]) -> Mean | None:
    """Return the mean score so far with its interval; None while nothing is scored.

    Where every problem has two samples or more, the interval is for fresh samples of the same problems, as
    in results. Before that nothing tells the spread within problems, and the interval is Wilson's for
    independent trajectories, which is wider: a hint for a running run, never a result.
    """
    if not rows:
        return None
    count = len(rows)
    value = sum(row.score for row in rows) / count
    error = standard_error_within_problems(rows)
    if error is not None:
        return Mean(value, max(value - Z_95 * error, 0.0), min(value + Z_95 * error, 1.0), True)
    share = min(max(value, 0.0), 1.0)
    middle = (share + Z_95**2 / (2 * count)) / (1 + Z_95**2 / count)
    half = Z_95 / (1 + Z_95**2 / count) * sqrt(share * (1 - share) / count + Z_95**2 / (4 * count**2))
    return Mean(value, max(middle - half, 0.0), min(middle + half, 1.0), False)


def mean_text(mean: Mean | None) -> str:
    """Return `0.725 [0.57, 0.87]`; a `~` before the interval of independent trajectories."""
    if mean is None:
        return "-"
    return f"{mean.value:.3f} {'' if mean.within_problems else '~'}[{mean.low:.2f}, {mean.high:.2f}]"


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
