"""An engine whose connections break, played by a proxy in front of the real one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import anyio
import docker
import pytest

from sandbox import DockerSandbox, Policy, SandboxInfrastructureError
from sandbox.engine import LABEL_RUN

pytestmark = [pytest.mark.docker, pytest.mark.anyio]

ENGINE_SOCKET = "/var/run/docker.sock"


class Proxy:
    """Passes bytes both ways until it is told to be out of order."""

    def __init__(self, path: Path) -> None:
        self.url = f"unix://{path}"
        self._path = path
        self._server: asyncio.AbstractServer | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self.refusing = False

    async def start(self) -> None:
        self._server = await asyncio.start_unix_server(self._serve, str(self._path))

    def break_down(self) -> None:
        """Every connection is cut, and new ones are closed as they come."""
        self.refusing = True
        for writer in self._writers:
            writer.transport.abort()

    async def stop(self) -> None:
        self.break_down()
        if self._server is not None:
            self._server.close()
        await asyncio.sleep(0.1)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refusing:
            writer.close()
            return
        engine_reader, engine_writer = await asyncio.open_unix_connection(ENGINE_SOCKET)
        ends = {writer, engine_writer}
        self._writers |= ends
        try:
            await asyncio.wait(
                [
                    asyncio.ensure_future(self._pump(reader, engine_writer)),
                    asyncio.ensure_future(self._pump(engine_reader, writer)),
                ]
            )
        finally:
            self._writers -= ends
            for end in ends:
                end.close()

    @staticmethod
    async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass
        writer.close()


@pytest.fixture
async def proxy(tmp_path: Path, engine_api: docker.APIClient) -> AsyncIterator[Proxy]:
    started = Proxy(tmp_path / "engine.sock")
    await started.start()
    yield started
    await started.stop()


async def test_an_engine_lost_under_a_command_is_our_failure_and_the_command_counts_as_started(
    proxy: Proxy, policy: Policy, new_run_id: Callable[[], str]
) -> None:
    async with DockerSandbox(policy, new_run_id(), base_url=proxy.url) as sandbox:
        workspace = await sandbox.open("outage")
        await workspace.run("true", 9)

        async def break_soon() -> None:
            await anyio.sleep(0.5)
            proxy.break_down()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(break_soon)
            with pytest.raises(SandboxInfrastructureError) as caught:
                await workspace.run("sleep 30", 30)
        assert caught.value.command_started
        proxy.refusing = False
        again = await sandbox.open("again")
        assert (await again.run("echo on", 9)).stdout.head == b"on\n"


async def test_opening_waits_out_a_short_outage(
    proxy: Proxy, policy: Policy, new_run_id: Callable[[], str]
) -> None:
    async with DockerSandbox(policy, new_run_id(), base_url=proxy.url) as sandbox:
        proxy.break_down()

        async def recover() -> None:
            await anyio.sleep(1.5)
            proxy.refusing = False

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(recover)
            workspace = await sandbox.open("patient")
        assert (await workspace.run("echo on", 9)).stdout.head == b"on\n"


async def test_commands_die_with_the_connection(
    proxy: Proxy, policy: Policy, engine_api: docker.APIClient, new_run_id: Callable[[], str]
) -> None:
    run_id = new_run_id()
    async with DockerSandbox(policy, run_id, base_url=proxy.url) as sandbox:
        await (await sandbox.open("outage")).run("true", 9)
        proxy.break_down()
        with anyio.fail_after(20):
            while engine_api.containers(filters={"label": f"{LABEL_RUN}={run_id}"}):  # noqa: ASYNC110 - the engine has no event for us
                await anyio.sleep(0.1)
        proxy.refusing = False
