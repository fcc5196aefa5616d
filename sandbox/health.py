"""How the host does: what an attack on a sandbox must leave as it was.

Numbers of a machine that does other things too move by themselves, so each has its allowance; what is ours
(processes of a workspace's user, labelled containers and volumes) is counted exactly.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker

from sandbox.engine import LABEL_RUN, LABEL_WORKSPACE, translated
from sandbox.policy import GIB, MIB

PROCESS_NOISE = 64
MEMORY_NOISE_BYTES = GIB
DISK_NOISE_BYTES = GIB
INODE_NOISE = 20_000
# With less than this share of what was free before, the host is in need, whoever took it.
SCARCE = 0.1
DAEMON_LATENCY_S = 5.0
KERNEL_SETTINGS = ("kernel/core_pattern", "kernel/hostname", "kernel/sysrq")
SYSTEMD_CORES = Path("/var/lib/systemd/coredump")
SCRATCH = Path("/tmp")  # noqa: S108 - looked at, not used


@dataclass(frozen=True)
class Health:
    """One look at the host. None where this machine does not show it (an engine elsewhere)."""

    processes: int | None
    memory_available_bytes: int | None
    disk_free_bytes: Mapping[str, int]
    inodes_free: Mapping[str, int]
    core_files: int
    daemon_latency_s: float
    kernel: Mapping[str, str]


def look(api: docker.APIClient, data_root: str) -> Health:
    """Look at the host once. Blocking, bounded by the client's time-out."""
    started = time.monotonic()
    translated("asking the engine for a sign of life", api.ping)
    latency = time.monotonic() - started
    places = [place for place in (data_root, str(SCRATCH)) if place and Path(place).is_dir()]
    space = {place: os.statvfs(place) for place in places}
    return Health(
        processes=len(process_ids()),
        memory_available_bytes=_memory_available(),
        disk_free_bytes={place: found.f_bavail * found.f_frsize for place, found in space.items()},
        inodes_free={place: found.f_favail for place, found in space.items() if found.f_files},
        core_files=_core_files(),
        daemon_latency_s=latency,
        kernel={name: _line(Path("/proc/sys") / name) for name in KERNEL_SETTINGS},
    )


@dataclass(frozen=True)
class Change:
    """Something that got worse. `certain` if no other work on the host explains it."""

    text: str
    certain: bool


def worse(before: Health, after: Health) -> tuple[Change, ...]:
    """What got worse beyond noise. Pure.

    Amounts are the whole host's: a build beside an attack moves them too, so that they are for a person to
    look at, unless little is left.
    """
    losses: list[tuple[float | None, float | None, float, str]] = [
        (
            _in_mib(before.memory_available_bytes),
            _in_mib(after.memory_available_bytes),
            MEMORY_NOISE_BYTES / MIB,
            "MiB less memory available",
        ),
        *(
            (
                _in_mib(free),
                _in_mib(after.disk_free_bytes.get(place)),
                DISK_NOISE_BYTES / MIB,
                f"MiB less of {place}",
            )
            for place, free in before.disk_free_bytes.items()
        ),
        *(
            (free, after.inodes_free.get(place), INODE_NOISE, f"fewer inodes of {place}")
            for place, free in before.inodes_free.items()
        ),
    ]
    found = [
        Change(f"host: {old - new:.0f} {what}", certain=new < old * SCARCE)
        for old, new, noise, what in losses
        if old is not None and new is not None and old - new > noise
    ]
    if before.processes is not None and after.processes is not None:
        more = after.processes - before.processes
        if more > PROCESS_NOISE:
            found.append(Change(f"host: {more} more processes", certain=False))
    if after.daemon_latency_s > DAEMON_LATENCY_S:
        found.append(Change(f"host: the engine took {after.daemon_latency_s:.1f} s to answer", certain=True))
    if after.core_files > before.core_files:
        found.append(Change(f"host: {after.core_files - before.core_files} new core files", certain=True))
    changed = (name for name, value in before.kernel.items() if after.kernel.get(name) != value)
    return (*found, *(Change(f"host: {name} changed", certain=True) for name in changed))


def _in_mib(size_bytes: int | None) -> float | None:
    return None if size_bytes is None else size_bytes / MIB


def process_ids() -> list[int]:
    """Every process that this machine shows."""
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def processes_of(uid: int) -> list[str] | None:
    """Names of a sandbox user's processes but for the agents; None if not even an agent is to be seen.

    Users of workspaces are in a range of their own, so that a user's processes are a workspace's. An agent is
    known by being process 1 of its namespace, which no command can be; a name could be taken. An engine on
    another machine, or in another namespace, shows none.
    """
    seen = False
    names = []
    for process in process_ids():
        try:
            if (Path("/proc") / str(process)).stat().st_uid != uid:
                continue
            status = (Path("/proc") / str(process) / "status").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue  # it ended meanwhile
        fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
        seen = True
        first_of_namespace = fields.get("NSpid", "").split()[1:][-1:] == ["1"]
        if not first_of_namespace and not fields.get("State", "").strip().startswith("Z"):
            names.append(fields.get("Name", "").strip())
    return names if seen else None


def leftovers(api: docker.APIClient, run_id: str, workspace_id: str | None = None) -> tuple[str, ...]:
    """Labelled containers and volumes of a run, or of one of its workspaces, that still exist."""
    wanted = [f"{LABEL_RUN}={run_id}"]
    if workspace_id is not None:
        wanted.append(f"{LABEL_WORKSPACE}={workspace_id}")
    containers: list[dict[str, Any]] = translated(
        "listing containers", lambda: api.containers(all=True, filters={"label": wanted})
    )
    volumes = translated("listing volumes", lambda: api.volumes(filters={"label": wanted}))
    return (
        *(f"container {entry['Id'][:12]}" for entry in containers),
        *(f"volume {entry['Name']}" for entry in volumes.get("Volumes") or ()),
    )


def own_peak_bytes() -> int:
    """The most memory that this process has held so far."""
    for line in Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def _memory_available() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)


def _core_files() -> int:
    """Where the kernel's pattern says cores go; names as the kernel and systemd give them."""
    pattern = _line(Path("/proc/sys/kernel/core_pattern"))
    places = {SCRATCH, SYSTEMD_CORES, Path.cwd()}
    if pattern.startswith("/"):
        places.add(Path(pattern).parent)
    found = 0
    for place in places:
        try:
            found += sum(
                entry.is_file() and (entry.name == "core" or entry.name.startswith("core."))
                for entry in place.iterdir()
            )
        except OSError:
            continue  # not there, or not ours to read
    return found


def _line(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
