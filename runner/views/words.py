"""Figures as a person reads them at a glance: short, and of a known greatest width."""

from collections.abc import Mapping

from runner.statistics import Interval

_UNITS = ("", "k", "M", "G", "T")
NOT_KNOWN = "-"


def duration(seconds: float | None) -> str:
    """Return `0:07`, `12:05`, `3:02:05`, or days and hours."""
    if seconds is None:
        return NOT_KNOWN
    whole = max(int(seconds), 0)
    if whole >= 100 * 3600:
        return f"{whole // 86400}d {whole % 86400 // 3600}h"
    hours, minutes, rest = whole // 3600, whole % 3600 // 60, whole % 60
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def latency(seconds: float | None) -> str:
    """Return how long something short took: `85 ms`, `1.24 s`, `12 s`."""
    if seconds is None:
        return NOT_KNOWN
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.2f} s" if seconds < 9.995 else f"{seconds:.0f} s"


def count(value: float | None) -> str:
    """Return a number in at most five characters: `950`, `12.3k`, `1.2M`."""
    if value is None:
        return NOT_KNOWN
    size = float(value)
    for unit in _UNITS:
        if size < 999.5 or unit == _UNITS[-1]:
            if not unit:
                return f"{size:.0f}"
            return f"{size:.1f}{unit}" if size < 99.95 else f"{size:.0f}{unit}"
        size /= 1000
    return NOT_KNOWN


def gibibytes(value: float | None) -> str:
    """Return bytes as GiB, as GPU memory is told."""
    return NOT_KNOWN if value is None else f"{value / 2**30:.1f}"


def amount(value: float, *, of_bytes: bool) -> str:
    """Return a plain number, or bytes in a unit that suits them."""
    if not of_bytes:
        return f"{value:.0f}"
    size, units = float(value), ("B", "KiB", "MiB", "GiB", "TiB")
    for unit in units:
        if size < 1024 or unit == units[-1]:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return NOT_KNOWN


def percent(share: float | None) -> str:
    """Return a share from 0 to 1."""
    return NOT_KNOWN if share is None else f"{100 * share:.0f} %"


def rate_a_minute(per_s: float | None) -> str:
    """Return how many a minute, or an hour where a minute sees less than one."""
    if per_s is None:
        return NOT_KNOWN
    return f"{per_s * 60:.1f}/min" if per_s * 60 >= 1 else f"{per_s * 3600:.1f}/h"


def counts(items: Mapping[str, int], separator: str) -> str:
    """Return names with how often each was seen, the most frequent first."""
    ordered = sorted(items.items(), key=lambda item: (-item[1], item[0]))
    return separator.join(f"{name} {number}" for name, number in ordered)


def interval(found: Interval) -> str:
    """Return `0.567-0.866`; `~` in front where it is a hint, for independent trajectories."""
    return f"{'~' if found.is_hint else ''}{found.low:.3f}-{found.high:.3f}"
