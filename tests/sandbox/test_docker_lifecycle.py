"""Containers and volumes come and go: nothing is left by closing, cancelling or killing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import anyio
import docker
import pytest

from sandbox import DockerSandbox, Policy, SandboxInfrastructureError
from sandbox.engine import LABEL_ROLE, LABEL_RUN
from sandbox.reaper import sweep

pytestmark = [pytest.mark.docker, pytest.mark.anyio]

ROOT = Path(__file__).parents[2]
SETTLE_S = 20.0
FAR_S = 30.0
"""Far above what it takes on a busy machine, far below what the command would take."""


def containers(api: docker.APIClient, run_id: str, **more: str) -> list[dict[str, str]]:
    found: list[dict[str, str]] = api.containers(all=True, filters={"label": f"{LABEL_RUN}={run_id}", **more})
    return found


def volumes(api: docker.APIClient, run_id: str) -> list[dict[str, str]]:
    found = api.volumes(filters={"label": f"{LABEL_RUN}={run_id}"})
    return list(found.get("Volumes") or ())


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SETTLE_S
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"not so after {SETTLE_S} s")
        time.sleep(0.1)


async def test_closing_a_workspace_removes_its_containers_and_its_volume(
    engine_api: docker.APIClient, policy: Policy, new_run_id: Callable[[], str]
) -> None:
    run_id = new_run_id()
    async with DockerSandbox(policy, run_id) as sandbox:
        workspace = await sandbox.open("one")
        await workspace.run("echo x > f", 9)
        assert containers(engine_api, run_id)
        assert volumes(engine_api, run_id)
        await workspace.close()
        await workspace.close()
        assert (containers(engine_api, run_id), volumes(engine_api, run_id)) == ([], [])


async def test_closing_the_sandbox_removes_everything_of_the_run(
    engine_api: docker.APIClient, policy: Policy, new_run_id: Callable[[], str]
) -> None:
    run_id = new_run_id()
    async with DockerSandbox(policy, run_id) as sandbox:
        for name in ("one", "two"):
            await (await sandbox.open(name)).run("true", 9)
    assert (containers(engine_api, run_id), volumes(engine_api, run_id)) == ([], [])


async def test_an_error_in_the_body_comes_out_as_it_is(
    engine_api: docker.APIClient, policy: Policy, new_run_id: Callable[[], str]
) -> None:
    run_id = new_run_id()

    async def body_that_fails() -> None:
        async with DockerSandbox(policy, run_id) as sandbox:
            await sandbox.open("one")
            raise RuntimeError("of the body")

    with pytest.raises(RuntimeError, match="of the body"):
        await body_that_fails()
    assert (containers(engine_api, run_id), volumes(engine_api, run_id)) == ([], [])


async def test_cancelling_the_run_of_everything_leaves_nothing(
    engine_api: docker.APIClient, policy: Policy, new_run_id: Callable[[], str]
) -> None:
    run_id = new_run_id()
    with anyio.move_on_after(1.5) as scope:
        async with DockerSandbox(policy, run_id) as sandbox, anyio.create_task_group() as tasks:
            for name in ("one", "two"):
                workspace = await sandbox.open(name)
                tasks.start_soon(workspace.run, "sleep 60", 60)
    assert scope.cancelled_caught
    assert (containers(engine_api, run_id), volumes(engine_api, run_id)) == ([], [])


async def test_a_cancelled_command_is_dead_at_once_and_the_workspace_goes_on(
    engine_api: docker.APIClient, docker_sandbox: DockerSandbox
) -> None:
    workspace = await docker_sandbox.open("cancelled")
    started = time.monotonic()
    with anyio.move_on_after(1.0):
        await workspace.run("while :; do date >> w; sleep 0.01; done", 60)
    assert time.monotonic() - started < FAR_S
    sizes = [(await workspace.run("stat -c %s w", 9)).stdout.head for _ in range(2)]
    assert sizes[0] == sizes[1] != b"0\n"
    await workspace.close()


@pytest.mark.parametrize("delay_s", [0.0, 0.02, 0.1, 0.2, 0.3])
async def test_cancelling_while_a_workspace_opens_leaves_nothing(
    engine_api: docker.APIClient, policy: Policy, new_run_id: Callable[[], str], delay_s: float
) -> None:
    run_id = new_run_id()
    async with DockerSandbox(policy, run_id) as sandbox:
        with anyio.move_on_after(delay_s):
            await (await sandbox.open("one")).run("sleep 60", 60)
    assert (containers(engine_api, run_id), volumes(engine_api, run_id)) == ([], [])


async def test_a_container_removed_under_a_command_is_our_failure(
    engine_api: docker.APIClient, docker_sandbox: DockerSandbox
) -> None:
    workspace = await docker_sandbox.open("lost")
    await workspace.run("true", 9)

    async def remove_running() -> None:
        await anyio.sleep(0.5)
        for entry in containers(engine_api, docker_sandbox.run_id, status="running"):
            if runs_sleep(engine_api, entry["Id"]):
                engine_api.remove_container(entry["Id"], force=True)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(remove_running)
        with pytest.raises(SandboxInfrastructureError, match="lost") as caught:
            await workspace.run("sleep 30", 30)
    assert caught.value.command_started
    assert (await workspace.run("echo on", 9)).stdout.head == b"on\n"
    await workspace.close()


async def test_a_container_that_died_while_it_waited_is_replaced(
    engine_api: docker.APIClient, docker_sandbox: DockerSandbox
) -> None:
    workspace = await docker_sandbox.open("idle")
    await workspace.run("echo x > f", 9)
    await anyio.sleep(1)
    for entry in containers(engine_api, docker_sandbox.run_id, status="running"):
        if entry["Labels"][LABEL_ROLE] == "run":  # type: ignore[index]
            engine_api.kill(entry["Id"])
    assert (await workspace.run("cat f", 9)).stdout.head == b"x\n"
    await workspace.close()


async def test_a_lost_holder_is_a_lost_workspace(
    engine_api: docker.APIClient, docker_sandbox: DockerSandbox
) -> None:
    workspace = await docker_sandbox.open("holder")
    await workspace.run("echo x > f", 9)
    await anyio.sleep(1)
    for entry in containers(engine_api, docker_sandbox.run_id, status="running"):
        engine_api.kill(entry["Id"])
    with pytest.raises(SandboxInfrastructureError, match="workspace is gone"):
        await workspace.run("cat f", 9)
    await workspace.close()


CLIENT = """
import anyio, sys
from sandbox import DockerSandbox, Policy

async def main() -> None:
    async with DockerSandbox(Policy(), sys.argv[1]) as sandbox:
        workspace = await sandbox.open("victim")
        await workspace.run("true", 9)
        print("ready", flush=True)
        await workspace.run("setsid sleep 600 & sleep 600", 600)

anyio.run(main)
"""


def runs_sleep(api: docker.APIClient, container_id: str) -> bool:
    try:
        return "sleep" in str(api.top(container_id))
    except docker.errors.APIError:
        return False


def client_killed_in_the_middle(engine_api: docker.APIClient, run_id: str) -> None:
    client = subprocess.Popen([sys.executable, "-c", CLIENT, run_id], cwd=ROOT, stdout=subprocess.PIPE)
    with client:
        assert client.stdout is not None
        assert client.stdout.readline() == b"ready\n"
        wait_until(
            lambda: any(runs_sleep(engine_api, entry["Id"]) for entry in containers(engine_api, run_id))
        )
        os.kill(client.pid, signal.SIGKILL)


async def test_a_killed_client_leaves_dead_containers_only_and_the_sweep_takes_them(
    engine_api: docker.APIClient, new_run_id: Callable[[], str]
) -> None:
    run_id = new_run_id()
    client_killed_in_the_middle(engine_api, run_id)
    wait_until(lambda: not containers(engine_api, run_id, status="running"))
    assert containers(engine_api, run_id)

    await sweep()
    # What the client was removing when it died, the engine is still about.
    wait_until(lambda: not containers(engine_api, run_id))
    await sweep(run_id)
    assert volumes(engine_api, run_id) == []


async def test_the_sweep_leaves_what_is_not_ours_alone(
    engine_api: docker.APIClient, policy: Policy, new_run_id: Callable[[], str]
) -> None:
    foreign = engine_api.create_container(policy.image, command=["hold"], labels={"somebody": "else"})["Id"]
    foreign_volume = engine_api.create_volume(f"foreign-{uuid.uuid4().hex}")["Name"]
    try:
        engine_api.start(foreign)
        wait_until(lambda: not engine_api.inspect_container(foreign)["State"]["Running"])
        other_run = new_run_id()
        async with DockerSandbox(policy, other_run) as sandbox:
            workspace = await sandbox.open("alive")
            await sweep(new_run_id())
            assert (await workspace.run("echo alive", 9)).stdout.head == b"alive\n"
        assert engine_api.inspect_container(foreign)
        assert engine_api.inspect_volume(foreign_volume)
    finally:
        engine_api.remove_container(foreign)
        engine_api.remove_volume(foreign_volume)


async def test_a_run_keeps_the_image_that_it_recorded_when_its_name_passes_to_another(
    engine_api: docker.APIClient, policy: Policy, new_run_id: Callable[[], str]
) -> None:
    name = f"recount-test-{uuid.uuid4().hex[:12]}"
    other = engine_api.create_container(policy.image, command=["hold"], labels={"somebody": "else"})["Id"]
    engine_api.tag(policy.image, name)
    try:
        async with DockerSandbox(
            policy.model_copy(update={"image": f"{name}:latest"}), new_run_id()
        ) as sandbox:
            identity = await sandbox.identity()
            rebuilt = engine_api.commit(other, name, tag="latest")["Id"]
            assert rebuilt != identity["image_id"]
            workspace = await sandbox.open("after")
            assert (await workspace.run("true", 9)).exit_code == 0
            used = engine_api.containers(all=True, filters={"label": f"{LABEL_RUN}={sandbox.run_id}"})
            assert {one["ImageID"] for one in used} == {identity["image_id"]}
            assert identity["image"] == f"{name}:latest"
    finally:
        engine_api.remove_container(other)
        engine_api.remove_image(f"{name}:latest")


async def test_many_workspaces_work_at_once(
    engine_api: docker.APIClient, policy: Policy, new_run_id: Callable[[], str]
) -> None:
    run_id = new_run_id()
    outputs: list[bytes] = []

    async with DockerSandbox(policy, run_id) as sandbox, anyio.create_task_group() as tasks:

        async def trajectory(number: int) -> None:
            workspace = await sandbox.open(str(number))
            await workspace.run(f"echo {number} > f", 20)
            outputs.append((await workspace.run("cat f", 20)).stdout.head)
            await workspace.close()

        for number in range(8):
            tasks.start_soon(trajectory, number)
    assert sorted(outputs) == [b"%d\n" % number for number in range(8)]
    assert (containers(engine_api, run_id), volumes(engine_api, run_id)) == ([], [])
