"""The driver's side of one node with a broker: its agent, what is open there, and what waits for it."""

import itertools
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar

import anyio

from runner.cluster.agent import NodeAgent, Welcome
from runner.cluster.nodes import Node
from runner.cluster.silence import SILENCE_S, wait_silent
from runner.engines.vllm.ray_runtime import RayRuntime
from runner.engines.vllm.wire import Foreign
from runner.groups import first_of
from sandbox import ActionResult, SandboxError, SandboxInfrastructureError
from sandbox.wire import Failure

T = TypeVar("T")

AGENT_CALLS = 4096
"""At once, of one agent: every command waits in one, and a node has fewer slots than this."""
MAKE_TIMEOUT_S = 60.0
WELCOME_TIMEOUT_S = 300.0
"""For a worker process to start, a broker to come up and a lease to be granted, which it bounds itself."""
OPEN_TIMEOUT_S = 1500.0
"""Above what a broker takes to make room and to make the workspace (20 min)."""
RUN_EXTRA_S = 3000.0
"""Above what a broker's client waits beside the command's own time (45 min)."""
CLOSE_TIMEOUT_S = 200.0
LEAVE_TIMEOUT_S = 200.0
"""Above what a broker takes at most to remove everything of a lease (3 min)."""
LEAVE_ANSWER_TIMEOUT_S = 4.0
"""For an agent to have heard that it is to leave; one that is stopped does not hear, and is killed."""
KILL_TIMEOUT_S = 5.0
FIRST_REST_S = 5.0
LONGEST_REST_S = 60.0
_CAUSE_CHARS = 300
_RUN_CHARS = 80
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.-]")


class ClusterLostError(SandboxError):
    """The head does not answer: nothing of the cluster is known any more, and no retry here can mend that."""


@dataclass(eq=False)
class Host:
    """One node with an agent. `open` counts workspaces, those that are being opened included."""

    node: Node
    actor: Foreign
    welcome: Welcome
    runtime: RayRuntime
    served: Foreign
    """The answer that comes when the agent's lease ends."""
    open: int = 0
    resting_until: float = 0.0
    """On the event loop's clock: when a node that failed may be given workspaces again."""
    _failures: int = 0
    lost: SandboxError | None = None
    _requests: set[anyio.CancelScope] = field(default_factory=set)
    _names: "itertools.count[int]" = field(default_factory=itertools.count)

    @property
    def slots(self) -> int:
        """Workspaces that may be open at once: what the node offers, and no more than its broker allows."""
        allowed = self.welcome.workspaces_at_once
        return self.node.slots if allowed is None else min(self.node.slots, allowed)

    @property
    def load(self) -> float:
        """Open workspaces over slots."""
        return self.open / max(self.slots, 1)

    def lose(self, error: SandboxError) -> None:
        """Fail everything that waits for the node, now and from now on."""
        if self.lost is None:
            self.lost = error
            for scope in self._requests:
                scope.cancel()

    @property
    def has_room(self) -> bool:
        """Whether a workspace may be opened; where commands fail, one at a time until one does not.

        Such a node ends its workspaces the soonest, so it would be given most of a run's trajectories and
        use up their attempts.
        """
        return self.open < (1 if self._failures else self.slots)

    def rest(self) -> None:
        """Take note that something of ours failed there: others go first for a while.

        What fails while it rests was begun before, and is the same failure.
        """
        if anyio.current_time() < self.resting_until:
            return
        pause_s = min(FIRST_REST_S * 2**self._failures, LONGEST_REST_S)
        self._failures += 1
        self.resting_until = anyio.current_time() + pause_s

    def works(self) -> None:
        """Take note that a command ran, whatever it ended with."""
        self._failures, self.resting_until = 0, 0.0

    def new_name(self) -> str:
        """Return a name for a workspace; the driver names it, to close also one whose opening it gave up."""
        return f"w{next(self._names)}"

    async def open_workspace(self, name: str, workspace_id: str) -> None:
        """Open a workspace under that name."""
        try:
            reply = await self._ask(
                lambda: self.actor.open.remote(name, workspace_id), OPEN_TIMEOUT_S, "opening a workspace"
            )
        except BaseException:
            self.forget(name)
            raise
        if isinstance(reply, Failure):
            raise self._told(reply)

    async def run(self, name: str, script: bytes, timeout_s: float) -> ActionResult:
        """Run a script there that was checked (`check_script`), which also bounds it."""
        reply: ActionResult | Failure = await self._ask(
            lambda: self.actor.run.remote(name, script, timeout_s),
            timeout_s + RUN_EXTRA_S,
            "a command",
            command_started=True,
        )
        if isinstance(reply, Failure):
            raise self._told(reply)
        return reply

    async def close_workspace(self, name: str) -> None:
        """Close a workspace and wait for it; one that went with its node is closed."""
        with suppress(SandboxError):
            # Whoever does not want to wait for it still wants it closed.
            await self._ask(
                lambda: self.actor.close.remote(name), CLOSE_TIMEOUT_S, "closing a workspace", cancels=False
            )

    def forget(self, name: str) -> None:
        """Have a workspace closed without waiting for it."""
        if self.lost is None:
            with suppress(self.runtime.ray.exceptions.RayError):
                self.actor.close.remote(name)

    async def wait_lost(self) -> SandboxError:
        """Return why, once the agent has no lease any more or gives no sign of life."""
        return await first_of(self._ended, self._silent)

    async def _silent(self) -> SandboxError:
        try:
            await wait_silent(lambda: ended_by_ray(self.runtime, self.actor.alive.remote()))
        except SandboxInfrastructureError as error:
            return error
        return SandboxInfrastructureError(
            f"node {self.node.address}: its agent said nothing for {SILENCE_S:g} s"
        )

    async def _ended(self) -> SandboxError:
        try:
            failure: Failure | None = await ended_by_ray(self.runtime, self.served, cancels=False)
        except SandboxInfrastructureError as error:
            return error
        if failure is None:
            return SandboxInfrastructureError(f"node {self.node.address} has let its lease go")
        return self._told(failure)

    async def leave(self) -> None:
        """Have the lease given back and wait until the broker has removed what was open under it.

        Also where the head is lost: an agent is asked directly, and is still there.
        """
        knows_head = not isinstance(self.lost, ClusterLostError)
        if self.lost is None or not knows_head:
            with anyio.move_on_after(LEAVE_TIMEOUT_S), suppress(SandboxError, TimeoutError):
                with anyio.fail_after(LEAVE_ANSWER_TIMEOUT_S):
                    await ended_by_ray(self.runtime, self.actor.leave.remote(), cancels=False)
                await ended_by_ray(self.runtime, self.served, cancels=False)
        if knows_head:
            await kill(self.runtime, self.actor)

    async def _ask(
        self,
        call: Callable[[], Awaitable[T]],
        limit_s: float,
        what: str,
        *,
        command_started: bool = False,
        cancels: bool = True,
    ) -> T:
        """Ask the agent, within a bound; whoever stops waiting cancels the call, and the work with it."""
        if self.lost is not None:
            raise self._as_raised(self.lost, command_started=command_started)
        with anyio.CancelScope() as scope:
            self._requests.add(scope)
            try:
                with anyio.fail_after(limit_s):
                    return await ended_by_ray(
                        self.runtime, call(), command_started=command_started, cancels=cancels
                    )
            except TimeoutError as error:
                raise SandboxInfrastructureError(
                    f"node {self.node.address}: {what} took more than {limit_s:g} s",
                    command_started=command_started,
                ) from error
            finally:
                self._requests.discard(scope)
        # Only `lose` cancels that scope.
        raise self._as_raised(self.lost, command_started=command_started)

    def _told(self, failure: Failure) -> SandboxError:
        """Return what the broker said, as a failure of this node: a run does not end for one of several."""
        return SandboxInfrastructureError(
            f"node {self.node.address}: {failure.message}",
            failure.remedy,
            command_started=failure.command_started,
        )

    def _as_raised(self, error: SandboxError | None, *, command_started: bool) -> SandboxError:
        """Return a fresh error: one object is not raised in many tasks."""
        message = "lost" if error is None else error.message
        if isinstance(error, ClusterLostError):
            return ClusterLostError(message, error.remedy)
        return SandboxInfrastructureError(message, command_started=command_started)


async def join(runtime: RayRuntime, node: Node, run_id: str) -> Host:
    """Start an agent on a node and have it ask for a lease there. Raises `SandboxError` that names the node.

    The lease is labelled with the run and the node's address: several nodes may use one Docker engine, and
    each sweeps what is its own; a machine that comes back after a power cut, what it had before.
    """
    actor = None
    try:
        with anyio.fail_after(MAKE_TIMEOUT_S):
            actor = await runtime.call(_make_agent, runtime.ray, node, label_of(run_id, node))
        served = actor.serve.remote()
        with anyio.fail_after(WELCOME_TIMEOUT_S):
            reply: Welcome | Failure = await ended_by_ray(runtime, actor.welcome.remote())
    except BaseException as error:
        await kill(runtime, actor)
        if isinstance(error, TimeoutError):
            raise SandboxInfrastructureError(
                f"node {node.address}: no agent with a lease within {WELCOME_TIMEOUT_S:g} s"
            ) from error
        if isinstance(error, SandboxInfrastructureError):
            raise SandboxInfrastructureError(f"node {node.address}: {error.message}") from error
        raise
    if isinstance(reply, Failure):
        await kill(runtime, actor)
        failure = reply.error()
        failure.message = f"node {node.address}: {failure.message}"
        raise failure
    return Host(node, actor, reply, runtime, served)


def label_of(run_id: str, node: Node) -> str:
    """Return the name of a run on one node, which everything is labelled with that it has there."""
    return f"{run_id[:_RUN_CHARS]}.{_NOT_IN_NAMES.sub('-', node.address)}"


async def ended_by_ray(
    runtime: RayRuntime, ref: Awaitable[T], *, command_started: bool = False, cancels: bool = True
) -> T:
    """Wait for an agent's answer; what Ray itself has to say is a failure of the infrastructure.

    Whoever stops waiting cancels the call, where it `cancels`.
    """
    ray = runtime.ray
    try:
        return await ref
    except ray.exceptions.RayError as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        text = f"{type(error).__name__}: {(lines or [''])[0]}"[:_CAUSE_CHARS]
        raise SandboxInfrastructureError(
            f"the node or its agent was lost: {text}", command_started=command_started
        ) from error
    except BaseException:
        if cancels:
            with suppress(ray.exceptions.RayError):
                ray.cancel(ref)
        raise


async def kill(runtime: RayRuntime, actor: Foreign) -> None:
    """End an agent's process, and its lease with it; bounded, since it is the head that is asked."""
    if actor is not None:
        with anyio.move_on_after(KILL_TIMEOUT_S, shield=True), suppress(runtime.ray.exceptions.RayError):
            await runtime.call(runtime.ray.kill, actor)


def _make_agent(ray: Foreign, node: Node, run_id: str) -> Foreign:
    """Blocks until Ray has taken note of the actor, not until it runs."""
    pinned = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node.id, soft=False)
    return (
        ray.remote(NodeAgent)
        .options(
            num_cpus=0,
            max_concurrency=AGENT_CALLS,
            max_restarts=0,
            scheduling_strategy=pinned,
        )
        .remote(run_id)
    )
