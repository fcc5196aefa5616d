"""When a run uses the cluster's sandboxes, and when this machine's."""

import importlib.util

import pytest
from fake_ray import FakeNode, FakeRuntime
from support.fake_sandbox import FakeSandbox

from runner.cluster.choice import ClusterOrLocalSandbox, sandbox_of_run, use_cluster
from runner.errors import UserError

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def _no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RAY_ADDRESS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        # Set and taken away: what a test's subject sets is then gone with the test.
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


@pytest.mark.parametrize("address", [None, "local"])
async def test_without_a_cluster_the_sandbox_is_this_machines(
    address: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = FakeSandbox()
    use_cluster(address)
    assert sandbox_of_run(local, "run", print) is local


@pytest.mark.skipif(importlib.util.find_spec("ray") is not None, reason="Ray is here")
async def test_a_cluster_without_ray_here_is_an_error_with_its_remedy() -> None:
    use_cluster("10.0.0.1:6379")
    with pytest.raises(UserError, match="there is no Ray here") as caught:
        sandbox_of_run(FakeSandbox(), "run", print)
    assert "RAY_ADDRESS" in (caught.value.remedy or "")


async def test_a_token_that_is_here_is_sent_to_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", "secret")
    use_cluster("10.0.0.1:6379")
    import os  # noqa: PLC0415 - what was set is looked at

    assert os.environ["RAY_AUTH_MODE"] == "token"


async def test_a_cluster_with_brokers_runs_the_commands() -> None:
    local, node = FakeSandbox(), FakeNode("ab", "10.0.0.1")
    chosen = ClusterOrLocalSandbox(local, "run", print, runtime=FakeRuntime(node))  # type: ignore[arg-type]
    async with chosen as sandbox:
        await sandbox.open("a")
        assert sandbox.capture_bytes == 65536
        assert (await sandbox.identity())["nodes"] == "10.0.0.1"
    assert node.opened == ["a"]


async def test_a_cluster_without_brokers_leaves_commands_to_this_machine_and_says_so() -> None:
    local, told = FakeSandbox(), list[str]()
    runtime = FakeRuntime(FakeNode("ab", "10.0.0.1", slots=0))
    async with ClusterOrLocalSandbox(local, "run", told.append, runtime=runtime) as sandbox:  # type: ignore[arg-type]
        await sandbox.open("a")
    assert runtime.stopped
    assert "this machine's sandboxes" in told[0]
