"""A node's agent and the broker beside it."""

from pathlib import Path

import anyio
import pytest
from support.broker import BrokerProcess, broker_process

from runner.cluster.agent import BROKER_VARIABLE, NodeAgent, Welcome
from sandbox import Policy
from sandbox.wire import Failure, FailureKind

pytestmark = [pytest.mark.docker, pytest.mark.anyio]

POLICY = Policy(memory_bytes=192 << 20, pids=64, workspace_bytes=16 << 20, workspace_inodes=1000)


async def test_an_agent_ends_where_its_broker_comes_back_with_another_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[Failure | None] = []
    with broker_process(tmp_path, POLICY) as broker:
        monkeypatch.setenv(BROKER_VARIABLE, str(broker.socket))
        agent = NodeAgent("test-agent")

        async def serve() -> None:
            ended.append(await agent.serve())

        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(serve)
                assert isinstance(await agent.welcome(), Welcome)
                broker.kill()
                other = BrokerProcess(tmp_path, POLICY.model_copy(update={"pids": 65}))
                await anyio.to_thread.run_sync(other.start)
        try:
            (failure,) = ended
            assert failure is not None
            assert failure.kind is FailureKind.PREREQUISITE
            assert "came back as another" in failure.message
        finally:
            other.kill()
