"""Why process 1 of a container is a small C program: what the same wait costs as Python.

    python benchmarks/agents.py

Starts containers of the sandbox's image with either one, in turn, and waits for the first byte. Needs root.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, replace
from pathlib import Path

import anyio
import ways
from measure import proportional_bytes
from rich.console import Console
from rich.table import Table

from sandbox.engine import ContainerSpec, Engine, remove_container
from sandbox.preflight import connect

ROUNDS = 20
# What an agent in Python needs at least: its modules, a hello, and a wait for the request.
PYTHON = (
    "import os, select, signal, struct; os.write(1, b'hello');"
    "select.select([0], [], []); os.read(0, 1)"
)  # fmt: skip


@dataclass(frozen=True)
class Start:
    """One start: to the first byte as the client sees it, and the process's own part of it."""

    ready_s: float
    cpu_s: float
    memory_bytes: int


async def start(engine: Engine, spec: ContainerSpec) -> Start:
    """Start a container, look at its process 1, and remove it."""
    began = time.perf_counter()
    container_id, stream = await engine.launch(spec)
    try:
        await stream.receive()
        ready_s = time.perf_counter() - began
        return await engine.call("looking at a process", lambda: _look(engine, container_id, ready_s))
    finally:
        stream.close()
        await engine.call("removing a container", lambda: remove_container(engine.api, container_id))


def _look(engine: Engine, container_id: str, ready_s: float) -> Start:
    pid = int(engine.api.inspect_container(container_id)["State"]["Pid"])
    on_cpu_ns = int(Path("/proc", str(pid), "schedstat").read_text(encoding="ascii").split()[0])
    return Start(ready_s, on_cpu_ns / 1e9, proportional_bytes(pid))


async def compare() -> Table:
    """Take turns; medians."""
    api = connect()
    starts: dict[str, list[Start]] = {"C, static": [], "Python": []}
    async with ways.places(api, 1) as (place,):
        engine = Engine(api, concurrent_starts=1)
        labels = {ways.LABEL: place.run_id}
        own = replace(place.action, config=place.action.config | {"labels": labels})
        command = {"entrypoint": ["/usr/local/bin/python3"], "command": ["-I", "-S", "-c", PYTHON]}
        specs = {"C, static": own, "Python": replace(own, config=own.config | command)}
        for _ in range(ROUNDS):
            for name, spec in specs.items():
                starts[name].append(await start(engine, spec))
    api.close()
    shown = Table(title=f"process 1 of a container, medians of {ROUNDS} starts", title_justify="left")
    for column in ("agent", "create to hello ms", "its own CPU ms", "its memory MB"):
        shown.add_column(column, justify="left" if column == "agent" else "right")
    for name, rounds in starts.items():
        shown.add_row(
            name,
            f"{statistics.median(each.ready_s for each in rounds) * 1000:.1f}",
            f"{statistics.median(each.cpu_s for each in rounds) * 1000:.2f}",
            f"{statistics.median(each.memory_bytes for each in rounds) / 1e6:.2f}",
        )
    return shown


def main() -> None:
    """Measure and show."""
    Console().print(anyio.run(compare))


if __name__ == "__main__":
    main()
