"""Kills brokers, clients and containers at random while trajectories run, and checks every answer.

    python tests/sandbox/chaos.py --seed 1 --trajectories 64 --actions 20

Each action appends its token to the trajectory's file and prints the token and the file's length. An answer
has to be exactly that, or a typed failure of the infrastructure, after which the trajectory goes on in a new
workspace. Whatever else comes, and whatever is left on the engine at the end, makes the exit code 1.

`--docker-host` names another engine. With `--restart-engine COMMAND` the script ends, once and in the middle,
the engine whose process id is in `--engine-pid-file`, and runs the command: for an engine of its own only.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import anyio

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import docker  # noqa: E402
from support.broker import BrokerProcess, containers_of, left_of  # noqa: E402

from sandbox import BrokerSandbox, Policy, SandboxInfrastructureError  # noqa: E402
from sandbox.reaper import sweep_engine  # noqa: E402

MIB = 1 << 20
POLICY = Policy(memory_bytes=192 * MIB, pids=64, workspace_bytes=16 * MIB, workspace_inodes=1000)
ACTION_TIMEOUT_S = 20.0
CLIENT_WAIT_S = 120.0
SETTLE_S = 30.0


@dataclass
class Plan:
    """How much is done, and how much of it is broken, a round of `interval_s` each."""

    seed: int
    clients: int
    trajectories: int
    actions: int
    broker_kills: int
    client_kills: int
    container_kills: int
    interval_s: float
    docker_host: str | None = None
    engine_pid_file: Path | None = None
    restart_engine: str | None = None


@dataclass
class Outcome:
    """What came of it."""

    seconds: float = 0.0
    right: int = 0
    wrong: list[str] = field(default_factory=list)
    failures: Counter[str] = field(default_factory=Counter)
    unfinished: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    broker_exit_code: int | None = None
    left: list[tuple[int, int]] = field(default_factory=list)
    slowest_s: float = 0.0

    @property
    def good(self) -> bool:
        """Whether everything was right or a typed failure, everything ended, and nothing is left."""
        nothing_left = all(each == (0, 0) for each in self.left)
        return not self.wrong and not self.unfinished and nothing_left and self.broker_exit_code == 0


# The client's side, in a process of its own.


async def client(socket: Path, run_id: str, journal: Path, trajectories: int, actions: int) -> None:
    """Work through the trajectories; what a killed predecessor has journalled is done."""
    done = Counter(entry["trajectory"] for entry in entries(journal))
    with journal.open("a", encoding="utf-8") as out:
        async with (
            BrokerSandbox(socket, run_id, wait_s=CLIENT_WAIT_S) as sandbox,
            anyio.create_task_group() as tasks,
        ):
            for number in range(trajectories):
                tasks.start_soon(trajectory, sandbox, run_id, number, range(done[number], actions), out)


async def trajectory(sandbox: BrokerSandbox, run_id: str, number: int, actions: range, out) -> None:  # type: ignore[no-untyped-def] # noqa: ANN001
    workspace, lines = None, 0
    for action in actions:
        token = f"{run_id}/{number}/{action}/{uuid.uuid4().hex}"
        entry = {"trajectory": number, "action": action}
        started = time.monotonic()
        try:
            if workspace is None:
                workspace, lines = await sandbox.open(f"{number}"), 0
            script = f"echo {token} >> log; echo {token}; sleep 0.0{random.randint(0, 9)}; wc -l < log"  # noqa: S311
            result = await workspace.run(script, ACTION_TIMEOUT_S)
        except SandboxInfrastructureError as error:
            entry |= {
                "outcome": "failure",
                "why": error.message.split(":")[0],
                "started": error.command_started,
            }
            if workspace is not None:
                await workspace.close()
            workspace = None
        except Exception as error:  # noqa: BLE001 - the very thing that is looked for
            entry |= {"outcome": "wrong", "why": f"{type(error).__name__}: {error}"}
            workspace = None
        else:
            lines += 1
            right = result.stdout.head == f"{token}\n{lines}\n".encode() and (
                result.exit_code,
                result.limits,
                result.stderr.total_bytes,
            ) == (0, (), 0)
            entry |= (
                {"outcome": "right"} if right else {"outcome": "wrong", "why": f"{lines} lines, {result}"}
            )
        entry["seconds"] = time.monotonic() - started
        out.write(json.dumps(entry) + "\n")
        out.flush()
    if workspace is not None:
        await workspace.close()


def entries(journal: Path) -> list[dict[str, object]]:
    """What is journalled, but for a line that a kill cut short."""
    found = []
    if journal.exists():
        for line in journal.read_text(encoding="utf-8").splitlines():
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
    return found


# The side that kills.


class Chaos:
    """A broker, its clients, and what happens to them."""

    def __init__(self, plan: Plan, directory: Path) -> None:
        self.plan = plan
        self.directory = directory
        self.random = random.Random(plan.seed)  # noqa: S311 - no secret
        self.api = docker.APIClient(base_url=plan.docker_host, version="auto", timeout=60)
        self.broker = BrokerProcess(directory, POLICY, docker_host=plan.docker_host)
        tag = uuid.uuid4().hex[:8]
        self.run_ids = [f"chaos-{plan.seed}-{tag}-{number}" for number in range(plan.clients)]
        self.clients: dict[str, subprocess.Popen[bytes]] = {}
        self.outcome = Outcome()

    def run(self) -> Outcome:
        """Do it all; returns when every trajectory is through."""
        started = time.monotonic()
        self.broker.start()
        try:
            for run_id in self.run_ids:
                self._start_client(run_id)
            for deed in self._deeds():
                time.sleep(self.random.uniform(0.5, 1.5) * self.plan.interval_s)
                deed()
                self._restart_clients()
            while self._restart_clients():
                time.sleep(0.2)
            self.outcome.broker_exit_code = self.broker.stop()
        finally:
            for process in self.clients.values():
                process.kill()
            self.broker.kill()
        self.outcome.seconds = time.monotonic() - started
        self._count()
        return self.outcome

    def _deeds(self) -> list:  # type: ignore[type-arg]
        deeds = [self._kill_broker] * self.plan.broker_kills + [self._kill_client] * self.plan.client_kills
        deeds += [self._kill_container] * self.plan.container_kills
        self.random.shuffle(deeds)
        if self.plan.restart_engine is not None:
            deeds.insert(len(deeds) // 2, self._restart_engine)
        return deeds

    def _kill_broker(self) -> None:
        self.broker.kill()
        time.sleep(self.random.uniform(0, 2))
        self._start_broker()
        self.outcome.kills["broker"] += 1

    def _start_broker(self) -> None:
        deadline = time.monotonic() + SETTLE_S
        while True:
            try:
                self.broker.start()
            except RuntimeError:
                if time.monotonic() > deadline:
                    raise
            else:
                return

    def _kill_client(self) -> None:
        alive = [run_id for run_id, process in self.clients.items() if process.poll() is None]
        if alive:
            self.clients[self.random.choice(alive)].kill()
            self.outcome.kills["client"] += 1

    def _kill_container(self) -> None:
        found = [
            each["Id"]
            for run_id in self.run_ids
            for each in containers_of(self.api, run_id, status="running")
        ]
        for container_id in self.random.sample(sorted(found), min(len(found), 3)):
            try:
                self.api.kill(container_id)
            except docker.errors.APIError:
                continue
            self.outcome.kills["container"] += 1

    def _restart_engine(self) -> None:
        if self.plan.engine_pid_file is None or self.plan.restart_engine is None:
            return
        pid = int(self.plan.engine_pid_file.read_text())
        os.kill(pid, signal.SIGTERM)
        while self.plan.engine_pid_file.exists() and Path(f"/proc/{pid}").exists():
            time.sleep(0.1)
        subprocess.Popen(
            shlex.split(self.plan.restart_engine), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self.outcome.kills["engine"] += 1
        deadline = time.monotonic() + SETTLE_S
        while time.monotonic() < deadline:
            try:
                self.api.ping()
            except Exception:  # noqa: BLE001 - whatever an engine that starts answers
                time.sleep(0.2)
            else:
                return

    def _start_client(self, run_id: str) -> None:
        command = [sys.executable, __file__, "--client", str(self.broker.socket), run_id]
        command += [str(self._journal(run_id)), str(self.plan.trajectories // self.plan.clients)]
        log = (self.directory / f"{run_id}.log").open("ab")
        with log:
            self.clients[run_id] = subprocess.Popen([*command, str(self.plan.actions)], stderr=log)

    def _restart_clients(self) -> bool:
        """Start killed clients again; whether any is at work. One that failed by itself is not started."""
        working = False
        for run_id, process in list(self.clients.items()):
            code = process.poll()
            if code == -signal.SIGKILL:
                self._start_client(run_id)
            elif code not in (None, 0):
                self.outcome.wrong.append(f"client {run_id} ended with {code}")
                del self.clients[run_id]
            working = working or code is None or code == -signal.SIGKILL
        return working

    def _journal(self, run_id: str) -> Path:
        return self.directory / f"{run_id}.jsonl"

    def _count(self) -> None:
        for run_id in self.run_ids:
            found = entries(self._journal(run_id))
            each = self.plan.trajectories // self.plan.clients * self.plan.actions
            self.outcome.unfinished += each - len({(one["trajectory"], one["action"]) for one in found})
            for one in found:
                self.outcome.slowest_s = max(self.outcome.slowest_s, float(str(one["seconds"])))
                if one["outcome"] == "right":
                    self.outcome.right += 1
                elif one["outcome"] == "failure":
                    self.outcome.failures[str(one["why"])] += 1
                else:
                    self.outcome.wrong.append(f"{run_id} {one}")
            # What the engine was about when a broker died, it finishes by itself.
            deadline = time.monotonic() + SETTLE_S
            while containers_of(self.api, run_id, status="running") and time.monotonic() < deadline:
                time.sleep(0.2)
            sweep_engine(self.api, run_id)
            self.outcome.left.append(left_of(self.api, run_id))


def main() -> int:
    """Parse, run, print, and say by the exit code whether all was well."""
    if sys.argv[1:2] == ["--client"]:
        socket, run_id, journal, trajectories, actions = sys.argv[2:]
        anyio.run(client, Path(socket), run_id, Path(journal), int(trajectories), int(actions))
        return 0
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, value in (("seed", 1), ("clients", 8), ("trajectories", 64), ("actions", 20)):
        parser.add_argument(f"--{name}", type=int, default=value)
    for name, value in (("broker-kills", 5), ("client-kills", 6), ("container-kills", 12)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--interval-s", type=float, default=4.0)
    parser.add_argument("--docker-host")
    parser.add_argument("--engine-pid-file", type=Path)
    parser.add_argument("--restart-engine", metavar="COMMAND")
    plan = Plan(**vars(parser.parse_args()))
    directory = Path(tempfile.mkdtemp(prefix="recount-chaos-"))
    outcome = Chaos(plan, directory).run()
    sys.stdout.write(f"{plan}\n{outcome}\ngood: {outcome.good}; journals and logs in {directory}\n")
    return 0 if outcome.good else 1


if __name__ == "__main__":
    sys.exit(main())
