"""Latency and throughput of actions: ours, what else one could do, and what the engine can do at most.

    python benchmarks/actions.py --trajectories 1,4,16 --thinking 0,3 --rounds 3

Ways are measured one after another in rounds, so that a machine that gets busy is busy for all of them.
Needs root (memory of the engine's processes), a Docker engine, and the image recount-sandbox:latest.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import anyio
import side_by_side
import ways
from measure import Idle, Load, Sample, measure, percentile
from rich.console import Console
from rich.table import Table

from sandbox.preflight import connect

NAMES = ("host", "run", "exec", "inprocess", "broker", "ceiling")
# Rates need the queues to fill; latencies behind 3 s of thinking need patience.
ACTIONS_WITHOUT_THINKING = 20
ACTIONS_WITH_THINKING = 5
LEAST_ACTIONS = 10


@dataclass(frozen=True)
class Result:
    """One way under one load, its rounds taken together; rates are medians of rounds."""

    way: str
    load: Load
    rounds: int
    p50_s: float
    p90_s: float
    max_s: float
    answered_rate: float
    settled_rate: float
    of_ceiling: float | None
    above_host_s: float | None
    idle: Idle | None


def loads(asked: argparse.Namespace) -> Iterator[Load]:
    """Yield every combination that was asked for."""
    for thinking_s in asked.thinking:
        for trajectories in asked.trajectories:
            actions = ACTIONS_WITH_THINKING if thinking_s else ACTIONS_WITHOUT_THINKING
            yield Load(trajectories, thinking_s, asked.actions or max(actions, LEAST_ACTIONS // trajectories))


def summarize(load: Load, samples: dict[str, list[Sample]]) -> list[Result]:
    """Take the rounds of every way together; ratios are taken within a round."""
    results: list[Result] = []
    host = samples.get("host")
    for way, rounds in samples.items():
        latencies = [latency for sample in rounds for latency in sample.latencies_s]
        ceiling = samples.get("ceiling")
        results.append(
            Result(
                way=way,
                load=load,
                rounds=len(rounds),
                p50_s=percentile(latencies, 50),
                p90_s=percentile(latencies, 90),
                max_s=max(latencies),
                answered_rate=median(len(each.latencies_s) / each.answered_s for each in rounds),
                settled_rate=median(each.settled_rate for each in rounds),
                of_ceiling=None
                if ceiling is None
                else median(
                    ours.settled_rate / its.settled_rate for ours, its in zip(rounds, ceiling, strict=True)
                ),
                above_host_s=None
                if host is None
                else median(
                    percentile(ours.latencies_s, 50) - percentile(its.latencies_s, 50)
                    for ours, its in zip(rounds, host, strict=True)
                ),
                idle=rounds[-1].idle,
            )
        )
    return results


def table(load: Load, results: list[Result]) -> Table:
    """Show one load."""
    shown = Table(
        title=f"{load.trajectories} trajectories x {load.actions} actions, {load.thinking_s:g} s of thinking",
        title_justify="left",
    )
    shown.add_column("way")
    for column in ("p50 ms", "p90 ms", "max ms", "over host ms", "actions/s", "settled/s", "of ceiling"):
        shown.add_column(column, justify="right")
    for each in results:
        # With thinking, the rate is the models'.
        ratio = each.of_ceiling if load.thinking_s == 0 and each.way not in ("host", "exec") else None
        shown.add_row(
            each.way,
            *(f"{value * 1000:.1f}" for value in (each.p50_s, each.p90_s, each.max_s)),
            "" if each.above_host_s is None else f"{each.above_host_s * 1000:+.1f}",
            f"{each.answered_rate:.1f}",
            f"{each.settled_rate:.1f}",
            "" if ratio is None else f"{ratio:.2f}",
        )
    idle = [f"{each.way}: {_idle(each.idle)}" for each in results if each.idle is not None]
    shown.caption = "\n".join(("memory of an idle trajectory", *idle)) if idle else None
    shown.caption_justify = "left"
    return shown


def _idle(idle: Idle) -> str:
    parts = (("its two containers", idle.containers), ("client", idle.client), ("broker", idle.broker))
    return ", ".join(f"{name} {value / 1e6:.2f} MB" for name, value in parts if value is not None)


async def compare(asked: argparse.Namespace, console: Console) -> dict[str, Any]:
    """Measure everything that was asked for, and return it for JSON."""
    document: dict[str, Any] = {"results": [], "inspect": []}
    async with AsyncExitStack() as stack:
        api = connect()
        stack.callback(api.close)
        document["machine"] = _machine(api.version())
        known: dict[str, ways.Way] = {
            "host": ways.host,
            "run": partial(ways.run, api),
            "exec": partial(ways.execute, api),
            "inprocess": partial(ways.inprocess, api),
            "ceiling": partial(ways.ceiling, api),
        }
        socket_path: Path | None = None
        if {"broker", "inspect"} & set(asked.ways):
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            socket_path = await stack.enter_async_context(ways.broker_process(directory))
            known["broker"] = partial(ways.brokered, api, socket_path)
        chosen = {name: known[name] for name in asked.ways if name in known}
        for load in loads(asked) if chosen else ():
            results = summarize(load, await _rounds(chosen, load, asked.rounds, console))
            document["results"] += [asdict(each) for each in results]
            console.print(table(load, results))
        if "inspect" in asked.ways and socket_path is not None:
            sides = [
                side
                for thinking_s in asked.inspect_thinking
                for side in await side_by_side.compare(
                    asked.inspect_python, socket_path, asked.inspect_rounds, thinking_s
                )
            ]
            document["inspect"] = [asdict(each) for each in sides]
            console.print(side_by_side.table(sides))
    return document


async def _rounds(
    chosen: dict[str, ways.Way], load: Load, rounds: int, console: Console
) -> dict[str, list[Sample]]:
    # The engine's own rate is its rate whether models think or not, and is wanted where they do not.
    names = [name for name in chosen if load.thinking_s == 0 or name != "ceiling"]
    samples: dict[str, list[Sample]] = {name: [] for name in names}
    for index in range(rounds):
        for name in names[index % len(names) :] + names[: index % len(names)]:
            with console.status(f"{load.trajectories} trajectories, round {index + 1} of {rounds}: {name}"):
                async with chosen[name](load.trajectories) as opened:
                    samples[name].append(await measure(opened, load))
    return samples


def _machine(version: dict[str, Any]) -> dict[str, str]:
    return {
        "cores": str(os.cpu_count()),
        "kernel": platform.release(),
        "engine": str(version.get("Version")),
        "python": platform.python_version(),
    }


def _arguments() -> argparse.Namespace:
    def listed(kind: type) -> Any:  # noqa: ANN401 - what argparse takes
        return lambda text: [kind(part) for part in text.split(",")]

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--trajectories", type=listed(int), default=[1, 4, 16], help="at once, e.g. 1,4,16,64"
    )
    parser.add_argument("--thinking", type=listed(float), default=[0.0, 3.0], help="seconds, e.g. 0,3")
    parser.add_argument(
        "--actions", type=int, help="of a trajectory in a round; fewer where others load the host"
    )
    parser.add_argument("--rounds", type=int, default=3, help="of every way under every load")
    parser.add_argument(
        "--ways", type=listed(str), default=list(NAMES), help=f"of {', '.join(NAMES)}, inspect"
    )
    parser.add_argument("--inspect-python", default="", help="interpreter of an environment with inspect-ai")
    parser.add_argument("--inspect-rounds", type=int, default=2, help="of each side")
    parser.add_argument(
        "--inspect-thinking", type=listed(float), default=[0.0, 1.5], help="seconds, e.g. 0,1.5"
    )
    parser.add_argument("--json", type=Path, help="write everything here too")
    asked = parser.parse_args()
    unknown = set(asked.ways) - {*NAMES, "inspect"}
    if unknown:
        parser.error(f"no such way: {', '.join(sorted(unknown))}")
    if "inspect" in asked.ways and not asked.inspect_python:
        parser.error("the way `inspect` needs --inspect-python, an interpreter that can import inspect_ai")
    return asked


def main() -> None:
    """Measure, show, and write."""
    asked = _arguments()
    document = anyio.run(compare, asked, Console())
    if asked.json is not None:
        asked.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
