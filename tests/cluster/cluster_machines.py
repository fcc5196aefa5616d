"""Machines of a cluster, on this one: each has an address, a broker and a `recount node` of its own."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import docker
from support.broker import ROOT, BrokerProcess

from sandbox import Policy
from sandbox.engine import LABEL_RUN

MIB = 1 << 20
POLICY = Policy(memory_bytes=192 * MIB, pids=64, workspace_bytes=16 * MIB, workspace_inodes=1000)
UP_TIMEOUT_S = 240.0
DOWN_TIMEOUT_S = 100.0
GONE_TIMEOUT_S = 90.0
"""A broker sweeps every half minute."""
NETWORK = f"127.{40 + secrets.randbelow(200)}.0."


def wait_until(holds: Callable[[], bool], limit_s: float, what: str) -> None:
    deadline = time.monotonic() + limit_s
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} within {limit_s:g} s")
        time.sleep(0.1)


def processes_below(root: int) -> dict[int, str]:
    """Return pids of all processes below one, and it, with what they call themselves."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                text = (entry / "stat").read_text(errors="replace")
            except OSError:
                continue
            state, parent = text[text.rindex(")") + 2 :].split()[:2]
            if state != "Z":
                parents[int(entry.name)] = int(parent)
    found = {root} & set(parents)
    grown = True
    while grown:
        more = {pid for pid, parent in parents.items() if parent in found} - found
        grown = bool(more)
        found |= more
    return {pid: command_of(pid) for pid in found}


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


class Machine:
    """One machine. `head` is the head's address and port, None for the head."""

    def __init__(self, cluster: Cluster, number: int, *, slots: int, policy: Policy = POLICY) -> None:
        self.address = f"{NETWORK}{number}"
        self.directory = cluster.directory / f"m{number}"
        self.directory.mkdir()
        self.log = self.directory / "node.log"
        self.slots = slots
        self._cluster = cluster
        self.is_head = number == 1
        self.broker = BrokerProcess(self.directory, policy)
        self.node: subprocess.Popen[bytes] | None = None

    def begin(self, **environment: str) -> None:
        """Start broker and node, without waiting for the node."""
        if self.slots:
            self.broker.start()
        words = ["--node-address", self.address, "--cpus", "1", "--gpus", "0"]
        words += ["--temp-dir", str(self.directory / "r")]
        words += ["--head", "--port", str(self._cluster.port)] if self.is_head else []
        words += [] if self.is_head else ["--ray-address", self._cluster.head]
        if self.slots:
            words += ["--broker", str(self.broker.socket), "--slots", str(self.slots)]
        with self.log.open("wb") as log:
            self.node = subprocess.Popen(
                [sys.executable, "-m", "runner", "node", *words],
                cwd=ROOT,
                env=self._cluster.environment | environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait_up(self) -> None:
        """Wait until the node is part of the cluster."""
        node = self.started

        def is_up() -> bool:
            if node.poll() is not None:
                raise RuntimeError(f"the node ended with {node.returncode}: {self.said}")
            return "is up" in self.said or "joined" in self.said

        wait_until(is_up, UP_TIMEOUT_S, f"no node: {self.said}")

    @property
    def started(self) -> subprocess.Popen[bytes]:
        if self.node is None:
            raise RuntimeError("it was not started")
        return self.node

    @property
    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def kill(self) -> None:
        """Everything of it at once, as when the power fails."""
        for pid in processes_below(self.started.pid):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.started.wait(10)
        self.broker.kill()

    def leave(self) -> int:
        """SIGTERM; the node's exit code."""
        self.started.send_signal(signal.SIGTERM)
        return self.started.wait(DOWN_TIMEOUT_S)

    def actions(self) -> int:
        """Commands that its broker has run."""
        with socket.socket(socket.AF_UNIX) as peer:
            peer.settimeout(10)
            peer.connect(str(self.broker.socket))
            peer.sendall(b"GET /v1/statistics HTTP/1.1\r\nhost: broker\r\nconnection: close\r\n\r\n")
            answer = b""
            while chunk := peer.recv(65536):
                answer += chunk
        return int(json.loads(answer.partition(b"\r\n\r\n")[2])["actions"])


class Cluster:
    """Machines that are ended, by force if need be, with everything that they started."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.machines: list[Machine] = []
        self._started: list[subprocess.Popen[str]] = []
        token = directory / "token"
        token.write_text(secrets.token_hex(16))
        token.chmod(0o600)
        # A head without a port of its own is one of several on this machine.
        with socket.socket() as probe:
            probe.bind((f"{NETWORK}1", 0))
            self.port: int = probe.getsockname()[1]
        self.head = f"{NETWORK}1:{self.port}"
        self.environment = {
            name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "RECOUNT_"))
        } | {"RAY_AUTH_TOKEN_PATH": str(token), "RAY_USAGE_STATS_ENABLED": "0"}

    def machine(self, *, slots: int, policy: Policy = POLICY) -> Machine:
        """Return another machine, not started. The first is the head."""
        machine = Machine(self, len(self.machines) + 1, slots=slots, policy=policy)
        self.machines.append(machine)
        return machine

    def recount(self, *words: str, **options: Any) -> subprocess.Popen[str]:
        """Start `recount` with the cluster's token."""
        started = subprocess.Popen(
            [sys.executable, "-m", "runner", *words],
            cwd=ROOT,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            **options,
        )
        self._started.append(started)
        return started

    def end(self) -> None:
        for started in self._started:
            if started.poll() is None:
                started.kill()
                started.communicate()
        for machine in reversed(self.machines):
            if machine.node is not None:
                machine.kill()


@contextmanager
def cluster() -> Iterator[Cluster]:
    """A cluster without machines; whatever it gets is gone afterwards."""
    # A Unix socket's address is short, and most of it is Ray's.
    directory = Path(tempfile.mkdtemp(prefix="rcl", dir="/tmp"))
    made = Cluster(directory)
    try:
        yield made
    finally:
        made.end()
        shutil.rmtree(directory, ignore_errors=True)


def running_containers(api: docker.APIClient, run_id: str) -> list[str]:
    """Return the labels of a run's containers that run, whichever node's: they begin with the run's id."""
    return _of_run([one["Labels"] for one in api.containers()], run_id)


def left_on_engine(api: docker.APIClient, run_id: str) -> list[str]:
    """Return the labels of containers, running or not, and volumes of a run."""
    labels = [one["Labels"] for one in api.containers(all=True)]
    labels += [one.get("Labels") or {} for one in api.volumes().get("Volumes") or ()]
    return _of_run(labels, run_id)


def _of_run(labels: list[dict[str, str]], run_id: str) -> list[str]:
    found = [one.get(LABEL_RUN, "") for one in labels]
    return [one for one in found if one == run_id or one.startswith(f"{run_id}.")]
