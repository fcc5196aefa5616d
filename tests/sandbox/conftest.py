"""Fixtures of the sandbox's tests. Those marked `docker` use a real engine and the real image."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Callable, Iterator

import docker
import pytest
from support.broker import BrokerProcess, broker_process

from sandbox import DockerSandbox, Policy, SandboxPrerequisiteError, Workspace
from sandbox.preflight import connect, inspect_engine

MIB = 1 << 20

# Small, so that running into a limit takes a moment only.
TEST_POLICY = Policy(
    memory_bytes=192 * MIB,
    pids=64,
    workspace_bytes=32 * MIB,
    workspace_inodes=2000,
    fsize_bytes=64 * MIB,
    output_limit_bytes=64 * MIB,
    capture_bytes=4096,
)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def engine_api() -> Iterator[docker.APIClient]:
    """A client of the engine, or a skip that says what is missing."""
    try:
        api = connect()
        inspect_engine(api, TEST_POLICY, "preflight")
    except SandboxPrerequisiteError as error:
        pytest.skip(f"no usable Docker engine: {error}")
    yield api
    api.close()


@pytest.fixture(scope="session")
def policy() -> Policy:
    return TEST_POLICY


@pytest.fixture
def new_run_id() -> Callable[[], str]:
    return lambda: f"test-{uuid.uuid4().hex[:12]}"


@pytest.fixture(scope="module")
async def docker_sandbox(anyio_backend: str, engine_api: docker.APIClient) -> AsyncIterator[DockerSandbox]:
    async with DockerSandbox(TEST_POLICY, f"test-{uuid.uuid4().hex[:12]}") as sandbox:
        yield sandbox


@pytest.fixture
async def workspace(docker_sandbox: DockerSandbox) -> AsyncIterator[Workspace]:
    opened = await docker_sandbox.open("test")
    yield opened
    await opened.close()


@pytest.fixture(scope="module")
def broker(
    tmp_path_factory: pytest.TempPathFactory, engine_api: docker.APIClient, policy: Policy
) -> Iterator[BrokerProcess]:
    with broker_process(tmp_path_factory.mktemp("broker"), policy) as process:
        yield process
        assert process.stop() == 0
