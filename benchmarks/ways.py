"""The ways of running an action that are compared; each opens as many trajectories as it is asked to."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import docker
from docker.types import LogConfig
from measure import Act, Idle, Opened, containers_bytes, resident_bytes, settled

from sandbox import DockerSandbox, Policy, Sandbox, SandboxError, Workspace, specs
from sandbox.client import BrokerSandbox
from sandbox.container import AgentContainer
from sandbox.engine import ContainerSpec, Engine, remove_container
from sandbox.preflight import inspect_engine
from sandbox.reaper import sweep_engine

COMMAND = "echo hi"
EXPECTED = b"hi\n"
TIMEOUT_S = 20.0
BROKER_COMMAND = (sys.executable, "-m", "runner", "broker")
BROKER_START_S = 30.0
MIB = 1 << 20

# Small limits, so that 64 trajectories fit a small machine; what a limit is does not change what it costs.
POLICY = Policy(
    name="benchmark",
    memory_bytes=256 * MIB,
    pids=64,
    workspace_bytes=16 * MIB,
    actions_at_once=64,
    workspaces_at_once=128,
)
POLICY_TOML = f"""\
memory_bytes = {POLICY.memory_bytes}
pids = {POLICY.pids}
workspace_bytes = {POLICY.workspace_bytes}
actions_at_once = {POLICY.actions_at_once}
workspaces_at_once = {POLICY.workspaces_at_once}
"""

Way = Callable[[int], AbstractAsyncContextManager[Opened]]


async def _nothing() -> None:
    """Settle what has nothing to settle."""


def _check(output: bytes) -> None:
    if output != EXPECTED:
        raise SandboxError(f"`{COMMAND}` printed {output[:200]!r}")


def _new_run_id() -> str:
    return f"benchmark-{uuid.uuid4().hex[:12]}"


# ---- no isolation ------------------------------------------------------------------------------------


@asynccontextmanager
async def host(trajectories: int) -> AsyncIterator[Opened]:
    """A subprocess on this machine: what the report's own harness does."""
    limiter = anyio.CapacityLimiter(trajectories)

    def run() -> None:
        done = subprocess.run(
            ["/bin/bash", "-c", COMMAND], capture_output=True, timeout=TIMEOUT_S, check=True, text=False
        )
        _check(done.stdout)

    async def act() -> None:
        await anyio.to_thread.run_sync(run, limiter=limiter)

    yield Opened([act] * trajectories, _nothing)


# ---- ours --------------------------------------------------------------------------------------------


async def act(workspace: Workspace) -> None:
    """Run the one command that everything is measured by."""
    _check((await workspace.run(COMMAND, TIMEOUT_S)).stdout.head)


async def _open(sandbox: Sandbox, trajectories: int) -> list[Act]:
    workspaces: list[Workspace] = []

    async def open_one(index: int) -> None:
        workspaces.append(await sandbox.open(f"trajectory-{index}"))

    async with anyio.create_task_group() as tasks:
        for index in range(trajectories):
            tasks.start_soon(open_one, index)
    return [partial(act, workspace) for workspace in workspaces]


@asynccontextmanager
async def inprocess(api: docker.APIClient, trajectories: int) -> AsyncIterator[Opened]:
    """The sandbox as a library, one container ahead."""
    before = resident_bytes()
    async with DockerSandbox(POLICY, _new_run_id()) as sandbox:
        acts = await _open(sandbox, trajectories)
        # A holder and a container ahead, each.
        settle = partial(settled, api, sandbox.run_id, 2 * trajectories)
        await settle()
        idle = Idle(
            containers=containers_bytes(api, sandbox.run_id) // trajectories,
            client=(resident_bytes() - before) // trajectories,
        )
        yield Opened(acts, settle, idle)


@asynccontextmanager
async def brokered(api: docker.APIClient, socket_path: Path, trajectories: int) -> AsyncIterator[Opened]:
    """The sandbox through the broker's socket."""
    before = resident_bytes()
    async with BrokerSandbox(socket_path, _new_run_id()) as sandbox:
        broker_before = (await sandbox.statistics()).resident_bytes
        acts = await _open(sandbox, trajectories)
        settle = partial(settled, api, sandbox.run_id, 2 * trajectories)
        await settle()
        idle = Idle(
            containers=containers_bytes(api, sandbox.run_id) // trajectories,
            client=(resident_bytes() - before) // trajectories,
            broker=((await sandbox.statistics()).resident_bytes - broker_before) // trajectories,
        )
        yield Opened(acts, settle, idle)


@asynccontextmanager
async def broker_process(directory: Path) -> AsyncIterator[Path]:
    """A broker of its own process, as it is deployed; the path of its socket."""
    policy, socket_path = directory / "policy.toml", directory / "broker" / "broker.sock"
    policy.write_text(POLICY_TOML, encoding="utf-8")
    command = [*BROKER_COMMAND, "--socket", str(socket_path), "--policy", str(policy)]
    async with await anyio.open_process(command, stdout=None, stderr=None) as process:
        try:
            with anyio.fail_after(BROKER_START_S):
                while not socket_path.exists():
                    if process.returncode is not None:
                        raise SandboxError(f"the broker ended with {process.returncode}")
                    await anyio.sleep(0.05)
            yield socket_path
        finally:
            if process.returncode is None:
                process.terminate()
                with anyio.CancelScope(shield=True):
                    await process.wait()


# ---- the engine, without us --------------------------------------------------------------------------


# Not the runs' own label: a run that starts meanwhile removes what lies there exited with that one.
LABEL = "recount.benchmark"


@dataclass(frozen=True)
class Place:
    """A trajectory's volume and holder, made as ours are, and the compared way's own containers."""

    api: docker.APIClient
    run_id: str
    action: ContainerSpec

    def create(self, *, logs: bool = False, **config: Any) -> str:  # noqa: ANN401 - the SDK's own arguments
        """Create a container with the lock-down of ours."""
        own = {"stdin_open": False, "labels": {LABEL: self.run_id}}
        spec = {**self.action.config, **own, **config}
        host_config = dict(self.action.host_config)
        if logs:
            host_config["log_config"] = LogConfig(type="json-file")
        made = self.api.create_container(host_config=self.api.create_host_config(**host_config), **spec)
        container_id: str = made["Id"]
        return container_id


@asynccontextmanager
async def places(api: docker.APIClient, trajectories: int) -> AsyncIterator[list[Place]]:
    """Holders for ways that have no workspaces; everything is removed afterwards."""
    run_id = _new_run_id()
    facts = await anyio.to_thread.run_sync(partial(inspect_engine, api, POLICY, run_id))
    engine = Engine(api, concurrent_starts=POLICY.concurrent_starts, host_options=facts.host_options)
    holders: list[AgentContainer] = []
    made: list[Place] = []

    async def make(index: int) -> None:
        uid, volume = POLICY.uid_base + index, f"recount-{uuid.uuid4().hex}"
        labels = [specs.labels(run_id, str(index), role) for role in ("volume", "hold", "run")]
        options = specs.volume_options(POLICY, uid)
        await engine.call(
            "creating a volume",
            lambda: api.create_volume(volume, driver="local", driver_opts=options, labels=labels[0]),
        )
        spec = specs.holder_spec(POLICY, volume, uid, labels[1])
        holder = await AgentContainer.prepare(engine, spec, POLICY)
        holders.append(holder)
        action = specs.action_spec(POLICY, volume, uid, holder.container_id, labels[2])
        host_config = facts.host_options | action.host_config
        made.append(Place(api, run_id, replace(action, host_config=host_config)))

    try:
        async with anyio.create_task_group() as tasks:
            for index in range(trajectories):
                tasks.start_soon(make, index)
        yield made
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(partial(_remove_all, api, run_id))
            for holder in holders:
                holder.stream.close()
            await anyio.to_thread.run_sync(partial(sweep_engine, api, run_id))


def _remove_all(api: docker.APIClient, run_id: str) -> None:
    for each in api.containers(all=True, filters={"label": f"{LABEL}={run_id}"}):
        remove_container(api, each["Id"])


def _threaded(work: Callable[[Place], None], opened: list[Place]) -> list[Act]:
    """Blocking work, a thread a trajectory."""
    limiter = anyio.CapacityLimiter(len(opened))

    async def act(place: Place) -> None:
        await anyio.to_thread.run_sync(lambda: work(place), limiter=limiter)

    return [partial(act, place) for place in opened]


@asynccontextmanager
async def ceiling(api: docker.APIClient, trajectories: int) -> AsyncIterator[Opened]:
    """What the engine itself can do: create, start, remove, and nothing that an action needs besides.

    The program is the same; without a stdin it ends as soon as it has started.
    """

    def churn(place: Place) -> None:
        container_id = place.create()
        api.start(container_id)
        api.remove_container(container_id, force=True)

    async with places(api, trajectories) as opened:
        yield Opened(_threaded(churn, opened), _nothing)


@asynccontextmanager
async def run(api: docker.APIClient, trajectories: int) -> AsyncIterator[Opened]:
    """A fresh container an action, nothing ahead: create, start, wait, logs, remove."""

    def run_one(place: Place) -> None:
        container_id = place.create(logs=True, entrypoint=["/bin/bash"], command=["-c", COMMAND])
        try:
            api.start(container_id)
            api.wait(container_id)
            _check(api.logs(container_id, stdout=True, stderr=False))
        finally:
            api.remove_container(container_id, force=True)

    async with places(api, trajectories) as opened:
        yield Opened(_threaded(run_one, opened), _nothing)


@asynccontextmanager
async def execute(api: docker.APIClient, trajectories: int) -> AsyncIterator[Opened]:
    """One long-lived container a trajectory, an exec an action."""
    containers: dict[int, str] = {}

    def exec_one(place: Place) -> None:
        made = api.exec_create(containers[id(place)], ["/bin/bash", "-c", COMMAND])
        _check(api.exec_start(made["Id"]))
        if api.exec_inspect(made["Id"])["ExitCode"] != 0:
            raise SandboxError("the exec failed")

    async with places(api, trajectories) as opened:
        for place in opened:
            container_id = place.create(entrypoint=["/bin/sleep"], command=["infinity"])
            containers[id(place)] = container_id
            await anyio.to_thread.run_sync(partial(api.start, container_id))
        yield Opened(_threaded(exec_one, opened), _nothing)
