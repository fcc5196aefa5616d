"""Sandboxes behind a real `recount broker`: what clients see, kept apart, and how many it admits."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import anyio
import docker
import httpx
import pytest
from support.broker import BrokerProcess, broker_process, left_of
from support.broker_calls import ROOT, TIMEOUT_S, out

from runner.conformance.trajectories import check_trajectories
from runner.plan import read_pack
from sandbox import (
    BrokerSandbox,
    Limit,
    Policy,
    SandboxError,
    SandboxInfrastructureError,
    Workspace,
)

pytestmark = [pytest.mark.docker, pytest.mark.anyio]


PROTOCOL = ROOT.parent / "shared/protocol"


MIB = 1 << 20


def raw(broker: BrokerProcess) -> httpx.AsyncClient:
    transport = httpx.AsyncHTTPTransport(uds=str(broker.socket))
    return httpx.AsyncClient(transport=transport, base_url="http://broker", timeout=30)


async def test_results_are_those_of_the_sandbox_itself(
    broker: BrokerProcess, policy: Policy, new_run_id: Callable[[], str]
) -> None:
    async with BrokerSandbox(broker.socket, new_run_id()) as sandbox:
        assert sandbox.capture_bytes == policy.capture_bytes
        workspace = await sandbox.open("one")
        result = await workspace.run(b"printf 'a\\0\\377'; echo err >&2; exit 3", TIMEOUT_S)
        assert (result.stdout.head, result.stderr.head, result.exit_code) == (b"a\0\xff", b"err\n", 3)
        assert "0xff in position 2" in (result.stdout.decode_error or "")
        late = await workspace.run("sleep 9", 0.3)
        assert (late.exit_code, late.timed_out, late.limits) == (None, True, (Limit.TIME,))
        flood = await workspace.run("yes", TIMEOUT_S)
        assert flood.limits == (Limit.OUTPUT,)
        assert len(flood.stdout.head) == len(flood.stdout.tail) == policy.capture_bytes
        with pytest.raises(ValueError, match="null byte"):
            await workspace.run("a\0b", TIMEOUT_S)
        with pytest.raises(ValueError, match="longer than"):
            await workspace.run(b"#" * (17 * MIB), TIMEOUT_S)
        large = b"#" * (8 * MIB) + b"\nwc -c < f"
        await workspace.run("printf 12345 > f", TIMEOUT_S)
        assert await out(workspace, large) == b"5\n"


async def test_identity_and_capacity_are_the_brokers(
    broker: BrokerProcess, policy: Policy, new_run_id: Callable[[], str]
) -> None:
    async with BrokerSandbox(broker.socket, new_run_id()) as sandbox:
        identity, capacity = await sandbox.identity(), await sandbox.capacity()
    assert (identity["kind"], identity["image"]) == ("docker", policy.image)
    assert (capacity.actions_at_once, capacity.workspaces_at_once) == (8, 128)


async def test_files_stay_and_workspaces_are_apart(
    broker: BrokerProcess, new_run_id: Callable[[], str]
) -> None:
    async with BrokerSandbox(broker.socket, new_run_id()) as sandbox:
        one, two = await sandbox.open("same"), await sandbox.open("same")
        await out(one, "echo one > f")
        assert await out(two, "cat f 2>/dev/null || echo none") == b"none\n"
        assert await out(one, "cat f") == b"one\n"
        await one.close()
        await one.close()
        with pytest.raises(SandboxInfrastructureError):
            await one.run("true", TIMEOUT_S)
        assert await out(two, "echo on") == b"on\n"


async def test_nothing_is_left_when_the_lease_is_given_back(
    broker: BrokerProcess, engine_api: docker.APIClient, new_run_id: Callable[[], str]
) -> None:
    run_id = new_run_id()
    async with BrokerSandbox(broker.socket, run_id) as sandbox:
        for name in ("one", "two"):
            await out(await sandbox.open(name), "true")
        assert left_of(engine_api, run_id) != (0, 0)
    assert left_of(engine_api, run_id) == (0, 0)


async def test_an_error_in_the_body_comes_out_as_it_is(
    broker: BrokerProcess, engine_api: docker.APIClient, new_run_id: Callable[[], str]
) -> None:
    run_id = new_run_id()

    async def body_that_fails() -> None:
        async with BrokerSandbox(broker.socket, run_id) as sandbox:
            await sandbox.open("one")
            raise RuntimeError("of the body")

    with pytest.raises(RuntimeError, match="of the body"):
        await body_that_fails()
    assert left_of(engine_api, run_id) == (0, 0)


async def test_cancelling_everything_leaves_nothing(
    broker: BrokerProcess, engine_api: docker.APIClient, new_run_id: Callable[[], str]
) -> None:
    run_id = new_run_id()
    with anyio.CancelScope() as scope:
        async with BrokerSandbox(broker.socket, run_id) as sandbox, anyio.create_task_group() as tasks:
            for name in ("one", "two"):
                tasks.start_soon((await sandbox.open(name)).run, "sleep 60", 60)
            await anyio.sleep(0.5)
            scope.cancel()
    assert scope.cancelled_caught
    assert left_of(engine_api, run_id) == (0, 0)


@pytest.mark.parametrize("delay_s", [0.01, 0.1, 0.3, 0.6])
async def test_cancelling_while_a_workspace_opens_leaves_nothing(
    broker: BrokerProcess, engine_api: docker.APIClient, new_run_id: Callable[[], str], delay_s: float
) -> None:
    run_id = new_run_id()
    async with BrokerSandbox(broker.socket, run_id) as sandbox:
        with anyio.move_on_after(delay_s):
            await (await sandbox.open("one")).run("sleep 60", 60)
    assert left_of(engine_api, run_id) == (0, 0)


async def test_a_cancelled_command_is_dead_soon_and_the_workspace_goes_on(
    broker: BrokerProcess, new_run_id: Callable[[], str]
) -> None:
    async with BrokerSandbox(broker.socket, new_run_id()) as sandbox:
        workspace = await sandbox.open("cancelled")
        with anyio.move_on_after(1.0):
            await workspace.run("while :; do date >> w; sleep 0.01; done", 60)
        sizes = [await out(workspace, "stat -c %s w") for _ in range(2)]
    assert sizes[0] == sizes[1] != b"0\n"


async def test_another_leases_workspace_is_out_of_reach(
    broker: BrokerProcess, new_run_id: Callable[[], str]
) -> None:
    async with (
        BrokerSandbox(broker.socket, new_run_id()) as mine,
        BrokerSandbox(broker.socket, new_run_id()) as other,
        raw(broker) as http,
    ):
        workspace = await other.open("theirs")
        await out(workspace, "echo kept > f")
        name = workspace._path.rsplit("/", 1)[1]  # type: ignore[attr-defined]
        held = mine._held
        assert held is not None
        place = f"{held.path}/workspaces/{quote(name)}"
        assert (await http.post(f"{place}/run?timeout_s=5", content=b"rm f")).status_code == 404
        assert (await http.delete(place)).status_code == 204
        assert await out(workspace, "cat f") == b"kept\n"


async def test_a_run_has_one_lease_at_a_time(broker: BrokerProcess, new_run_id: Callable[[], str]) -> None:
    run_id = new_run_id()
    async with BrokerSandbox(broker.socket, run_id) as sandbox, raw(broker) as http:
        with anyio.fail_after(60):
            answer = await http.post("/v1/leases", json={"version": 1, "run_id": run_id}, timeout=50)
        assert answer.status_code == 424
        assert "has a lease already" in answer.json()["message"]
        assert await out(await sandbox.open("one"), "echo on") == b"on\n"


async def test_what_the_host_cannot_take_waits_without_losing_its_time(
    tmp_path: Path, engine_api: docker.APIClient, policy: Policy, new_run_id: Callable[[], str]
) -> None:
    # One GiB is the system's; one command at its limit and its workspaces fit into the rest.
    with broker_process(tmp_path, policy, "--host-memory-bytes", str(1024 * MIB + 400 * MIB)) as broker:
        async with BrokerSandbox(broker.socket, new_run_id()) as sandbox, anyio.create_task_group() as tasks:
            capacity = await sandbox.capacity()
            assert (capacity.actions_at_once, capacity.workspaces_at_once) == (1, 6)
            assert capacity.notes
            spans: list[tuple[float, float]] = []

            async def work() -> None:
                workspace = await sandbox.open("one")
                result = await workspace.run("date +%s.%N; sleep 1; date +%s.%N", 1.9)
                assert result.exit_code == 0
                begun, ended = result.stdout.head.split()
                spans.append((float(begun), float(ended)))
                await workspace.close()

            for _ in range(3):
                tasks.start_soon(work)
        spans.sort()
        assert all(former[1] < latter[0] for former, latter in itertools.pairwise(spans))
        assert len(spans) == 3


async def test_a_workspace_waits_for_room_and_gets_it_when_another_is_closed(
    tmp_path: Path, engine_api: docker.APIClient, policy: Policy, new_run_id: Callable[[], str]
) -> None:
    small = policy.model_copy(update={"workspaces_at_once": 1, "actions_at_once": 1})
    with broker_process(tmp_path, small) as broker:
        async with BrokerSandbox(broker.socket, new_run_id()) as sandbox:
            first = await sandbox.open("first")
            with anyio.move_on_after(1) as waited:
                await sandbox.open("second")
            assert waited.cancelled_caught
            await first.close()
            with anyio.fail_after(10):
                assert await out(await sandbox.open("second"), "echo on") == b"on\n"
        # The lease's end gives room back too.
        async with BrokerSandbox(broker.socket, new_run_id()) as sandbox:
            with anyio.fail_after(10):
                await sandbox.open("third")


async def test_statistics_count_what_was_done(
    tmp_path: Path, engine_api: docker.APIClient, policy: Policy, new_run_id: Callable[[], str]
) -> None:
    single = policy.model_copy(update={"actions_at_once": 1})
    with broker_process(tmp_path, single) as broker:
        async with BrokerSandbox(broker.socket, new_run_id()) as sandbox:
            workspaces = [await sandbox.open(str(number)) for number in range(2)]
            async with anyio.create_task_group() as tasks:
                for workspace in workspaces:
                    tasks.start_soon(workspace.run, "sleep 2", 9)
                await anyio.sleep(1)
                during = await sandbox.statistics()
                assert (during.running, during.waiting, during.workspaces) == (1, 1, 2)
            await out(workspaces[0], "exit 1")
            with anyio.move_on_after(0.5):
                await workspaces[0].run("sleep 9", 9)
            await workspaces[1].close()
            after = await sandbox.statistics()
            while after.running:
                after = await sandbox.statistics()
        assert (after.actions, after.infrastructure_failures, after.leases, after.workspaces) == (3, 0, 1, 1)
        assert after.action_p90_s is not None
        assert 3.5 < after.action_p90_s < 6
        assert after.overhead_p50_s is not None
        assert after.overhead_p50_s < 1


FLOODS = ("yes", "yes >&2", "cat /dev/urandom", "yes & yes >&2")


async def test_floods_leave_the_brokers_memory_flat(
    tmp_path: Path, engine_api: docker.APIClient, policy: Policy, new_run_id: Callable[[], str]
) -> None:
    with broker_process(tmp_path, policy) as broker:
        async with BrokerSandbox(broker.socket, new_run_id()) as sandbox:
            workspaces = [await sandbox.open(str(number)) for number in range(8)]
            for workspace in workspaces:
                await out(workspace, "true")
            before = (await sandbox.statistics()).resident_bytes
            highest = before
            deadline = time.monotonic() + 8

            async def flood(workspace: Workspace, script: str) -> None:
                while time.monotonic() < deadline:
                    await workspace.run(script, 2)

            async with anyio.create_task_group() as tasks:
                for number, workspace in enumerate(workspaces):
                    tasks.start_soon(flood, workspace, FLOODS[number % len(FLOODS)])
                while time.monotonic() < deadline:
                    highest = max(highest, (await sandbox.statistics()).resident_bytes)
                    await anyio.sleep(0.2)
    assert highest - before < 32 * MIB


@pytest.mark.skipif(not PROTOCOL.is_dir(), reason="the golden trajectories are not ours to ship")
async def test_golden_trajectories_go_through_the_broker_as_they_do_without(
    tmp_path: Path, engine_api: docker.APIClient, new_run_id: Callable[[], str]
) -> None:
    with broker_process(tmp_path, Policy(workspaces_at_once=32)) as broker:
        sandbox = BrokerSandbox(broker.socket, new_run_id())
        pack = read_pack(PROTOCOL / "protocol.json")
        report = await check_trajectories(PROTOCOL / "trajectories.jsonl", pack, sandbox)
    assert list(report.lines()) == ["50 passed, 0 failed"]


async def test_many_clients_get_their_own_results(
    broker: BrokerProcess, engine_api: docker.APIClient, new_run_id: Callable[[], str]
) -> None:
    run_ids = [new_run_id() for _ in range(3)]
    wrong: list[bytes] = []

    async def client(run_id: str) -> None:
        async with BrokerSandbox(broker.socket, run_id) as sandbox, anyio.create_task_group() as tasks:

            async def trajectory(number: int) -> None:
                workspace = await sandbox.open(str(number))
                for _ in range(3):
                    token = f"{run_id}-{number}"
                    said = await out(workspace, f"echo {token} >> f; sort -u f")
                    if said != f"{token}\n".encode():
                        wrong.append(said)
                await workspace.close()

            for number in range(3):
                tasks.start_soon(trajectory, number)

    async with anyio.create_task_group() as clients:
        for run_id in run_ids:
            clients.start_soon(client, run_id)
    assert wrong == []
    assert [left_of(engine_api, run_id) for run_id in run_ids] == [(0, 0)] * 3


async def test_a_refused_lease_is_told_at_once(
    broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch, new_run_id: Callable[[], str]
) -> None:
    monkeypatch.setattr("sandbox.client.WIRE_VERSION", 999)
    with anyio.fail_after(5), pytest.raises(SandboxError, match="speaks version 999"):
        async with BrokerSandbox(broker.socket, new_run_id()):
            pass
