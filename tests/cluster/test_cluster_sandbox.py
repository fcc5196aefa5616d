"""Which node a workspace is opened on, and what follows when nodes and the head come and go."""

from collections.abc import Callable
from contextlib import suppress

import anyio
import pytest
from fake_ray import IDENTITY, FakeNode, FakeRuntime

import runner.cluster.sandbox as module
from runner.breaker import fault_of
from runner.cluster import host, members, silence
from runner.cluster.host import ClusterLostError
from runner.cluster.sandbox import ClusterSandbox
from runner.events import Fault
from sandbox import SandboxError, SandboxInfrastructureError, SandboxPrerequisiteError
from sandbox.wire import Failure, FailureKind

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members, "NODES_INTERVAL_S", 0.02)
    monkeypatch.setattr(members, "REJOIN_PAUSE_S", 0.05)
    monkeypatch.setattr(module, "RESTING_INTERVAL_S", 0.02)
    monkeypatch.setattr(module, "NO_NODE_TIMEOUT_S", 0.2)


def of(runtime: FakeRuntime, told: list[str] | None = None, **options: float) -> ClusterSandbox:
    tell = [].append if told is None else told.append
    return ClusterSandbox("run", tell=tell, runtime=runtime, **options)  # type: ignore[arg-type]


async def until(holds: Callable[[], bool]) -> None:
    with anyio.fail_after(10):
        while not holds():  # noqa: ASYNC110 - what is waited for is seen from outside
            await anyio.sleep(0.01)


def nodes(*slots: int) -> list[FakeNode]:
    return [
        FakeNode(f"{number:08x}", f"10.0.0.{number + 1}", slots=many) for number, many in enumerate(slots)
    ]


async def test_workspaces_go_where_there_is_most_room_for_the_nodes_size() -> None:
    small, large, none = nodes(2, 6, 0)
    async with of(FakeRuntime(small, large, none)) as sandbox:
        for number in range(8):
            await sandbox.open(f"t{number}")
        assert (len(small.opened), len(large.opened), none.agents) == (2, 6, [])
        assert (await sandbox.capacity()).workspaces_at_once == 8
        assert (await sandbox.capacity()).actions_at_once == 8


async def test_a_workspace_stays_on_its_node() -> None:
    first, second = nodes(2, 2)
    async with of(FakeRuntime(first, second)) as sandbox:
        one, other = await sandbox.open("a"), await sandbox.open("b")
        for _ in range(3):
            ran = [await each.run("x", 5.0) for each in (one, other)]
            assert [each.stdout.head for each in ran] == [b"10.0.0.1 x", b"10.0.0.2 x"]
            assert [each.node for each in ran] == ["10.0.0.1", "10.0.0.2"]


async def test_a_full_cluster_makes_the_next_one_wait_until_a_workspace_is_closed() -> None:
    (only,) = nodes(1)
    async with of(FakeRuntime(only)) as sandbox:
        first = await sandbox.open("a")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(sandbox.open, "b")
            await anyio.sleep(0.05)
            assert only.opened == ["a"]
            await first.close()
            await first.close()  # closing twice is closing once
        assert only.opened == ["a", "b"]


async def test_a_lost_node_fails_its_commands_as_ours_and_the_others_go_on() -> None:
    first, second = nodes(4, 4)
    runtime, told = FakeRuntime(first, second), list[str]()
    async with of(runtime, told) as sandbox:
        here, there = await sandbox.open("a"), await sandbox.open("b")
        first.holds = True
        async with anyio.create_task_group() as tasks:

            async def is_lost() -> None:
                with pytest.raises(SandboxInfrastructureError) as caught:
                    await here.run("sleep", 5.0)
                assert caught.value.command_started
                assert fault_of(caught.value) is Fault.SANDBOX

            tasks.start_soon(is_lost)
            await until(lambda: first.begun == 1)
            runtime.lose(first)
        with pytest.raises(SandboxInfrastructureError):
            await here.run("again", 5.0)
        await here.close()
        assert (await there.run("x", 5.0)).exit_code == 0
        await sandbox.open("c")
        assert second.opened == ["b", "c"]
        assert (await sandbox.capacity()).workspaces_at_once == 4
    assert any("10.0.0.1" in line and "1 workspaces were open there" in line for line in told)


async def test_a_node_that_joins_is_used() -> None:
    first, second = nodes(2, 2)
    runtime, told = FakeRuntime(first), list[str]()
    async with of(runtime, told) as sandbox:
        await sandbox.open("a")
        runtime.nodes.append(second)
        await until(lambda: bool(told))
        await sandbox.open("b")
        assert second.opened == ["b"]
        assert (await sandbox.identity())["nodes"] == "10.0.0.1 10.0.0.2"
    assert told == ["node 10.0.0.2 joined: 2 workspaces"]


async def test_an_agent_that_died_is_made_again_on_its_node() -> None:
    (only,) = nodes(2)
    runtime = FakeRuntime(only)
    async with of(runtime) as sandbox:
        await sandbox.open("a")
        only.agents[0].dead.set()
        await until(lambda: len(only.agents) == 2)
        await sandbox.open("b")
        assert only.opened == ["a", "b"]


async def test_without_any_node_left_opening_fails_as_ours_so_that_the_run_pauses() -> None:
    (only,) = nodes(2)
    runtime, told = FakeRuntime(only), list[str]()
    async with of(runtime, told) as sandbox:
        runtime.lose(only)
        await until(lambda: bool(told))
        with pytest.raises(SandboxInfrastructureError, match="no node of the cluster"):
            await sandbox.open("a")


@pytest.mark.parametrize("kind", [FailureKind.INFRASTRUCTURE, FailureKind.PREREQUISITE])
async def test_a_node_whose_sandboxes_fail_is_passed_over_while_another_works(kind: FailureKind) -> None:
    broken, works = nodes(4, 4)
    broken.opening_fails = kind
    async with of(FakeRuntime(broken, works)) as sandbox:
        with pytest.raises(SandboxInfrastructureError, match=r"10\.0\.0\.1"):
            await sandbox.open("t0")
        for number in range(1, 4):
            await sandbox.open(f"t{number}")
        assert works.opened == ["t1", "t2", "t3"]


async def test_a_node_whose_agent_is_stopped_is_lost_and_used_again_when_it_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(silence, "INTERVAL_S", 0.02)
    monkeypatch.setattr(silence, "ANSWER_TIMEOUT_S", 0.1)
    stopped, works = nodes(4, 4)
    runtime, told = FakeRuntime(stopped, works), list[str]()
    async with of(runtime, told) as sandbox:
        workspace = await sandbox.open("a")
        stopped.stopped = True
        with anyio.fail_after(5), pytest.raises(SandboxInfrastructureError, match="said nothing"):
            await workspace.run("x", 5.0)
        for number in range(3):
            await sandbox.open(f"t{number}")
        assert len(works.opened) == 3
        await until(stopped.agents[0].dead.is_set)  # it holds the lease that the next one needs
        stopped.stopped = False
        await until(lambda: "node 10.0.0.1 joined: 4 workspaces" in told)


async def test_leaving_does_not_wait_for_an_agent_that_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "LEAVE_ANSWER_TIMEOUT_S", 0.1)
    stopped, works = nodes(2, 2)
    with anyio.fail_after(5):
        async with of(FakeRuntime(stopped, works)):
            stopped.stopped = True
    assert works.agents[0].left.is_set()
    assert stopped.agents[0].dead.is_set()


async def test_a_node_that_opens_workspaces_and_runs_nothing_is_tried_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(host, "FIRST_REST_S", 0.05)
    monkeypatch.setattr(host, "LONGEST_REST_S", 0.05)
    broken, works = nodes(8, 8)
    broken.running_fails = works.holds = True
    async with of(FakeRuntime(broken, works)) as sandbox:

        async def attempts() -> None:
            while True:
                workspace = await sandbox.open("t")
                try:
                    with suppress(SandboxInfrastructureError):
                        await workspace.run("x", 5.0)
                finally:
                    await workspace.close()

        async with anyio.create_task_group() as tasks:
            for _ in range(16):
                tasks.start_soon(attempts)
            await anyio.sleep(1.0)
            tasks.cancel_scope.cancel()
        # Eight at once before anything was known of it, then one in a rest of 50 ms.
        assert broken.begun <= 8 + 20
        broken.running_fails = works.holds = False
        await anyio.sleep(0.06)
        mended = [await sandbox.open(f"m{number}") for number in range(2)]
        for one in mended:
            await one.run("x", 5.0)
        with anyio.fail_after(5):
            for number in range(14):
                await sandbox.open(f"n{number}")  # all places are there again


async def test_what_fails_at_once_is_one_failure_of_its_node() -> None:
    (only,) = nodes(8)
    async with of(FakeRuntime(only)) as sandbox:
        opened = [await sandbox.open(f"t{number}") for number in range(8)]
        only.running_fails = True

        async def fails(number: int) -> None:
            with pytest.raises(SandboxInfrastructureError):
                await opened[number].run("x", 5.0)

        async with anyio.create_task_group() as tasks:
            for number in range(8):
                tasks.start_soon(fails, number)
        (resting,) = sandbox._members.hosts
        assert 0 < resting.resting_until - anyio.current_time() <= host.FIRST_REST_S


async def test_cancelling_a_command_cancels_it_at_its_node() -> None:
    (only,) = nodes(2)
    async with of(FakeRuntime(only)) as sandbox:
        workspace = await sandbox.open("a")
        only.holds = True
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(workspace.run, "sleep", 5.0)
            await until(lambda: only.begun == 1)
            tasks.cancel_scope.cancel()
        await until(lambda: only.cancelled == 1)
        only.holds = False
        assert (await workspace.run("x", 5.0)).exit_code == 0


async def test_a_head_that_says_nothing_ends_the_run_and_not_only_an_attempt() -> None:
    (only,) = nodes(2)
    runtime, told = FakeRuntime(only), list[str]()
    async with of(runtime, told, head_silence_s=0.1) as sandbox:
        workspace = await sandbox.open("a")
        only.holds = True
        async with anyio.create_task_group() as tasks:

            async def ends() -> None:
                with pytest.raises(ClusterLostError, match="said nothing"):
                    await workspace.run("sleep", 5.0)

            tasks.start_soon(ends)
            await until(lambda: only.begun == 1)
            runtime.answers = False
        with pytest.raises(ClusterLostError) as caught:
            await sandbox.open("b")
        # Neither the scheduler nor the breaker takes it for a failure that another attempt could mend.
        assert not isinstance(caught.value, SandboxInfrastructureError)
        assert fault_of(caught.value) is None
    assert runtime.stopped
    assert only.agents[0].left.is_set()  # an agent is asked without the head, and gives its lease back
    assert any("can be gone on with" in line for line in told)


async def test_nodes_that_differ_in_what_a_command_sees_are_an_error_before_the_run() -> None:
    first, second = nodes(2, 2)
    second.identity = IDENTITY | {"image_contents_sha256": "ef" * 32, "kernel": "6.6"}
    runtime = FakeRuntime(first, second)
    with pytest.raises(SandboxPrerequisiteError, match="image_contents_sha256") as caught:
        async with of(runtime):
            pytest.fail("it was entered")
    assert "kernel" not in caught.value.message  # another kernel is recorded and refuses nothing
    assert runtime.stopped


async def test_a_node_that_joins_and_differs_is_told_of_and_not_used() -> None:
    first, second = nodes(1, 2)
    second.identity = IDENTITY | {"policy_sha256": "00" * 32}
    runtime, told = FakeRuntime(first), list[str]()
    async with of(runtime, told) as sandbox:
        runtime.nodes.append(second)
        await until(lambda: bool(told))
        assert (await sandbox.capacity()).workspaces_at_once == 1
    assert len(told) == 1
    assert "policy_sha256" in told[0]
    assert second.agents[0].left.is_set()


async def test_a_node_without_its_broker_is_told_of_and_the_run_begins_on_the_others() -> None:
    first, second = nodes(2, 2)
    second.refuses = Failure(kind=FailureKind.PREREQUISITE, message="no broker serves us")
    told: list[str] = []
    async with of(FakeRuntime(first, second), told) as sandbox:
        await sandbox.open("a")
        assert first.opened == ["a"]
    assert told[0] == "node 10.0.0.2: no broker serves us; the run begins without it"


async def test_a_cluster_whose_brokers_all_refuse_is_an_error_with_their_words() -> None:
    (only,) = nodes(2)
    only.refuses = Failure(kind=FailureKind.PREREQUISITE, message="no broker serves us")
    with pytest.raises(SandboxError, match=r"10\.0\.0\.1: no broker serves us"):
        async with of(FakeRuntime(only)):
            pytest.fail("it was entered")


async def test_leaving_gives_every_lease_back_and_the_connection() -> None:
    first, second = nodes(2, 2)
    runtime = FakeRuntime(first, second)
    async with of(runtime) as sandbox:
        await sandbox.open("a")
    assert all(one.agents[0].left.is_set() and one.agents[0].dead.is_set() for one in (first, second))
    assert runtime.stopped


async def test_leases_are_labelled_with_run_and_node_since_nodes_may_share_an_engine() -> None:
    first, second = nodes(2, 2)
    async with of(FakeRuntime(first, second)):
        labels = {one.agents[0].run_id for one in (first, second)}
    assert labels == {"run.10.0.0.1", "run.10.0.0.2"}
