"""A cluster without Ray: nodes that come and go, and agents whose sandboxes are words."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from runner.cluster.agent import Welcome
from runner.cluster.nodes import HEAD_RESOURCE, SANDBOX_RESOURCE, facts_here
from sandbox import ActionResult, Usage
from sandbox.types import CapturedStream
from sandbox.wire import Failure, FailureKind

IDENTITY = {"kind": "docker", "image_contents_sha256": "ab" * 32, "policy_sha256": "cd" * 32, "kernel": "6.1"}


class RayError(Exception):
    """Stands for `ray.exceptions.RayError`."""


@dataclass
class FakeNode:
    """One machine; `holds` keeps its commands from ending, `stopped` its agents from answering anything."""

    id: str
    address: str
    slots: int = 4
    identity: dict[str, str] = field(default_factory=lambda: dict(IDENTITY))
    refuses: Failure | None = None
    opening_fails: FailureKind | None = None
    running_fails: bool = False
    alive: bool = True
    is_head: bool = False
    holds: bool = False
    stopped: bool = False
    opened: list[str] = field(default_factory=list)
    closed: list[str] = field(default_factory=list)
    begun: int = 0
    cancelled: int = 0
    agents: list[FakeAgent] = field(default_factory=list)

    def row(self) -> dict[str, Any]:
        resources = {"CPU": 4.0} | ({SANDBOX_RESOURCE: float(self.slots)} if self.slots else {})
        resources |= {HEAD_RESOURCE: 1.0} if self.is_head else {}
        return {
            "NodeID": self.id,
            "NodeManagerAddress": self.address,
            "Alive": self.alive,
            "Resources": resources,
            "Labels": {},
        }


class Reference:
    """An answer to come. As Ray's, it is not taken back by whoever stops waiting for it."""

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self.task = task
        task.add_done_callback(lambda done: done.cancelled() or done.exception())

    def __await__(self) -> Generator[Any, None, Any]:
        return asyncio.shield(self.task).__await__()


class _Method:
    """`agent.method.remote(...)`."""

    def __init__(self, agent: FakeAgent, call: Callable[..., Coroutine[Any, Any, Any]]) -> None:
        self._agent, self._call = agent, call

    def remote(self, *arguments: Any) -> Reference:
        return self._agent.begin(self._call(*arguments))


class FakeAgent:
    """The agent on one node."""

    def __init__(self, node: FakeNode, run_id: str) -> None:
        self.node, self.run_id = node, run_id
        self.dead = asyncio.Event()
        self.left = asyncio.Event()
        for name in ("serve", "welcome", "open", "run", "close", "alive", "leave"):
            setattr(self, name, _Method(self, getattr(self, f"_{name}")))
        node.agents.append(self)

    def begin(self, work: Coroutine[Any, Any, Any]) -> Reference:
        async def when_it_runs() -> Any:
            try:
                while self.node.stopped:  # noqa: ASYNC110 - set and taken back by tests
                    await asyncio.sleep(0.01)
            except BaseException:
                work.close()
                raise
            return await work

        async def until_dead() -> Any:
            task, death = asyncio.ensure_future(when_it_runs()), asyncio.ensure_future(self.dead.wait())
            try:
                await asyncio.wait({task, death}, return_when=asyncio.FIRST_COMPLETED)
                if not task.done():
                    raise RayError("the actor died")
                return task.result()
            finally:
                for one in (task, death):
                    one.cancel()

        return Reference(asyncio.create_task(until_dead()))

    async def _serve(self) -> Failure | None:
        if self.node.refuses is not None:
            return self.node.refuses
        await self.left.wait()
        return None

    async def _welcome(self) -> Welcome | Failure:
        identity = self.node.identity
        return self.node.refuses or Welcome(facts_here(identity), identity, 65536, 4, 100, ())

    async def _open(self, name: str, workspace_id: str) -> Failure | None:
        if self.node.opening_fails is not None:
            return Failure(kind=self.node.opening_fails, message="the daemon does not answer")
        self.node.opened.append(workspace_id)
        return None

    async def _run(self, name: str, script: bytes, timeout_s: float) -> ActionResult | Failure:
        self.node.begun += 1
        if self.node.running_fails:
            await asyncio.sleep(0.01)
            return Failure(kind=FailureKind.INFRASTRUCTURE, message="no space left on device")
        try:
            while self.node.holds:  # noqa: ASYNC110 - set and taken back by tests
                await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            self.node.cancelled += 1
            raise
        output = CapturedStream(f"{self.node.address} {script.decode()}".encode(), b"", 0, None)
        return ActionResult(output, output, 0, False, (), Usage(0.0, None, None, None))

    async def _close(self, name: str) -> None:
        self.node.closed.append(name)

    async def _alive(self) -> None:
        return

    async def _leave(self) -> None:
        self.left.set()


class FakeRuntime:
    """What `RayRuntime` is to its users."""

    def __init__(self, *nodes: FakeNode) -> None:
        self.nodes = list(nodes)
        self.answers = True
        self.stopped = False
        self.ray: Any = SimpleNamespace(
            nodes=lambda: [one.row() for one in self.nodes],
            kill=lambda agent: agent.dead.set(),
            cancel=lambda reference: reference.task.cancel(),
            remote=self._remote,
            exceptions=SimpleNamespace(RayError=RayError),
            util=SimpleNamespace(
                scheduling_strategies=SimpleNamespace(
                    NodeAffinitySchedulingStrategy=lambda node_id, **_: node_id
                )
            ),
        )

    def _remote(self, _: type) -> Any:
        def options(*, scheduling_strategy: str, **__: Any) -> Any:
            node = next(one for one in self.nodes if one.id == scheduling_strategy)
            return SimpleNamespace(remote=lambda run_id: FakeAgent(node, run_id))

        return SimpleNamespace(options=options)

    async def start(self) -> None:
        """It runs."""

    async def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        while not self.answers:  # noqa: ASYNC110 - as a head does not answer: for good, or for a while
            await asyncio.sleep(0.01)
        return function(*arguments)

    async def stop(self) -> None:
        self.stopped = True

    def lose(self, node: FakeNode) -> None:
        """The machine is gone, and Ray says so."""
        node.alive = False
        for agent in node.agents:
            agent.dead.set()
