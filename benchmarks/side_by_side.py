"""Ours against Inspect AI's docker sandbox: the same commands, as many at once, taking turns."""

from __future__ import annotations

import json
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import anyio
import ways
from measure import percentile
from rich.table import Table

from sandbox.client import BrokerSandbox

TRAJECTORIES = 32
ACTIONS = 5
AT_ONCE = 16
TIMEOUT_S = 300.0


@dataclass(frozen=True)
class Side:
    """One evaluation of one side: all trajectories, from the first preparation to the last clean-up."""

    name: str
    thinking_s: float
    wall_s: float
    p50_s: float
    p90_s: float
    mean_s: float


async def compare(interpreter: str, socket_path: Path, rounds: int, thinking_s: float) -> list[Side]:
    """Alternate, `rounds` times each; a trajectory waits `thinking_s` before every action."""
    sides: list[Side] = []
    for _ in range(rounds):
        sides += [await _theirs(interpreter, thinking_s), await _ours(socket_path, thinking_s)]
    return sides


async def _ours(socket_path: Path, thinking_s: float) -> Side:
    latencies: list[float] = []
    permits = anyio.Semaphore(AT_ONCE)
    started = time.perf_counter()
    async with BrokerSandbox(socket_path, f"side-by-side-{time.time_ns()}") as sandbox:

        async def trajectory(index: int) -> None:
            async with permits:
                workspace = await sandbox.open(str(index))
                for _ in range(ACTIONS):
                    await anyio.sleep(thinking_s)
                    sent_at = time.perf_counter()
                    await ways.act(workspace)
                    latencies.append(time.perf_counter() - sent_at)
                await workspace.close()

        async with anyio.create_task_group() as tasks:
            for index in range(TRAJECTORIES):
                tasks.start_soon(trajectory, index)
    return _side("broker", thinking_s, time.perf_counter() - started, latencies)


async def _theirs(interpreter: str, thinking_s: float) -> Side:
    script = Path(__file__).with_name("inspect_side.py")
    load = ("--trajectories", TRAJECTORIES, "--actions", ACTIONS, "--at-once", AT_ONCE)
    numbers = (*load, "--thinking", thinking_s)
    with anyio.fail_after(TIMEOUT_S):
        done = await anyio.run_process([interpreter, str(script), *map(str, numbers)], stderr=subprocess.PIPE)
    said = json.loads(done.stdout.splitlines()[-1])
    return _side(f"inspect-ai {said['version']}", thinking_s, said["wall_s"], said["latencies_s"])


def _side(name: str, thinking_s: float, wall_s: float, latencies_s: list[float]) -> Side:
    return Side(
        name=name,
        thinking_s=thinking_s,
        wall_s=wall_s,
        p50_s=percentile(latencies_s, 50),
        p90_s=percentile(latencies_s, 90),
        mean_s=sum(latencies_s) / len(latencies_s),
    )


def table(sides: list[Side]) -> Table:
    """Show the evaluations in the order in which they ran."""
    shown = Table(
        title=f"{TRAJECTORIES} trajectories x {ACTIONS} actions, {AT_ONCE} at once", title_justify="left"
    )
    shown.add_column("sandbox")
    for column in ("thinking s", "wall s", "p50 ms", "p90 ms", "mean ms"):
        shown.add_column(column, justify="right")
    for side in sides:
        values = (side.p50_s, side.p90_s, side.mean_s)
        times = (f"{side.thinking_s:g}", f"{side.wall_s:.1f}")
        shown.add_row(side.name, *times, *(f"{value * 1000:.1f}" for value in values))
    return shown
