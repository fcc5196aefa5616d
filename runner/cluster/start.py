"""A Ray node of this machine: its command line, and the process that is watched over until it ends."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import anyio
from anyio.abc import ByteReceiveStream, Process
from anyio.streams.text import TextReceiveStream

from runner.clean import clean_text
from runner.cluster.agent import BROKER_VARIABLE
from runner.cluster.nodes import SANDBOX_RESOURCE, NodeFacts
from runner.cluster.token import MODE_VARIABLE, TOKEN_MODE
from runner.engines.vllm.ray_runtime import ADDRESS_VARIABLE
from runner.errors import InfrastructureError

DEFAULT_PORT = 6379
START_TIMEOUT_S = 180.0
START_ATTEMPTS = 3
"""Ray gives its agent 15 s to come up, which a busy machine may need longer for."""
STOP_TIMEOUT_S = 30.0
OBJECT_STORE_BYTES = 128 << 20
KILL_TIMEOUT_S = 5.0
_LINE_CHARS = 500
_TAIL_LINES = 15
_STARTED = "Ray runtime started"
_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # Ray's own 15 would let the commands of sandboxes take the processor from an engine.
    "RAY_worker_niceness": "0",
    # Ray would kill engines where the machine's memory is nearly full, whoever fills it.
    "RAY_memory_monitor_refresh_ms": "0",
}


@dataclass(frozen=True)
class NodeSettings:
    """One Ray node. `address` is this machine's own, by which the other nodes reach it.

    `head` is the head's `HOST:PORT`, None for the head itself. `broker` and `slots` say what sandboxes there
    are; None and 0 where there are none.
    """

    address: str
    head: str | None
    port: int
    facts: NodeFacts
    broker: Path | None
    slots: int
    uses_token: bool
    cpus: int | None = None
    gpus: int | None = None
    temp_dir: Path | None = None


def arguments(settings: NodeSettings, free_port: Callable[[str], int]) -> list[str]:
    """Return the arguments of `ray`. Nothing that answers to the web is started."""
    words = ["start", "--block", "--disable-usage-stats", f"--node-ip-address={settings.address}"]
    if settings.head is None:
        words += [
            "--head",
            f"--port={settings.port}",
            "--include-dashboard=false",
            # An autoscaler's monitor would serve its figures on every address.
            "--no-monitor",
            # Ray's client server cannot be left out; this keeps it off the port that all know.
            f"--ray-client-server-port={free_port(settings.address)}",
        ]
    else:
        words.append(f"--address={settings.head}")
    # Any port: Ray's own range is the same for every node, and two of them may be on one machine.
    words += ["--min-worker-port=0", "--max-worker-port=0", "--include-log-monitor=false"]
    names = ("dashboard-agent-grpc-port", "runtime-env-agent-port", "dashboard-agent-listen-port")
    words += [f"--{name}={free_port(settings.address)}" for name in (*names, "metrics-export-port")]
    words += [f"--object-store-memory={OBJECT_STORE_BYTES}"]
    if settings.cpus is not None:
        words.append(f"--num-cpus={settings.cpus}")
    if settings.gpus is not None:
        words.append(f"--num-gpus={settings.gpus}")
    if settings.temp_dir is not None:
        words.append(f"--temp-dir={settings.temp_dir}")
    if settings.slots:
        words.append(f"--resources={json.dumps({SANDBOX_RESOURCE: settings.slots})}")
    labels = settings.facts.labels()
    if labels:
        words.append("--labels=" + ",".join(f"{name}={value}" for name, value in labels.items()))
    return words


def environment(settings: NodeSettings, values: Mapping[str, str]) -> dict[str, str]:
    """Return what Ray and everything that it starts on this node see."""
    kept = {name: value for name, value in values.items() if name not in {ADDRESS_VARIABLE, BROKER_VARIABLE}}
    kept |= {name: value for name, value in _ENVIRONMENT.items() if name not in kept}
    if settings.uses_token:
        kept[MODE_VARIABLE] = TOKEN_MODE
    if settings.broker is not None:
        kept[BROKER_VARIABLE] = str(settings.broker.absolute())
    return kept


class RayNode:
    """`ray start --block` as a child, in a session of its own with everything that it starts."""

    def __init__(self, settings: NodeSettings) -> None:
        """Nothing is started."""
        self._settings = settings
        self._process: Process | None = None
        self._tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self.started = anyio.Event()
        self.ended = anyio.Event()

    @property
    def tail(self) -> str:
        """What Ray said last."""
        return "\n".join(self._tail)

    async def run(self) -> None:
        """Start it and read what it says until it ends; sets `started` and `ended`."""
        try:
            process = self._process = await anyio.open_process(
                [
                    *(sys.executable, "-m", "runner.cluster.ray_child"),
                    *arguments(self._settings, free_port),
                ],
                env=environment(self._settings, os.environ),
                stdin=subprocess.DEVNULL,
                stderr=subprocess.STDOUT,
                # A terminal's Ctrl-C is for us alone: we end it in order.
                start_new_session=True,
            )
            if process.stdout is not None:
                await self._read(process.stdout)
            await process.wait()
        finally:
            self.ended.set()

    async def _read(self, stream: ByteReceiveStream) -> None:
        rest = ""
        async for chunk in TextReceiveStream(stream, errors="replace"):
            *lines, rest = (rest + chunk).split("\n")
            rest = rest[-_LINE_CHARS:]
            for line in lines:
                if line.strip():
                    self._tail.append(clean_text(line, keep_lines=False, limit_chars=_LINE_CHARS))
                if _STARTED in line:
                    self.started.set()

    async def stop(self) -> None:
        """End it and everything that it started; bounded."""
        process = self._process
        if process is None:
            return
        if process.returncode is None:
            process.terminate()
        with anyio.move_on_after(STOP_TIMEOUT_S, shield=True):
            await process.wait()
        # What is left of its session: Ray's own end has been seen to miss some of it.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        with anyio.move_on_after(KILL_TIMEOUT_S, shield=True):
            await process.wait()


@asynccontextmanager
async def ray_node(settings: NodeSettings) -> AsyncIterator[RayNode]:
    """Have a Ray node that is part of its cluster inside, and nothing of it left behind.

    Raises `InfrastructureError` with what Ray said where it does not start.
    """
    tail = ""
    for _ in range(START_ATTEMPTS):
        node = RayNode(settings)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(node.run)
            try:
                if await _has_started(node):
                    yield node
                    return
            finally:
                with anyio.CancelScope(shield=True):
                    await node.stop()
                tasks.cancel_scope.cancel()
        tail = node.tail
    raise InfrastructureError(
        f"Ray did not start, in {START_ATTEMPTS} tries; it said last:\n{tail}",
        remedy="see its logs, below /tmp/ray/session_latest/logs unless --temp-dir names another place",
    )


async def _has_started(node: RayNode) -> bool:
    with anyio.move_on_after(START_TIMEOUT_S):
        async with anyio.create_task_group() as tasks:
            for event in (node.started, node.ended):
                tasks.start_soon(_cancel_at, event, tasks.cancel_scope)
    return node.started.is_set() and not node.ended.is_set()


async def _cancel_at(event: anyio.Event, scope: anyio.CancelScope) -> None:
    await event.wait()
    scope.cancel()


def free_port(address: str) -> int:
    """Return a port that is free on this address now."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as probe:
        probe.bind((address, 0))
        port: int = probe.getsockname()[1]
    return port
