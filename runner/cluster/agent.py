"""The actor on each node that reaches the node's broker. Nothing here is called in the driver.

It passes on what it is asked, and decides nothing: which node a workspace is opened on, and what follows when
one is lost, is the driver's (`runner/cluster/sandbox.py`). Ray is not imported here, so that the class can be
tried without it.
"""

import os
import platform
from dataclasses import dataclass
from pathlib import Path

import anyio

from runner.cluster.nodes import NodeFacts, facts_here
from runner.groups import first_error_only
from sandbox import ActionResult, BrokerSandbox, SandboxError, SandboxInfrastructureError, Workspace
from sandbox.wire import Failure, FailureKind

BROKER_VARIABLE = "RECOUNT_BROKER"
BROKER_WAIT_S = 30.0
"""For a broker that starts beside its node, or is started again."""


@dataclass(frozen=True)
class Welcome:
    """What a node's broker granted this run, and what the node is."""

    facts: NodeFacts
    identity: dict[str, str]
    capture_bytes: int
    actions_at_once: int | None
    workspaces_at_once: int | None
    notes: tuple[str, ...]


class NodeAgent:
    """Holds a lease at its node's broker for as long as `serve` runs. The lease ends with this process.

    Errors are returned and not raised: what crosses Ray as an exception arrives as one of Ray's.
    """

    def __init__(self, run_id: str) -> None:
        """Nothing is asked for yet; the broker is the one that `RECOUNT_BROKER` of the node names."""
        self._run_id = run_id
        self._sandbox: BrokerSandbox | None = None
        self._workspaces: dict[str, Workspace] = {}
        self._opening: set[str] = set()
        self._given_up: set[str] = set()
        self._failure: Failure | None = None
        self._ready = anyio.Event()
        self._leaving = anyio.Event()

    async def serve(self) -> Failure | None:
        """Hold the lease until `leave`, or say why it ended. One task enters and leaves the client."""
        try:
            with first_error_only():
                async with BrokerSandbox(_socket(), self._run_id, wait_s=BROKER_WAIT_S) as sandbox:
                    self._sandbox = sandbox
                    self._ready.set()
                    async with anyio.create_task_group() as tasks:
                        tasks.start_soon(_raise_refusal, sandbox)
                        await self._leaving.wait()
                        tasks.cancel_scope.cancel()
        except SandboxError as error:
            self._failure = Failure.of(error)
        finally:
            self._sandbox = None
            self._ready.set()
        return self._failure

    async def welcome(self) -> Welcome | Failure:
        """Return what the broker granted, once it did."""
        await self._ready.wait()
        if self._sandbox is None:
            return self._failure or _lost()
        try:
            identity, capacity = await self._sandbox.identity(), await self._sandbox.capacity()
        except SandboxError as error:
            return Failure.of(error)
        return Welcome(
            facts=facts_here(identity),
            identity=identity,
            capture_bytes=self._sandbox.capture_bytes,
            actions_at_once=capacity.actions_at_once,
            workspaces_at_once=capacity.workspaces_at_once,
            notes=tuple(f"{platform.node()}: {note}" for note in capacity.notes),
        )

    async def open(self, name: str, workspace_id: str) -> Failure | None:
        """Open a workspace under a name of the caller's, who may give up and close it before it is there."""
        if self._sandbox is None:
            return _lost()
        self._opening.add(name)
        try:
            workspace = await self._sandbox.open(workspace_id)
        except SandboxError as error:
            return Failure.of(error)
        finally:
            self._opening.discard(name)
            given_up = name in self._given_up
            self._given_up.discard(name)
        if given_up:
            await workspace.close()
        else:
            self._workspaces[name] = workspace
        return None

    async def run(self, name: str, script: bytes, timeout_s: float) -> ActionResult | Failure:
        """Run a checked script. Cancelling this call, as Ray can for the driver, cancels it at the broker."""
        workspace = self._workspaces.get(name)
        if workspace is None:
            return Failure(kind=FailureKind.INFRASTRUCTURE, message="no such workspace on this node")
        try:
            return await workspace.run(script, timeout_s)
        except SandboxError as error:
            return Failure.of(error)

    async def close(self, name: str) -> None:
        """Close a workspace; one that is not there yet is closed when it is, and one that was is closed."""
        workspace = self._workspaces.pop(name, None)
        if workspace is not None:
            await workspace.close()
        elif name in self._opening:
            self._given_up.add(name)

    async def alive(self) -> None:
        """Answer: Ray does not notice a process that is stopped or hangs."""

    async def leave(self) -> None:
        """Let `serve` give the lease back; the broker removes all that was opened under it."""
        self._leaving.set()


async def _raise_refusal(sandbox: BrokerSandbox) -> None:
    """End the lease where the broker came back as another: the driver compares it anew, and leaves it out."""
    raise await sandbox.wait_refused()


def _socket() -> Path:
    path = os.environ.get(BROKER_VARIABLE)
    if not path:
        raise SandboxInfrastructureError(
            f"this node has a sandbox resource and names no broker ({BROKER_VARIABLE} is not set)",
            remedy="join it with `recount node`",
        )
    return Path(path)


def _lost() -> Failure:
    return Failure(
        kind=FailureKind.INFRASTRUCTURE, message="this node's agent has no lease at its broker (any more)"
    )
