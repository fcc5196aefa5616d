"""What is measured: trajectories that think and act, their latencies, and what an idle one costs."""

from __future__ import annotations

import resource
import statistics
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import anyio
import anyio.to_thread
import docker

from sandbox import SandboxError
from sandbox.engine import LABEL_RUN

SETTLE_TIMEOUT_S = 120.0
SETTLE_INTERVAL_S = 0.05

Act = Callable[[], Awaitable[None]]


@dataclass(frozen=True)
class Load:
    """`trajectories` at once, each `actions` times: think, act."""

    trajectories: int
    thinking_s: float
    actions: int


@dataclass(frozen=True)
class Idle:
    """What one idle trajectory holds, in bytes; None where it does not apply."""

    containers: int | None
    client: int | None
    broker: int | None = None


@dataclass(frozen=True)
class Opened:
    """A way that is ready: one callable a trajectory, and how to wait until the engine has caught up."""

    acts: list[Act]
    settle: Act
    idle: Idle | None = None


@dataclass(frozen=True)
class Sample:
    """One way under one load in one round.

    `answered_s` ends with the last answer, `settled_s` when the engine has also removed what is used up and
    started what comes next: only the second can be compared with the engine's own rate, since a queue
    that grows is work that was put off.
    """

    latencies_s: list[float]
    answered_s: float
    settled_s: float
    idle: Idle | None

    @property
    def settled_rate(self) -> float:
        """Actions a second, all that belongs to them done."""
        return len(self.latencies_s) / self.settled_s


async def measure(opened: Opened, load: Load) -> Sample:
    """Put `load` on an open way."""
    latencies: list[float] = []

    async def trajectory(index: int, act: Act) -> None:
        # Models do not answer in step: the first turns are spread over one turn's length.
        await anyio.sleep(load.thinking_s * index / load.trajectories)
        for _ in range(load.actions):
            await anyio.sleep(load.thinking_s)
            started = time.perf_counter()
            await act()
            latencies.append(time.perf_counter() - started)

    await opened.settle()
    started = time.perf_counter()
    async with anyio.create_task_group() as tasks:
        for index, act in enumerate(opened.acts):
            tasks.start_soon(trajectory, index, act)
    answered_s = time.perf_counter() - started
    await opened.settle()
    return Sample(latencies, answered_s, time.perf_counter() - started, opened.idle)


async def settled(api: docker.APIClient, run_id: str, containers: int) -> None:
    """Wait until exactly so many containers of a run exist, and all of them run."""

    def wait() -> None:
        until = time.monotonic() + SETTLE_TIMEOUT_S
        while time.monotonic() < until:
            found = api.containers(all=True, filters={"label": f"{LABEL_RUN}={run_id}"})
            if len(found) == containers and all(each["State"] == "running" for each in found):
                return
            time.sleep(SETTLE_INTERVAL_S)
        raise SandboxError(f"after {SETTLE_TIMEOUT_S:g} s the engine has not caught up")

    await anyio.to_thread.run_sync(wait)


def containers_bytes(api: docker.APIClient, run_id: str) -> int:
    """Memory of a run's containers: what runs inside, and the engine's shim outside. Needs root."""
    found = api.containers(filters={"label": f"{LABEL_RUN}={run_id}"})
    shims = _shims()
    pids = [int(api.inspect_container(each["Id"])["State"]["Pid"]) for each in found]
    pids += [shims[each["Id"]] for each in found if each["Id"] in shims]
    return sum(proportional_bytes(pid) for pid in pids)


def resident_bytes() -> int:
    """Return this process's resident memory."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize()


def _shims() -> dict[str, int]:
    """Process ids of the shims by container."""
    shims: dict[str, int] = {}
    for process in Path("/proc").glob("[0-9]*"):
        # A process may end while we look.
        with suppress(OSError):
            arguments = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
            if "containerd-shim" in arguments[0] and "-id" in arguments:
                shims[arguments[arguments.index("-id") + 1]] = int(process.name)
    return shims


def proportional_bytes(pid: int) -> int:
    """Memory that a process alone costs: pages shared by all shims count in parts."""
    try:
        lines = Path("/proc", str(pid), "smaps_rollup").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def percentile(values: Iterable[float], percent: int) -> float:
    """Return the value that `percent` of `values` do not exceed."""
    ordered = sorted(values)
    if len(ordered) == 1:
        return ordered[0]
    return statistics.quantiles(ordered, n=100, method="inclusive")[percent - 1]
