"""What a container's control group counted: pure parsers for versions 1 and 2.

The agent sends its own group's files as they are, before the command and after it. Files that a kernel does
not have are absent, and what they would say is then None.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_V2 = "/sys/fs/cgroup"
MEMORY_PEAK = (f"{_V2}/memory.peak", f"{_V2}/memory/memory.max_usage_in_bytes")
MEMORY_EVENTS = (f"{_V2}/memory.events", f"{_V2}/memory/memory.oom_control")
CPU_STAT = (f"{_V2}/cpu.stat", f"{_V2}/cpu/cpu.stat")
CPU_USAGE_V1 = f"{_V2}/cpuacct/cpuacct.usage"
PIDS_EVENTS = (f"{_V2}/pids.events", f"{_V2}/pids/pids.events")

_US_PER_S = 1e6
_NS_PER_S = 1e9


@dataclass(frozen=True)
class Accounting:
    """Over the time of one command."""

    cpu_s: float | None
    throttled_s: float | None
    peak_memory_bytes: int | None
    oom_kills: int | None
    refused_forks: int | None


def account(before: Mapping[str, str], after: Mapping[str, str]) -> Accounting:
    """Differences of the counters; the peak is the container's, since nothing ran in it before."""
    return Accounting(
        cpu_s=_difference(_cpu_s(before), _cpu_s(after)),
        throttled_s=_difference(_throttled_s(before), _throttled_s(after)),
        peak_memory_bytes=_number(_first(after, MEMORY_PEAK)),
        oom_kills=_count(before, after, MEMORY_EVENTS, "oom_kill"),
        refused_forks=_count(before, after, PIDS_EVENTS, "max"),
    )


def keyed(text: str | None) -> dict[str, int]:
    """`key number` lines; what is none of them is skipped."""
    values: dict[str, int] = {}
    for line in (text or "").splitlines():
        key, _, value = line.strip().partition(" ")
        number = _number(value)
        if number is not None:
            values[key] = number
    return values


def _count(
    before: Mapping[str, str], after: Mapping[str, str], names: tuple[str, ...], key: str
) -> int | None:
    last = keyed(_first(after, names)).get(key)
    if last is None:
        return None
    return max(0, last - keyed(_first(before, names)).get(key, 0))


def _cpu_s(files: Mapping[str, str]) -> float | None:
    usage_us = keyed(_first(files, CPU_STAT)).get("usage_usec")
    if usage_us is not None:
        return usage_us / _US_PER_S
    usage_ns = _number(files.get(CPU_USAGE_V1))
    return None if usage_ns is None else usage_ns / _NS_PER_S


def _throttled_s(files: Mapping[str, str]) -> float | None:
    stat = keyed(_first(files, CPU_STAT))
    if "throttled_usec" in stat:
        return stat["throttled_usec"] / _US_PER_S
    if "throttled_time" in stat:
        return stat["throttled_time"] / _NS_PER_S
    return None


def _difference(before: float | None, after: float | None) -> float | None:
    if after is None:
        return None
    return max(0.0, after - (before or 0.0))


def _first(files: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    return next((files[name] for name in names if name in files), None)


def _number(text: str | None) -> int | None:
    stripped = (text or "").strip()
    return int(stripped) if stripped.isascii() and stripped.isdigit() else None
