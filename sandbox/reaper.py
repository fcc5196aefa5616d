"""Removes what runs left behind, by label; nothing that is not labelled is ever touched.

A client that dies takes its containers' stdin with it, so its containers end by themselves and lie there
exited. Of other runs only such dead ones go, and what never started or is unused for a while: a live run's
things are not ours to judge. Of the own run everything goes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from typing import Any

import anyio.to_thread
import docker

from sandbox.engine import LABEL_RUN, remove_container, remove_volume, translated
from sandbox.errors import SandboxError
from sandbox.preflight import connect

# A live run has a container in `created`, and a volume without a container, for a moment only.
YOUNG_S = 600.0
DEAD = frozenset(("exited", "dead"))


@dataclass(frozen=True)
class SweepReport:
    """What was removed, and what could not be, with the reason."""

    containers: int
    volumes: int
    failures: tuple[str, ...]


async def sweep(run_id: str | None = None, *, base_url: str | None = None) -> SweepReport:
    """Connect and sweep; `run_id` names the run whose things all go."""

    def connect_and_sweep() -> SweepReport:
        api = connect(base_url)
        try:
            return sweep_engine(api, run_id)
        finally:
            api.close()

    return await anyio.to_thread.run_sync(connect_and_sweep)


def sweep_engine(
    api: docker.APIClient, run_id: str | None, *, others: bool = True, spare: Collection[str] = ()
) -> SweepReport:
    """One pass: containers, then volumes that nothing uses any more. Blocking.

    Without `others` only what is of `run_id`. Nothing of the runs in `spare`, which are known to live: they
    may be about to look at what is dead of theirs.
    """
    now = datetime.now(timezone.utc)
    label = LABEL_RUN if others or run_id is None else f"{LABEL_RUN}={run_id}"
    failures: list[str] = []
    containers = translated("listing containers", lambda: api.containers(all=True, filters={"label": label}))
    removed_containers = [
        _try(failures, f"container {entry['Id']}", partial(remove_container, api, entry["Id"]))
        for entry in containers
        if _run_of(entry) not in spare and container_goes(entry, run_id, now)
    ]
    volumes = translated("listing volumes", lambda: api.volumes(filters={"label": label, "dangling": True}))
    removed_volumes = [
        _try(failures, f"volume {entry['Name']}", partial(remove_volume, api, entry["Name"]))
        for entry in volumes.get("Volumes") or ()
        if _run_of(entry) not in spare and volume_goes(entry, run_id, now)
    ]
    return SweepReport(sum(removed_containers), sum(removed_volumes), tuple(failures))


def container_goes(entry: dict[str, Any], run_id: str | None, now: datetime) -> bool:
    """Whether a listed container is to be removed."""
    run = _run_of(entry)
    if run is None:
        return False
    if run == run_id or entry["State"] in DEAD:
        return True
    return bool(entry["State"] == "created" and now.timestamp() - entry["Created"] > YOUNG_S)


def volume_goes(entry: dict[str, Any], run_id: str | None, now: datetime) -> bool:
    """Whether a listed volume that nothing uses is to be removed."""
    run = _run_of(entry)
    if run is None:
        return False
    created = engine_time(entry.get("CreatedAt"))
    return run == run_id or (created is not None and (now - created).total_seconds() > YOUNG_S)


def _run_of(entry: dict[str, Any]) -> str | None:
    return (entry.get("Labels") or {}).get(LABEL_RUN)


def engine_time(text: str | None) -> datetime | None:
    """The engine's RFC 3339 times, with nanoseconds and Z as Python 3.10 does not read them."""
    match = re.fullmatch(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.\d+)?(Z|[+-]\d\d:\d\d)", text or "")
    if match is None:
        return None
    return datetime.fromisoformat(match[1] + ("+00:00" if match[2] == "Z" else match[2]))


def _try(failures: list[str], name: str, remove: Callable[[], None]) -> bool:
    try:
        translated(f"removing {name}", remove)
    except SandboxError as error:
        failures.append(f"{name}: {error}")
        return False
    return True
