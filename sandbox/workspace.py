"""One trajectory's files and network namespace, and its commands, each in a container of its own."""

from __future__ import annotations

import math
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import anyio
import tenacity
from anyio.abc import TaskGroup
from typing_extensions import override

from sandbox import specs
from sandbox.container import AgentContainer
from sandbox.engine import Engine
from sandbox.errors import SandboxError, SandboxInfrastructureError
from sandbox.frames import check_script
from sandbox.policy import Policy
from sandbox.removal import ANSWER_FIRST_S, LET_IT_END_S, Janitor, Removal
from sandbox.types import ActionResult, Workspace

T = TypeVar("T")

# Starting waits while this many removals do: dead containers must not pile up faster than they go.
MOST_PENDING_REMOVALS = 64
LONGEST_RETRY_WAIT_S = 5.0
# Killing after a failure or a cancellation; the next command must not meet what the last one left running.
DESTROY_TIMEOUT_S = 20.0


class Owner(Protocol):
    """What a workspace needs of the sandbox that opened it."""

    @property
    def policy(self) -> Policy: ...

    @property
    def run_id(self) -> str: ...

    @property
    def engine(self) -> Engine: ...

    @property
    def janitor(self) -> Janitor: ...

    @property
    def tasks(self) -> TaskGroup: ...

    def forget(self, workspace: DockerWorkspace) -> None:
        """The workspace is being removed."""


@dataclass
class _Ahead:
    """A container that is being started for the next command."""

    done: anyio.Event = field(default_factory=anyio.Event)
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    container: AgentContainer | None = None


class DockerWorkspace(Workspace):
    """A tmpfs volume, a holder that keeps it mounted, and one container ahead."""

    def __init__(self, owner: Owner, workspace_id: str, uid: int) -> None:
        self._owner = owner
        self._id = workspace_id
        self._uid = uid
        self._volume = f"recount-{uuid.uuid4().hex}"
        self._holder: AgentContainer | None = None
        self._ahead: _Ahead | None = None
        # One command at a time: the files and "the last command's processes are dead" belong to it.
        self._turn = anyio.Lock()
        self._lost: str | None = None

    async def start(self) -> None:
        """Make the volume and start the holder; leaves nothing behind when it fails."""
        try:
            await self._retried(self._make_volume)
            self._holder = await self._retried(self._start_holder)
        except BaseException:
            self._discard("it never came up")
            raise
        self._prepare_ahead()

    @override
    async def run(self, script: str | bytes, timeout_s: float) -> ActionResult:
        data = check_script(script)
        if not 0 < timeout_s < math.inf:
            raise ValueError(f"a time-out of {timeout_s} s is none")
        async with self._turn:
            return await self._retried(lambda: self._run_once(data, timeout_s))

    @override
    async def close(self) -> None:
        if self._lost == "it was closed":
            return
        if self._ahead is not None:
            self._ahead.scope.cancel()
            with anyio.CancelScope(shield=True):
                await self._ahead.done.wait()
        removal = self._discard("it was closed")
        await removal.done.wait()

    async def _run_once(self, script: bytes, timeout_s: float) -> ActionResult:
        container = await self._take()
        try:
            result = await container.exchange(self._owner.engine, self._owner.policy, script, timeout_s)
        except BaseException:
            if not await container.destroy(self._owner.engine, DESTROY_TIMEOUT_S):
                self._lost = "a command's container could not be removed"
                self._retire(container)
            raise
        self._retire(container)
        self._prepare_ahead()
        return result

    async def _take(self) -> AgentContainer:
        """The container that was started ahead, if it still stands; else one started now."""
        ahead = self._ahead
        if ahead is not None:
            await ahead.done.wait()
            self._ahead = None
            if ahead.container is not None:
                if ahead.container.is_ready():
                    return ahead.container
                self._retire(ahead.container)
        return await self._prepare()

    def _prepare_ahead(self) -> None:
        if self._owner.policy.prewarm and self._lost is None:
            self._ahead = _Ahead()
            self._owner.tasks.start_soon(self._fill, self._ahead)

    async def _fill(self, ahead: _Ahead) -> None:
        """A failure here is no failure yet: the next command starts its container itself, with retries."""
        try:
            with ahead.scope:
                await anyio.sleep(ANSWER_FIRST_S)
                ahead.container = await self._prepare()
        except SandboxError:
            ahead.container = None
        finally:
            ahead.done.set()

    async def _prepare(self) -> AgentContainer:
        owner = self._owner
        await owner.janitor.at_most(MOST_PENDING_REMOVALS)
        if self._lost is None and (self._holder is None or not self._holder.is_ready()):
            self._lost = "its holder container ended, and its files with it"
        if self._lost is not None or self._holder is None:
            # Earlier commands' files are lost, so that repeating this one would not be clean either.
            raise SandboxInfrastructureError(f"the workspace is gone: {self._lost}", command_started=True)
        spec = specs.action_spec(
            owner.policy, self._volume, self._uid, self._holder.container_id, self._labels(specs.ROLE_ACTION)
        )
        return await AgentContainer.prepare(owner.engine, spec, owner.policy)

    async def _make_volume(self) -> None:
        owner = self._owner
        await owner.engine.call(
            "creating a workspace volume",
            lambda: owner.engine.api.create_volume(
                self._volume,
                driver="local",
                driver_opts=specs.volume_options(owner.policy, self._uid),
                labels=self._labels(specs.ROLE_VOLUME),
            ),
        )

    async def _start_holder(self) -> AgentContainer:
        owner = self._owner
        spec = specs.holder_spec(owner.policy, self._volume, self._uid, self._labels(specs.ROLE_HOLDER))
        return await AgentContainer.prepare(owner.engine, spec, owner.policy)

    def _labels(self, role: str) -> dict[str, str]:
        return specs.labels(self._owner.run_id, self._id, role)

    def _retire(self, container: AgentContainer) -> None:
        """Hang up and queue for removal; never waits."""
        container.stream.close()
        due_at = anyio.current_time() + LET_IT_END_S
        self._owner.janitor.submit(Removal(containers=(container.container_id,), due_at=due_at))

    def _discard(self, reason: str) -> Removal:
        """Hang up on everything and queue it for removal; never waits."""
        self._lost = reason
        ahead = self._ahead.container if self._ahead is not None else None
        held = [container for container in (ahead, self._holder) if container is not None]
        for container in held:
            container.stream.close()
        self._owner.forget(self)
        containers = tuple(container.container_id for container in held)
        return self._owner.janitor.submit(Removal(containers=containers, volumes=(self._volume,)))

    async def _retried(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Try again what our infrastructure failed, as long as no command of the caller's can have run."""
        retrying = tenacity.AsyncRetrying(
            stop=tenacity.stop_after_attempt(self._owner.policy.start_attempts),
            wait=tenacity.wait_random_exponential(multiplier=0.25, max=LONGEST_RETRY_WAIT_S),
            retry=tenacity.retry_if_exception(_may_be_retried),
            sleep=anyio.sleep,
            reraise=True,
        )

        async def once() -> T:
            return await attempt()

        return await retrying(once)


def _may_be_retried(error: BaseException) -> bool:
    return isinstance(error, SandboxInfrastructureError) and not error.command_started
