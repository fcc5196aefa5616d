"""Looking at processes, to see that none is left."""

import os
import time
from pathlib import Path

import pytest


def _stat(pid: int) -> tuple[int, str, str] | None:
    """Return (parent, state, start time) of a process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = text[text.rindex(")") + 2 :].split()
    return int(fields[1]), fields[0], fields[19]


def descendants(of: int | None = None) -> dict[int, str]:
    """Return all processes below one (this one, else), by their start times: a pid may come again."""
    root = os.getpid() if of is None else of
    stats = {int(one.name): _stat(int(one.name)) for one in Path("/proc").iterdir() if one.name.isdigit()}
    found: dict[int, str] = {}
    parents = {root}
    while parents:
        children = {
            pid: stat[2] for pid, stat in stats.items() if stat and stat[0] in parents and stat[1] != "Z"
        }
        parents = set(children) - set(found)
        found |= children
    return found


def still_alive(processes: dict[int, str]) -> dict[int, str]:
    """Return those that still run, with what they call themselves."""
    alive = {}
    for pid, started in processes.items():
        stat = _stat(pid)
        if stat is not None and stat[2] == started and stat[1] != "Z":
            alive[pid] = command_of(pid)
    return alive


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def wait_gone(processes: dict[int, str], *, within_s: float) -> dict[int, str]:
    """Wait until none of these runs, and return those that do after all."""
    deadline = time.monotonic() + within_s
    while (alive := still_alive(processes)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return alive


def engine_cores(processes: dict[int, str]) -> list[int]:
    return [pid for pid in processes if "EngineCore" in command_of(pid)]


def with_engine_core(of: int, *, within_s: float = 20.0) -> dict[int, str]:
    """Return all processes below one, an engine core among them.

    On a machine under heavy load engines that served were seen without a core that shows by its name, for
    minutes, and nobody knows why yet. Such a test is skipped and says which processes there were.
    """
    deadline = time.monotonic() + within_s
    while not engine_cores(found := descendants(of)):
        if time.monotonic() > deadline:
            pytest.skip(f"no engine core shows by its name below {of}: {still_alive(found)}")
        time.sleep(0.1)
    return found


def actors(processes: dict[int, str]) -> list[int]:
    return [pid for pid in processes if command_of(pid).startswith("ray::EngineActor")]
