"""What one driver costs for clusters of 10 to 1,000 nodes, and what breaks first.

    python benchmarks/cluster.py                          # minutes
    RAY_ADDRESS=HOST:6379 python benchmarks/cluster.py    # and what a turn costs through that cluster's Ray

Two things are put together. What a node asks of the driver is simulated: the run's own scheduler and pool in
virtual time, over engines that follow the law of `CostModel`. What that costs is measured: scheduler, pool
with as many engines as the cluster has, journal with its fsyncs, and reducer at full speed, with texts of a
realistic length and nothing behind them.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from unittest import mock

import anyio
from driver import Load, measure
from measure import resident_bytes
from rich.console import Console
from rich.table import Table

from runner.engine_log import SAMPLE_INTERVAL_AN_ENGINE_S, SAMPLE_INTERVAL_S, sample_event
from runner.engines.base import GenerationRequest, Prompt, Sampling, TrajectoryKey
from runner.engines.reports import PoolSnapshot, ReplicaSnapshot, ReplicaState, ReplicaStats
from runner.engines.scripted import Script, ScriptedEngine
from runner.engines.scripted_cluster import ScriptedClusterEngine
from runner.engines.vllm.here import is_on_cluster
from runner.journal import JournalWriter
from runner.simulation.run import Setup, simulate
from runner.simulation.workload import Workload

ENGINES_A_NODE = 16
"""Eight GPUs of 80 GB with two engines each, as a profile is fitted to them."""
SIMULATED_ENGINES = 4
"""Of a node; what they ask for is proportional to their number."""
ROUNDS = 3
"""Trajectories an engine's place sees in the simulation: most of the time it is full, as in a long run."""
SLOTS = 64
HOUR_S = 3600.0
RAY_TURNS, RAY_AT_ONCE = 2000, 64


@dataclass(frozen=True)
class NodeLoad:
    """What one node with full batches asks of the driver and of its own Docker daemon, a second."""

    turns_per_s: float
    actions_per_s: float
    trajectories_per_s: float
    turns_a_trajectory: float
    in_flight: int


@dataclass(frozen=True)
class DriverCost:
    """What the driver does for it, measured with the engines of so many nodes."""

    nodes: int
    engines: int
    turns: int
    start_cpu_s: float
    cpu_a_turn_s: float
    journal_bytes_a_trajectory: float
    fsyncs_a_trajectory: float
    fsync_s: float
    bytes_in_flight: float
    sample_bytes: int
    sample_cpu_s: float

    @property
    def sample_interval_s(self) -> float:
        """How far apart samples of so many engines are."""
        return max(SAMPLE_INTERVAL_S, self.engines * SAMPLE_INTERVAL_AN_ENGINE_S)


def node_load() -> NodeLoad:
    """Simulate some engines of a node with full batches."""
    places = SIMULATED_ENGINES * SLOTS
    run = simulate(Workload.generate(ROUNDS * places, seed=1), Setup(engines=SIMULATED_ENGINES, slots=SLOTS))
    # In full batches: the tail, in which they empty, is no part of a long run.
    scale = ENGINES_A_NODE / SIMULATED_ENGINES
    full_s = sum(one.batch_s for one in run.engines) / (SIMULATED_ENGINES * SLOTS)
    turns, ended = len(run.turns), len(run.ended)
    return NodeLoad(
        turns_per_s=turns / full_s * scale,
        actions_per_s=(turns - ended) / full_s * scale,
        trajectories_per_s=ended / full_s * scale,
        turns_a_trajectory=turns / ended,
        in_flight=ENGINES_A_NODE * SLOTS * 5 // 4,
    )


@contextmanager
def counted_fsyncs() -> Iterator[list[float]]:
    """Note how long each fsync takes."""
    took_s: list[float] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        began_s = time.perf_counter()
        real(descriptor)
        took_s.append(time.perf_counter() - began_s)

    with mock.patch.object(os, "fsync", fsync):
        yield took_s


async def driver_cost(nodes: int, trajectories: int, directory: Path) -> DriverCost:
    """Run so many trajectories through a pool of all the nodes' engines, as fast as it goes."""
    engines = nodes * ENGINES_A_NODE
    # What the engines cost before the first turn is told apart: it is paid once.
    empty = await measure(Load(1, 6, 6, 0.0, "pool", engines, SLOTS), directory / "empty")
    before_bytes = resident_bytes()
    with counted_fsyncs() as fsyncs:
        cost = await measure(Load(trajectories, 6, 10, 0.0, "pool", engines, SLOTS), directory / "full")
    sample_bytes, sample_cpu_s = sample_cost(engines, directory)
    return DriverCost(
        nodes=nodes,
        engines=engines,
        turns=cost.turns,
        start_cpu_s=empty.cpu_s,
        cpu_a_turn_s=max(0.0, cost.cpu_s - empty.cpu_s) / (cost.turns - empty.turns),
        journal_bytes_a_trajectory=cost.journal_bytes / trajectories,
        fsyncs_a_trajectory=len(fsyncs) / trajectories,
        fsync_s=sum(fsyncs) / len(fsyncs),
        bytes_in_flight=max(0, cost.peak_bytes - before_bytes - cost.script_bytes) / trajectories,
        sample_bytes=sample_bytes,
        sample_cpu_s=sample_cpu_s,
    )


def sample_cost(engines: int, directory: Path) -> tuple[int, float]:
    """Return the bytes of one sample of so many engines in a journal, and the CPU time of writing it."""
    stats = ReplicaStats(60, 3, 123_456_789, 23_456_789, 12, 0.84, None, None, 0.97, 71 << 30, 80 << 30)
    replicas = tuple(
        ReplicaSnapshot(
            *(f"engine{index}", ReplicaState.SERVING, 63, 12_345, 123_456_789, 23_456_789),
            *(12_345.678, 12_345.678, 777_777.777, 1, stats, f"10.0.{index >> 8}.{index & 255}"),
        )
        for index in range(engines)
    )
    path = directory / f"samples-{engines}.jsonl"
    with JournalWriter(path) as journal:
        began_s = time.process_time()
        journal.append(sample_event(PoolSnapshot(0, replicas)))
        cpu_s = time.process_time() - began_s
    return path.stat().st_size, cpu_s


async def ray_cost() -> float:
    """Return the driver's CPU time of a turn through a cluster's Ray, scheduler and journal not included."""
    keys = [TrajectoryKey("set", f"p{index}", 0) for index in range(RAY_TURNS)]
    scripted = ScriptedEngine(
        Script(dict.fromkeys(keys, ("x" * 2800,))), context_tokens=1 << 20, latency_s=1.0
    )
    slots = anyio.Semaphore(RAY_AT_ONCE)
    sampling = Sampling(1.0, 1.0, 40, 0.0, 0.0, 1.0)

    async def one(engine: ScriptedClusterEngine, key: TrajectoryKey) -> None:
        async with slots:
            await engine.generate(GenerationRequest(key, 1, 0, Prompt((), 5000), sampling, 0, 4096, ()))

    async with ScriptedClusterEngine(scripted) as engine:
        began_s = time.process_time()
        async with anyio.create_task_group() as tasks:
            for key in keys:
                tasks.start_soon(one, engine, key)
        return (time.process_time() - began_s) / RAY_TURNS


def scale_table(node: NodeLoad, costs: list[DriverCost], ray_s: float | None) -> Table:
    """Show what a full cluster of each size asks of one driver."""
    shown = Table(
        title=f"{ENGINES_A_NODE} engines x {SLOTS} places a node, all full: {node.turns_per_s:.1f} turns and"
        f" {node.actions_per_s:.1f} actions a second a node",
        title_justify="left",
    )
    for column in (
        "nodes",
        "engines",
        "start CPU s",
        "CPU ms/turn",
        "cores",
        "events/s",
        "fsyncs/s",
        "of a second",
    ):
        shown.add_column(column, justify="right")
    for column in ("journal GB/h", "samples GB/h", "in flight", "GiB", "actions/s a node"):
        shown.add_column(column, justify="right")
    for one in costs:
        turns_per_s = node.turns_per_s * one.nodes
        ended_per_s = node.trajectories_per_s * one.nodes
        cpu_s = one.cpu_a_turn_s + (ray_s or 0.0)
        fsyncs_per_s = ended_per_s * one.fsyncs_a_trajectory
        in_flight = node.in_flight * one.nodes
        shown.add_row(
            *(f"{one.nodes:,}", f"{one.engines:,}", f"{one.start_cpu_s:.1f}", f"{cpu_s * 1000:.2f}"),
            f"{turns_per_s * cpu_s + one.sample_cpu_s / one.sample_interval_s:.1f}",
            f"{turns_per_s + 2 * ended_per_s:,.0f}",
            f"{fsyncs_per_s:,.1f}",
            f"{fsyncs_per_s * one.fsync_s:.2f}",
            f"{ended_per_s * one.journal_bytes_a_trajectory * HOUR_S / 1e9:.1f}",
            f"{one.sample_bytes * HOUR_S / one.sample_interval_s / 1e9:.3f}",
            f"{in_flight:,}",
            f"{in_flight * costs[0].bytes_in_flight / 2**30:.1f}",
            f"{node.actions_per_s:.1f}",
        )
    return shown


def limits(node: NodeLoad, costs: list[DriverCost], ray_s: float | None) -> list[str]:
    """Say up to how many full nodes one driver goes, by what it runs out of first."""
    found = []
    for one in costs:
        cpu_s = one.cpu_a_turn_s + (ray_s or 0.0)
        nodes = 1 / (node.turns_per_s * cpu_s)
        found.append(
            f"at the cost of {one.nodes:,} nodes' engines one core does {1 / cpu_s:,.0f} turns a second:"
            f" {nodes:.1f} full nodes"
        )
    disk = costs[0]
    per_s = node.trajectories_per_s * disk.fsyncs_a_trajectory
    found.append(
        f"one fsync takes {disk.fsync_s * 1000:.1f} ms here: {1 / disk.fsync_s:,.0f} a second,"
        f" {1 / (disk.fsync_s * per_s):,.0f} full nodes"
    )
    return found


def main() -> int:
    """Simulate, measure, show, and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nodes", default="1,10,100,1000", help="sizes of the cluster")
    parser.add_argument("--trajectories", type=int, default=400, help="that the cost is measured with")
    parser.add_argument("--dir", type=Path, help="where journals are written for the while")
    parser.add_argument("--json", type=Path, help="write everything here too")
    asked = parser.parse_args()
    sizes = [int(one) for one in asked.nodes.split(",")]
    console = Console(width=max(140, Console().width))
    costs = []  # first, while this process has held nothing else
    for size in sizes:
        with tempfile.TemporaryDirectory(dir=asked.dir) as directory:
            for one in ("empty", "full"):
                Path(directory, one).mkdir()
            costs.append(anyio.run(driver_cost, size, asked.trajectories, Path(directory)))
    node = node_load()
    ray_s = anyio.run(ray_cost) if is_on_cluster() else None
    console.print(scale_table(node, costs, ray_s))
    if ray_s is not None:
        console.print(f"{ray_s * 1000:.2f} ms of each turn are Ray's, measured on this cluster")
    for line in limits(node, costs, ray_s):
        console.print(line)
    if asked.json is not None:
        document = {"node": asdict(node), "costs": [asdict(one) for one in costs], "ray_s": ray_s}
        asked.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
