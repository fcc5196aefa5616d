"""A broker or a client that dies, hangs or ends: a typed failure within bounds, and nothing is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import docker
import pytest
from support.broker import BrokerProcess, broker_process, containers_of, left_of
from support.broker_calls import ROOT, TIMEOUT_S, out

from sandbox import (
    BrokerSandbox,
    Policy,
    SandboxInfrastructureError,
    SandboxPrerequisiteError,
)
from sandbox.reaper import sweep

pytestmark = [pytest.mark.docker, pytest.mark.anyio]


SETTLE_S = 15.0


@pytest.fixture
def mortal(tmp_path: Path, engine_api: docker.APIClient, policy: Policy) -> Iterator[BrokerProcess]:
    """A broker of the test's own, to be killed."""
    with broker_process(tmp_path, policy) as process:
        yield process


async def until(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(SETTLE_S):
        while not condition():  # noqa: ASYNC110 - the engine has no event for us
            await anyio.sleep(0.1)


CLIENT = """
import anyio, sys
from pathlib import Path
from sandbox import BrokerSandbox

async def main() -> None:
    async with BrokerSandbox(Path(sys.argv[1]), sys.argv[2]) as sandbox:
        idle, busy = await sandbox.open("idle"), await sandbox.open("busy")
        await idle.run("true", 9)
        print("ready", flush=True)
        await busy.run("setsid sleep 600 & sleep 600", 600)

anyio.run(main)
"""


async def test_a_killed_client_s_things_are_removed_within_seconds_and_others_go_on(
    broker: BrokerProcess, engine_api: docker.APIClient, new_run_id: Callable[[], str]
) -> None:
    victim, other = new_run_id(), new_run_id()
    async with BrokerSandbox(broker.socket, other) as sandbox:
        workspace = await sandbox.open("alive")
        await out(workspace, "echo kept > f")
        command = [sys.executable, "-c", CLIENT, str(broker.socket), victim]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as client:  # noqa: ASYNC220 - a moment
            assert client.stdout is not None
            assert client.stdout.readline() == b"ready\n"
            await anyio.sleep(1)
            assert len(containers_of(engine_api, victim)) >= 3
            os.kill(client.pid, signal.SIGKILL)
        await until(lambda: left_of(engine_api, victim) == (0, 0))
        assert await out(workspace, "cat f") == b"kept\n"
        assert (await sandbox.statistics()).leases == 1


async def test_a_killed_broker_is_a_typed_failure_and_the_next_one_serves_on(
    mortal: BrokerProcess, engine_api: docker.APIClient, new_run_id: Callable[[], str]
) -> None:
    run_id = new_run_id()
    async with BrokerSandbox(mortal.socket, run_id) as sandbox:
        workspace = await sandbox.open("one")
        await out(workspace, "echo x > f")

        async def kill_soon() -> None:
            await anyio.sleep(0.5)
            mortal.kill()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(kill_soon)
            with anyio.fail_after(5), pytest.raises(SandboxInfrastructureError) as caught:
                await workspace.run("sleep 30", 30)
        assert caught.value.command_started
        await until(lambda: not containers_of(engine_api, run_id, status="running"))

        await anyio.to_thread.run_sync(mortal.start)
        with anyio.fail_after(30):
            again = await sandbox.open("again")
            assert await out(again, "ls; echo on") == b"on\n"
            with pytest.raises(SandboxInfrastructureError) as lost:
                await workspace.run("cat f", TIMEOUT_S)
        assert lost.value.command_started
        await workspace.close()
    assert left_of(engine_api, run_id) == (0, 0)


async def test_a_broker_that_comes_back_with_another_policy_serves_the_run_no_more(
    mortal: BrokerProcess, policy: Policy, new_run_id: Callable[[], str]
) -> None:
    async with BrokerSandbox(mortal.socket, new_run_id()) as sandbox:
        await (await sandbox.open("before")).close()
        mortal.kill()
        other = BrokerProcess(mortal.socket.parent, policy.model_copy(update={"pids": policy.pids + 1}))
        await anyio.to_thread.run_sync(other.start)
        try:
            with (
                anyio.fail_after(30),
                pytest.raises(SandboxPrerequisiteError, match="came back as another: policy_sha256: "),
            ):
                await sandbox.open("after")
            assert (await sandbox.wait_refused()).remedy
        finally:
            other.kill()


async def test_without_a_broker_opening_gives_up_within_bounds(
    mortal: BrokerProcess, engine_api: docker.APIClient, new_run_id: Callable[[], str]
) -> None:
    run_id = new_run_id()
    async with BrokerSandbox(mortal.socket, run_id, wait_s=8) as sandbox:
        await sandbox.open("one")
        mortal.kill()
        with anyio.fail_after(20), pytest.raises(SandboxInfrastructureError):
            await sandbox.open("two")
    await until(lambda: not containers_of(engine_api, run_id, status="running"))
    await sweep(run_id)
    assert left_of(engine_api, run_id) == (0, 0)


async def test_no_broker_at_the_start_is_the_user_s_to_mend(tmp_path: Path) -> None:
    with anyio.fail_after(10), pytest.raises(SandboxPrerequisiteError, match="recount broker"):
        async with BrokerSandbox(tmp_path / "none.sock", "run", wait_s=1):
            pass


async def test_a_broker_that_says_nothing_any_more_is_lost(
    mortal: BrokerProcess,
    engine_api: docker.APIClient,
    new_run_id: Callable[[], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sandbox.client.LEASE_SILENCE_S", 3.0)
    monkeypatch.setattr("sandbox.client.CLOSE_TIMEOUT_S", 3.0)
    assert mortal.process is not None
    run_id = new_run_id()
    async with BrokerSandbox(mortal.socket, run_id, wait_s=8) as sandbox:
        workspace = await sandbox.open("one")
        os.kill(mortal.process.pid, signal.SIGSTOP)
        try:
            with anyio.fail_after(10), pytest.raises(SandboxInfrastructureError) as caught:
                await workspace.run("sleep 30", 30)
            assert caught.value.command_started
        finally:
            os.kill(mortal.process.pid, signal.SIGCONT)
    # It finds its client gone, and cleans up.
    assert await anyio.to_thread.run_sync(mortal.stop) == 0
    assert left_of(engine_api, run_id) == (0, 0)


@pytest.mark.parametrize("received", [signal.SIGTERM, signal.SIGINT])
async def test_a_broker_that_is_asked_to_end_leaves_nothing(
    mortal: BrokerProcess,
    engine_api: docker.APIClient,
    new_run_id: Callable[[], str],
    received: signal.Signals,
) -> None:
    run_id = new_run_id()
    codes: list[int] = []
    left: list[tuple[int, int]] = []
    async with BrokerSandbox(mortal.socket, run_id, wait_s=8) as sandbox:
        workspace = await sandbox.open("one")

        async def stop_soon() -> None:
            await anyio.sleep(0.5)
            codes.append(await anyio.to_thread.run_sync(lambda: mortal.stop(received)))
            left.append(left_of(engine_api, run_id))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stop_soon)
            with pytest.raises(SandboxInfrastructureError) as caught:
                await workspace.run("sleep 30", 30)
        assert caught.value.command_started
    assert (codes, left) == ([0], [(0, 0)])
    assert not mortal.socket.exists()
    assert "Traceback" not in mortal.log.read_text()


async def test_a_broker_ends_by_itself_when_its_last_run_is_gone(
    tmp_path: Path, engine_api: docker.APIClient, policy: Policy, new_run_id: Callable[[], str]
) -> None:
    with broker_process(tmp_path, policy, "--idle-exit", "1") as broker:
        assert broker.process is not None
        await anyio.sleep(1.5)
        async with BrokerSandbox(broker.socket, new_run_id()) as sandbox:
            await anyio.sleep(1.5)
            assert await out(await sandbox.open("one"), "echo on") == b"on\n"
        assert broker.process.wait(10) == 0


def test_a_broker_that_no_run_comes_to_ends(
    tmp_path: Path, engine_api: docker.APIClient, policy: Policy
) -> None:
    with broker_process(tmp_path, policy, "--first-client", "0.5") as broker:
        assert broker.process is not None
        assert broker.process.wait(10) == 0
