"""A real `recount broker` process, to be killed."""

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import docker

from sandbox import Policy
from sandbox.engine import LABEL_RUN

ROOT = Path(__file__).parents[2]
START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 60.0


class BrokerProcess:
    """Started, killed and started again on the same socket; its log goes to a file."""

    def __init__(
        self, directory: Path, policy: Policy, *options: str, docker_host: str | None = None
    ) -> None:
        self.socket = directory / "broker.sock"
        self.log = directory / "broker.log"
        policy_file = directory / "policy.toml"
        numbers = policy.model_dump(include=NUMBERS, exclude_none=True)
        policy_file.write_text("".join(f"{name} = {value}\n" for name, value in numbers.items()))
        self._command = [sys.executable, "-m", "runner", "broker"]
        self._command += ["--socket", str(self.socket), "--policy", str(policy_file), *options]
        self._environment = {"PATH": "/usr/bin:/bin"} | ({"DOCKER_HOST": docker_host} if docker_host else {})
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start and wait until it serves."""
        self.socket.unlink(missing_ok=True)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self._command, cwd=ROOT, stderr=log, env=self._environment)
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._serves():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"no broker: {self.log.read_text()}")
            time.sleep(0.05)

    def _serves(self) -> bool:
        with socket.socket(socket.AF_UNIX) as peer:
            peer.settimeout(START_TIMEOUT_S)
            try:
                peer.connect(str(self.socket))
                peer.sendall(b"GET /v1/health HTTP/1.1\r\nhost: broker\r\n\r\n")
                return b" 200 " in peer.recv(4096)
            except OSError:
                return False

    def kill(self) -> None:
        """SIGKILL."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(STOP_TIMEOUT_S)

    def stop(self, received: signal.Signals = signal.SIGTERM) -> int:
        """Ask it to end; return its exit code."""
        if self.process is None:
            raise RuntimeError("it was not started")
        self.process.send_signal(received)
        return self.process.wait(STOP_TIMEOUT_S)


NUMBERS = {
    "memory_bytes",
    "pids",
    "workspace_bytes",
    "workspace_inodes",
    "fsize_bytes",
    "output_limit_bytes",
    "capture_bytes",
    "actions_at_once",
    "workspaces_at_once",
    "concurrent_starts",
}


@contextmanager
def broker_process(directory: Path, policy: Policy, *options: str) -> Iterator[BrokerProcess]:
    """A broker that is running inside, and gone afterwards."""
    process = BrokerProcess(directory, policy, *options)
    process.start()
    try:
        yield process
    finally:
        process.kill()


def containers_of(api: docker.APIClient, run_id: str, **more: Any) -> list[dict[str, Any]]:
    """Containers of a run, running or not unless `filters` in `more` say so."""
    filters = {"label": f"{LABEL_RUN}={run_id}"} | more
    found: list[dict[str, Any]] = api.containers(all=True, filters=filters)
    return found


def left_of(api: docker.APIClient, run_id: str) -> tuple[int, int]:
    """How many containers and volumes of a run there are."""
    volumes = api.volumes(filters={"label": f"{LABEL_RUN}={run_id}"}).get("Volumes") or ()
    return len(containers_of(api, run_id)), len(volumes)
