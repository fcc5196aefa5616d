"""The sandbox that isolates: one fresh container for every command, through a Docker engine."""

from __future__ import annotations

import secrets
from types import TracebackType
from typing import TypeVar

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup
from typing_extensions import Self, override

from sandbox.admission import admit
from sandbox.engine import Engine, EngineLoad
from sandbox.errors import SandboxError, SandboxPrerequisiteError
from sandbox.policy import Policy
from sandbox.preflight import EngineFacts, connect, inspect_engine
from sandbox.reaper import SweepReport, sweep_engine
from sandbox.removal import Janitor
from sandbox.types import Capacity, Sandbox, Workspace
from sandbox.workspace import DockerWorkspace

T = TypeVar("T")

# Past this, what is left to remove is left to the next run's sweep.
CLOSE_TIMEOUT_S = 120.0
# Where the daemon maps users into a range of 65,536 (user namespaces, rootless).
REMAPPED_UID_BASE = 10_000
REMAPPED_UID_COUNT = 50_000
WORKSPACE_ID_LENGTH = 256


class DockerSandbox(Sandbox):
    """Commands in throw-away containers. Enter it as a context manager, in the task that leaves it."""

    def __init__(
        self,
        policy: Policy,
        run_id: str,
        *,
        base_url: str | None = None,
        load: EngineLoad | None = None,
        sweep_others: bool = True,
    ) -> None:
        """Several sandboxes of a process share `load`, and it sweeps what dead runs left itself."""
        if not run_id:
            raise ValueError("a run id is what everything is labelled with; it cannot be empty")
        self.policy = policy
        """Once started it names the image by its id: its name may pass to another one while a run lasts."""
        self._named_policy = policy
        self.run_id = run_id
        self.capture_bytes = policy.capture_bytes
        self._base_url = base_url
        self._load = load
        self._sweep_others = sweep_others
        self._engine: Engine | None = None
        self._janitor: Janitor | None = None
        self._tasks: TaskGroup | None = None
        self._facts: EngineFacts | None = None
        self._workspaces: set[DockerWorkspace] = set()
        # Workspaces of runs at the same time get different users with near certainty; they share nothing but
        # the kernel's per-user counters.
        self._uid_offset = secrets.randbelow(policy.uid_count)

    @property
    def engine(self) -> Engine:
        """The engine, once started."""
        return _started(self._engine)

    @property
    def janitor(self) -> Janitor:
        """The removal queue, once started."""
        return _started(self._janitor)

    @property
    def tasks(self) -> TaskGroup:
        """Where containers are started ahead."""
        return _started(self._tasks)

    async def start(self) -> None:
        """Check what is needed, sweep what earlier runs left, and be ready to open workspaces.

        Raises `SandboxPrerequisiteError` for everything the user can mend.
        """
        if self._tasks is not None:
            raise SandboxError("the sandbox was started already")
        timeout_s = self.policy.start_timeout_s
        api = await anyio.to_thread.run_sync(lambda: connect(self._base_url, timeout_s=timeout_s))
        try:
            self._facts = await anyio.to_thread.run_sync(
                lambda: inspect_engine(api, self._named_policy, self.run_id)
            )
            await anyio.to_thread.run_sync(lambda: sweep_engine(api, self.run_id, others=self._sweep_others))
        except BaseException:
            api.close()
            raise
        image_id = self._facts.identity["image_id"]
        self.policy = self._named_policy.model_copy(update={"image": image_id})
        self._engine = Engine(
            api,
            concurrent_starts=self.policy.concurrent_starts,
            host_options=self._facts.host_options,
            load=self._load,
        )
        self._janitor = Janitor(self._engine)
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        for _ in range(self.policy.concurrent_starts):
            self._tasks.start_soon(self._janitor.work)

    @override
    async def open(self, workspace_id: str) -> Workspace:
        workspace = DockerWorkspace(self, workspace_id[:WORKSPACE_ID_LENGTH], self._next_uid())
        self._workspaces.add(workspace)
        await workspace.start()
        return workspace

    def forget(self, workspace: DockerWorkspace) -> None:
        """Called by a workspace that is being removed."""
        self._workspaces.discard(workspace)

    @override
    async def identity(self) -> dict[str, str]:
        return dict(_started(self._facts).identity)

    @override
    async def capacity(self) -> Capacity:
        facts = _started(self._facts)
        admission = admit(self.policy, host_bytes=facts.host_bytes, cores=facts.cores)
        return Capacity(admission.actions, admission.workspaces, admission.notes)

    async def sweep(self) -> SweepReport:
        """Remove everything of this run and, unless another sweeps that, what dead runs left."""
        api = self.engine.api
        return await anyio.to_thread.run_sync(
            lambda: sweep_engine(api, self.run_id, others=self._sweep_others)
        )

    @override
    async def close(self) -> None:
        await self.__aexit__(None, None, None)

    @override
    async def __aenter__(self) -> Self:
        await self.start()
        return self

    @override
    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Shielded and bounded: teardown survives the cancellation it may run under."""
        if self._tasks is None:
            return
        tasks = self._tasks
        try:
            with anyio.move_on_after(CLOSE_TIMEOUT_S, shield=True):
                await self._remove_everything()
        finally:
            self._tasks = None
            tasks.cancel_scope.cancel()
            self.janitor.close()
            self.engine.api.close()
            # Of the body's exceptions a task group has to see a cancellation only; it would wrap the others.
            cancelled = isinstance(exc, anyio.get_cancelled_exc_class())
            await tasks.__aexit__(*((exc_type, exc, traceback) if cancelled else (None, None, None)))

    async def _remove_everything(self) -> None:
        async with anyio.create_task_group() as closing:
            for workspace in list(self._workspaces):
                closing.start_soon(workspace.close)
        await self.janitor.at_most(0)
        try:
            await self.sweep()
        except SandboxError:
            # The engine is gone: what is left ends by itself and goes with the next run's sweep.
            return

    @property
    def uids(self) -> range:
        """The users that workspaces get, once started."""
        base, count = self.policy.uid_base, self.policy.uid_count
        if _started(self._facts).remaps_users:
            base, count = REMAPPED_UID_BASE, REMAPPED_UID_COUNT
        return range(base, base + count)

    def _next_uid(self) -> int:
        uids = self.uids
        self._uid_offset = (self._uid_offset + 1) % len(uids)
        return uids[self._uid_offset]


def _started(value: T | None) -> T:
    if value is None:
        raise SandboxPrerequisiteError("the sandbox is not started", remedy="use `async with`")
    return value
