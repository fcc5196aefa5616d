"""What the scheduler is worth: the same trajectories in lock-step, under simpler rules and under ours.

    python benchmarks/scheduling.py --workload ../shared/bench/workload_520.jsonl
    python benchmarks/scheduling.py --generate 130,520 --seeds 12 --weights 0.7,0.9,1

In virtual time, with engines that follow a law (`runner/simulation/`): scheduler, trajectories and pool are
those of a run. Needs no GPU and no Docker.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from policies import LeastLoaded, Sticky, Weighed, by_turns, clairvoyant
from rich.console import Console
from rich.table import Table

from runner.engines.dispatch import CostModel, Dispatcher
from runner.errors import ExitCode, UserError
from runner.simulation.bounds import longest_alone_s, throughput_s
from runner.simulation.lock_step import LockStep, lock_step
from runner.simulation.run import Setup, simulate
from runner.simulation.workload import Workload

LOCK_STEP = "lock-step"
OURS = "ours"
WAYS = (
    LOCK_STEP,
    "lock-step, tools at once",
    "sticky",
    "sticky, half the slots",
    "least loaded",
    OURS,
    "clairvoyant",
)
_WEIGHT = "ours, weight "


@dataclass(frozen=True)
class Machine:
    """What all ways are given."""

    engines: int
    slots: int
    chunk: int
    in_flight: int | None


@dataclass(frozen=True)
class Case:
    """One or several workloads of a kind; figures are means over them."""

    name: str
    workloads: tuple[Workload, ...]


@dataclass(frozen=True)
class Trial:
    """One way with one workload."""

    way: str
    workload: Workload
    machine: Machine
    prefix_caching: bool


@dataclass(frozen=True)
class Figures:
    """What a trial came to; seconds. `queue_s` is a turn's mean wait for a place in an engine."""

    wall_s: float
    idle_share: float
    mean_batch: float
    queue_s: float
    longest_alone_s: float
    full_batches_s: float

    @property
    def bound_s(self) -> float:
        """No scheduler can be faster."""
        return max(self.longest_alone_s, self.full_batches_s)


@dataclass(frozen=True)
class Row:
    """One way, means over a case's workloads; ratios are taken within a workload.

    Lock-step is always the one without prefix cache: that is how the report was run.
    """

    way: str
    wall_s: float
    of_lock_step: float
    of_bound: float
    of_ours: float
    idle_share: float
    mean_batch: float
    queue_s: float


def run(trial: Trial) -> Figures:
    """Run one way with one workload."""
    workload, machine, law = trial.workload, trial.machine, CostModel()
    caching = trial.prefix_caching
    if trial.way.startswith(LOCK_STEP):
        at_once = trial.way != LOCK_STEP
        chunk = min(machine.chunk, machine.slots)
        stepped = lock_step(workload, LockStep(machine.engines, chunk, at_once, caching, law))
        wall_s, idle, batch, queue_s = stepped.wall_s, stepped.idle_share, stepped.mean_batch, 0.0
    else:
        setup = Setup(machine.engines, machine.slots, machine.in_flight, caching, law)
        done = simulate(workload, _chosen(trial.way, workload, setup))
        wall_s, idle, batch, queue_s = done.wall_s, done.idle_share, done.mean_batch, done.mean_queue_s
    return Figures(
        wall_s=wall_s,
        idle_share=idle,
        mean_batch=batch,
        queue_s=queue_s,
        longest_alone_s=longest_alone_s(workload, law, prefix_caching=caching),
        full_batches_s=throughput_s(
            workload, law, engines=machine.engines, slots=machine.slots, prefix_caching=caching
        ),
    )


def _chosen(way: str, workload: Workload, setup: Setup) -> Setup:
    """Return `setup` with the way's policy."""
    law, caching = setup.law, setup.prefix_caching

    def using(make: Callable[..., Dispatcher]) -> Setup:
        return replace(
            setup, dispatcher=lambda slots, caching: make(slots, prefix_caching=caching, model=law)
        )

    if way.startswith(_WEIGHT):
        return using(partial(Weighed, weigh=by_turns(float(way.removeprefix(_WEIGHT)))))
    if way == "clairvoyant":
        return using(partial(Weighed, weigh=clairvoyant(workload, law, prefix_caching=caching)))
    if way == "sticky, half the slots":
        return replace(using(Sticky), in_flight=max(1, setup.engines * setup.slots // 2))
    rules: dict[str, type[Dispatcher]] = {"sticky": Sticky, "least loaded": LeastLoaded, OURS: Dispatcher}
    return using(rules[way])


def compare(
    case: Case, ways: Sequence[str], machine: Machine, modes: Sequence[bool], processes: ProcessPoolExecutor
) -> dict[bool, list[list[Figures]]]:
    """Run all ways with all workloads of a case; return figures by cache mode, way and workload."""
    modes = sorted({False, *modes})  # the lock-step that all is compared with has no cache
    trials = [
        Trial(way, workload, machine, caching)
        for caching in modes
        for way in ways
        for workload in case.workloads
    ]
    figures = list(processes.map(run, trials))
    count = len(case.workloads)
    rows = [figures[start : start + count] for start in range(0, len(figures), count)]
    return {caching: rows[index * len(ways) :][: len(ways)] for index, caching in enumerate(modes)}


def summarize(ways: Sequence[str], found: list[list[Figures]], lock_stepped: list[Figures]) -> list[Row]:
    """Take the workloads of every way together."""
    by_way = dict(zip(ways, found, strict=True))

    def ratio(all_s: list[float], to_s: list[float]) -> float:
        return fmean(one / other for one, other in zip(all_s, to_s, strict=True))

    rows = []
    for way, figures in by_way.items():
        walls = [one.wall_s for one in figures]
        rows.append(
            Row(
                way=way,
                wall_s=fmean(walls),
                of_lock_step=ratio(walls, [one.wall_s for one in lock_stepped]),
                of_bound=ratio(walls, [one.bound_s for one in figures]),
                of_ours=ratio(walls, [one.wall_s for one in by_way[OURS]]),
                idle_share=fmean(one.idle_share for one in figures),
                mean_batch=fmean(one.mean_batch for one in figures),
                queue_s=fmean(one.queue_s for one in figures),
            )
        )
    return rows


def table(title: str, rows: list[Row], bounds: list[Figures], lock_stepped: list[Figures]) -> Table:
    """Show one case in one cache mode."""
    shown = Table(title=title, title_justify="left")
    shown.add_column("way", no_wrap=True)
    for column in ("wall s", "of lock-step", "of bound", "of ours", "idle", "mean batch", "queue s"):
        shown.add_column(column, justify="right")
    for row in rows:
        shown.add_row(
            row.way,
            f"{row.wall_s:.0f}",
            f"{row.of_lock_step:.3f}",
            f"{row.of_bound:.3f}",
            f"{row.of_ours:.3f}",
            f"{row.idle_share:.3f}",
            f"{row.mean_batch:.1f}",
            f"{row.queue_s:.2f}",
        )

    def share(name: str) -> float:
        pairs = zip(bounds, lock_stepped, strict=True)
        return fmean(getattr(one, name) / other.wall_s for one, other in pairs)

    shown.caption = (
        f"bounds, of lock-step without cache: longest trajectory alone {share('longest_alone_s'):.3f},"
        f" all batches full {share('full_batches_s'):.3f}"
    )
    shown.caption_justify = "left"
    return shown


def cases(asked: argparse.Namespace) -> Iterator[Case]:
    """Yield what was asked for."""
    for path in asked.workload or ():
        yield Case(path.name, (Workload.read(path),))
    for count in asked.generate or ():
        seeds = range(asked.seed, asked.seed + asked.seeds)
        named = f"seed {asked.seed}" if asked.seeds == 1 else f"means over {asked.seeds} seeds"
        yield Case(f"{count} generated, {named}", tuple(Workload.generate(count, each) for each in seeds))


def _arguments() -> argparse.Namespace:
    def listed(kind: Callable[[str], Any]) -> Callable[[str], list[Any]]:
        return lambda text: [kind(part) for part in text.split(",")]

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    given = parser.add_mutually_exclusive_group(required=True)
    given.add_argument("--workload", type=listed(Path), help="files of trajectories, separated by commas")
    given.add_argument("--generate", type=listed(_at_least_one), help="draw so many, e.g. 130,520")
    parser.add_argument("--seed", type=int, default=1, help="the first seed to draw with")
    parser.add_argument("--seeds", type=_at_least_one, default=1, help="how many; figures are means")
    parser.add_argument("--engines", type=_at_least_one, default=8)
    parser.add_argument("--slots", type=_at_least_one, default=64, help="turns at once in an engine")
    parser.add_argument("--chunk", type=_at_least_one, default=16, help="of lock-step; at most the slots")
    parser.add_argument(
        "--in-flight", type=_at_least_one, help="trajectories at once; default: a quarter more than slots"
    )
    parser.add_argument(
        "--prefix-cache", action=argparse.BooleanOptionalAction, default=None, help="default: both"
    )
    parser.add_argument("--weights", type=listed(_weight), default=[], help="try these per turn too")
    parser.add_argument("--ways", type=lambda text: text.split(";"), default=list(WAYS), help="; between")
    parser.add_argument("--jobs", type=_at_least_one, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--json", type=Path, help="write everything here too")
    asked = parser.parse_args()
    unknown = set(asked.ways) - set(WAYS)
    if unknown:
        parser.error(f"no such way: {'; '.join(sorted(unknown))} (there are: {'; '.join(WAYS)})")
    # Both are what the others are compared with.
    asked.ways = [way for way in WAYS if way in asked.ways or way in (LOCK_STEP, OURS)]
    asked.ways += [f"{_WEIGHT}{weight:g}" for weight in asked.weights]
    return asked


def _at_least_one(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is less than 1")
    return value


def _weight(text: str) -> float:
    value = float(text)
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"{value} is not above 0 and at most 1")
    return value


def main() -> int:
    """Simulate, show, and write."""
    asked = _arguments()
    console = Console()
    machine = Machine(asked.engines, asked.slots, asked.chunk, asked.in_flight)
    modes = [False, True] if asked.prefix_cache is None else [asked.prefix_cache]
    document: dict[str, Any] = {"machine": asdict(machine), "law": asdict(CostModel()), "cases": []}
    try:
        with ProcessPoolExecutor(asked.jobs) as processes:
            for case in cases(asked):
                with console.status(case.name):
                    found = compare(case, asked.ways, machine, modes, processes)
                lock_stepped = found[False][0]
                for caching in modes:
                    rows = summarize(asked.ways, found[caching], lock_stepped)
                    cached = "with" if caching else "without"
                    title = f"{case.name}, {cached} prefix cache"
                    console.print(table(title, rows, found[caching][0], lock_stepped))
                    document["cases"].append(
                        {
                            "case": case.name,
                            "prefix_cache": caching,
                            "ways": [asdict(row) for row in rows],
                            "bounds": [asdict(one) for one in found[caching][0]],
                        }
                    )
        if asked.json is not None:
            _write(asked.json, document)
    except UserError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return ExitCode.OK


def _write(path: Path, document: dict[str, Any]) -> None:
    try:
        path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise UserError(
            f"cannot write {path}: {error.strerror or error}", remedy="name another --json"
        ) from error


if __name__ == "__main__":
    sys.exit(main())
