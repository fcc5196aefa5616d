"""Where a schedule's commands run: a broker, what is behind it, and what can be done to that."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from chaos_schedule import Deed
from chaos_switches import Switch, Switches
from support.broker import BrokerProcess, containers_of, left_of

from sandbox import Policy
from sandbox.reaper import sweep_engine

HERE = Path(__file__).parent
DAEMON_START_S = 60.0
PAUSE_S = 0.02
MIB = 1 << 20
POLICY = Policy(memory_bytes=192 * MIB, pids=64, workspace_bytes=16 * MIB, workspace_inodes=1000)


class Place(Protocol):
    """A broker, and what can be done to what is behind it."""

    broker: BrokerProcess
    name: str

    def break_containers(self, switches: Switches, run_id: str, *, on: bool) -> None:
        """Make commands' containers die, or leave them alone again."""
        ...

    def daemon(self, deed: Deed, switches: Switches, *, on: bool) -> None:
        """Take the daemon down or stall it, or mend it."""
        ...

    def left(self, run_id: str, *, killed: bool) -> list[str]:
        """What is left of a run, once its broker has ended; `killed` says that one of its brokers was."""
        ...


class HostPlace:
    """Commands on this machine, in a throw-away directory, behind a real broker's service."""

    name = "host"

    def __init__(self, directory: Path, switches: Path) -> None:
        self.broker = BrokerProcess(directory, POLICY)
        self.broker._command = [sys.executable, str(HERE / "chaos_broker.py"), str(self.broker.socket)]
        self.broker._command += [str(directory / "workspaces"), str(switches)]

    def break_containers(self, switches: Switches, run_id: str, *, on: bool) -> None:
        switches.turn(Switch.CONTAINERS_DIE, on=on)

    def daemon(self, deed: Deed, switches: Switches, *, on: bool) -> None:
        hangs = deed is Deed.DAEMON_HANGS
        switches.turn(Switch.DAEMON_HANGS if hangs else Switch.DAEMON_DOWN, on=on)

    def left(self, run_id: str, *, killed: bool) -> list[str]:
        return []


@dataclass(frozen=True)
class OwnDaemon:
    """A Docker engine that nobody else uses: it may be killed and stalled."""

    host: str
    pid_file: Path
    command: Sequence[str]
    """Starts it, with the same data, socket and file."""

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, if it lives: deeds overlap."""
        with suppress(ProcessLookupError, FileNotFoundError):
            os.kill(int(self.pid_file.read_text()), number)

    def start(self) -> None:
        """Start it unless it lives, and wait for its answer."""
        with suppress(ProcessLookupError, FileNotFoundError):
            os.kill(int(self.pid_file.read_text()), 0)
            return
        self.pid_file.unlink(missing_ok=True)
        subprocess.Popen(
            self.command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        deadline = time.monotonic() + DAEMON_START_S
        while subprocess.run(
            ["docker", "--host", self.host, "version"], capture_output=True, check=False
        ).returncode:
            if time.monotonic() > deadline:
                raise RuntimeError("the daemon did not come back")
            time.sleep(PAUSE_S)


class EnginePlace:
    """Real sandboxes. A daemon is touched only where it is said to be ours alone."""

    name = "sandboxes"

    def __init__(self, directory: Path, daemon: OwnDaemon | None = None) -> None:
        import docker  # noqa: PLC0415 - without sandboxes none is needed

        docker_host = None if daemon is None else daemon.host
        self.broker = BrokerProcess(directory, POLICY, docker_host=docker_host)
        self._api = docker.APIClient(base_url=docker_host, version="auto", timeout=60)
        self._errors: type[Exception] = docker.errors.APIError
        self._daemon = daemon

    def break_containers(self, switches: Switches, run_id: str, *, on: bool) -> None:
        if on:
            for each in containers_of(self._api, run_id, status="running"):
                with suppress(self._errors):
                    self._api.kill(each["Id"])

    def daemon(self, deed: Deed, switches: Switches, *, on: bool) -> None:
        if self._daemon is None:
            raise RuntimeError("no daemon of our own to stall")
        if deed is Deed.DAEMON_HANGS:
            self._daemon.signal(signal.SIGSTOP if on else signal.SIGCONT)
        elif on:
            self._daemon.signal(signal.SIGKILL)
        else:
            self._daemon.start()

    def left(self, run_id: str, *, killed: bool) -> list[str]:
        # What the engine was about when a broker was killed, it ends by itself; then the sweep takes it.
        # A broker that ended in order has removed everything itself: a sweep here would hide what it did not.
        deadline = time.monotonic() + 30
        while containers_of(self._api, run_id, status="running") and time.monotonic() < deadline:
            time.sleep(0.2)
        if killed:
            sweep_engine(self._api, run_id)
        containers, volumes = left_of(self._api, run_id)
        return [f"{containers} containers and {volumes} volumes are left"] if containers or volumes else []
