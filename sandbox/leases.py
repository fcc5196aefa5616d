"""The broker's work: leases, their workspaces, and what runs at once. No HTTP here.

What one lease does is a piece of *work*: it is cancelled, and waited for, when the lease ends, so that
nothing of a lease outlives it and one lease's end is no other's concern.
"""

from __future__ import annotations

import resource
import secrets
import statistics
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import anyio.to_thread

from sandbox.admission import Admission
from sandbox.docker_engine import DockerSandbox
from sandbox.engine import EngineLoad
from sandbox.errors import SandboxError, SandboxInfrastructureError, SandboxPrerequisiteError
from sandbox.policy import Policy
from sandbox.preflight import connect
from sandbox.reaper import SweepReport, sweep_engine
from sandbox.types import ActionResult, Workspace
from sandbox.wire import Granted, Statistics

RECENT_ACTIONS = 1000
# Room comes when another trajectory ends, a permit when another command does.
ROOM_TIMEOUT_S = 600.0
PERMIT_TIMEOUT_S = 1800.0
# A client that lost its connection is back before the broker has removed what it had.
FORMER_LEASE_TIMEOUT_S = 10.0
# Cancelled work kills its container, which is bounded itself.
WORK_STOP_TIMEOUT_S = 60.0
# Above what a sandbox takes at most to remove everything.
STOP_TIMEOUT_S = 150.0


class UnknownError(Exception):
    """No such lease or workspace (any more)."""


@dataclass
class _Opened:
    """A workspace; its commands take turns before they take permits, so that one cannot hold many."""

    workspace: Workspace
    turn: anyio.Lock = field(default_factory=anyio.Lock)


class Lease:
    """One run's claim: its sandbox, the workspaces it has opened, and what is being done for it."""

    def __init__(self, sandbox: DockerSandbox, granted: Granted) -> None:
        self.sandbox = sandbox
        self.granted = granted
        self.ending = anyio.Event()
        """Set to ask whoever holds the lease to let it go, and from then on."""
        self.ended = anyio.Event()
        """Nothing of the lease is left on the engine."""
        self.workspaces: dict[str, _Opened] = {}
        self._work: set[anyio.CancelScope] = set()
        self._all_stopped = anyio.Event()

    @contextmanager
    def work(self) -> Iterator[None]:
        """Do something for the lease; becomes an infrastructure failure when the lease ends under it."""
        with anyio.CancelScope() as scope:
            self._work.add(scope)
            try:
                yield
            finally:
                self._work.discard(scope)
                if not self._work:
                    self._all_stopped.set()
        if scope.cancelled_caught:
            raise SandboxInfrastructureError("the lease ended meanwhile", command_started=True)

    async def stop_work(self) -> None:
        """Cancel all work and wait for its end, also where this is cancelled itself."""
        self.ending.set()
        self._all_stopped = anyio.Event()
        for scope in self._work:
            scope.cancel()
        if self._work:
            with anyio.move_on_after(WORK_STOP_TIMEOUT_S, shield=True):
                await self._all_stopped.wait()


class Broker:
    """Serves runs out of one policy. The same object whether HTTP is in front of it or not."""

    def __init__(self, policy: Policy, admission: Admission, *, base_url: str | None = None) -> None:
        """`admission` says how much may run at once, over all leases."""
        self.policy = policy
        self.admission = admission
        self._base_url = base_url
        self._load = EngineLoad(policy.concurrent_starts)
        self._leases: dict[str, Lease] = {}
        # One lease a run: both would label, and sweep, the same things.
        self._runs: dict[str, anyio.Event] = {}
        self._ending_runs: set[str] = set()
        self._actions = anyio.Semaphore(admission.actions)
        self._workspaces = anyio.Semaphore(admission.workspaces)
        self._running = 0
        self._waiting = 0
        self._done = 0
        self._failed = 0
        self._action_s: deque[float] = deque(maxlen=RECENT_ACTIONS)
        self._waited_s: deque[float] = deque(maxlen=RECENT_ACTIONS)
        self._overhead_s: deque[float] = deque(maxlen=RECENT_ACTIONS)
        self.last_lease_ended_at: float | None = None
        self.stopping = anyio.Event()

    @property
    def leases(self) -> int:
        """Runs that are being served, those whose things are still being removed included."""
        return len(self._runs)

    @asynccontextmanager
    async def lease(self, run_id: str) -> AsyncIterator[Lease]:
        """Serve a run inside; whatever it has opened is closed and removed on leaving, however that comes."""
        ended = await self._claim(run_id)
        lease: Lease | None = None
        try:
            sandbox = DockerSandbox(
                self.policy, run_id, base_url=self._base_url, load=self._load, sweep_others=False
            )
            async with sandbox:
                lease = Lease(sandbox, await self._granted(sandbox))
                self._leases[lease.granted.lease] = lease
                try:
                    yield lease
                finally:
                    self._ending_runs.add(run_id)
                    await lease.stop_work()
        finally:
            if lease is not None:
                del self._leases[lease.granted.lease]
                for _ in lease.workspaces:
                    self._workspaces.release()
                lease.ended.set()
            del self._runs[run_id]
            self._ending_runs.discard(run_id)
            ended.set()
            self.last_lease_ended_at = anyio.current_time()

    async def _claim(self, run_id: str) -> anyio.Event:
        """Take a run's name; a lease of it that is on its way out is waited for."""
        with anyio.move_on_after(FORMER_LEASE_TIMEOUT_S):
            while (former := self._runs.get(run_id)) is not None:
                await former.wait()
        if self.stopping.is_set():
            raise SandboxInfrastructureError("the broker is ending")
        if run_id in self._ending_runs:
            raise SandboxInfrastructureError(f"what run {run_id!r} had before is still being removed")
        if run_id in self._runs:
            raise SandboxPrerequisiteError(
                f"run {run_id!r} has a lease already", remedy="wait for it to end, or name another run"
            )
        self._runs[run_id] = anyio.Event()
        return self._runs[run_id]

    async def _granted(self, sandbox: DockerSandbox) -> Granted:
        return Granted(
            lease=secrets.token_urlsafe(16),
            identity=await sandbox.identity(),
            capture_bytes=self.policy.capture_bytes,
            actions_at_once=self.admission.actions,
            workspaces_at_once=self.admission.workspaces,
            notes=self.admission.notes,
        )

    async def end(self, token: str) -> None:
        """End a lease and wait until what it opened is gone. An unknown one has ended already."""
        lease = self._leases.get(token)
        if lease is not None:
            lease.ending.set()
            await lease.ended.wait()

    async def all_ended(self) -> None:
        """Wait until every run that is being served has ended."""
        for ended in list(self._runs.values()):
            await ended.wait()

    async def sweep(self) -> SweepReport:
        """Remove what dead runs left; what is being served is spared."""
        serving = frozenset(self._runs)

        def connect_and_sweep() -> SweepReport:
            api = connect(self._base_url, timeout_s=self.policy.start_timeout_s)
            try:
                return sweep_engine(api, None, spare=serving)
            finally:
                api.close()

        return await anyio.to_thread.run_sync(connect_and_sweep)

    async def open(self, token: str, workspace_id: str) -> str:
        """Open a workspace, waiting for room, and return its name."""
        lease = self._lease(token)
        with lease.work():
            with bounded(ROOM_TIMEOUT_S, "waiting for room for a workspace"):
                await self._workspaces.acquire()
            try:
                workspace = await lease.sandbox.open(workspace_id)
            except BaseException:
                self._workspaces.release()
                raise
            name = secrets.token_urlsafe(16)
            lease.workspaces[name] = _Opened(workspace)
        return name

    def check(self, token: str, name: str) -> None:
        """Raise `UnknownError` unless the lease has this workspace."""
        self._opened(self._lease(token), name)

    async def run(self, token: str, name: str, script: bytes, timeout_s: float) -> ActionResult:
        """Run one command. Waiting for a permit does not count towards its time-out."""
        lease = self._lease(token)
        opened = self._opened(lease, name)
        asked_at = anyio.current_time()
        with lease.work():
            async with opened.turn, self._permit():
                permitted_at = anyio.current_time()
                try:
                    result = await opened.workspace.run(script, timeout_s)
                except SandboxError:
                    self._failed += 1
                    raise
        took_s = anyio.current_time() - asked_at
        self._done += 1
        self._action_s.append(took_s)
        self._waited_s.append(permitted_at - asked_at)
        self._overhead_s.append(max(took_s - (permitted_at - asked_at) - result.usage.wall_s, 0.0))
        return result

    async def close(self, token: str, name: str) -> None:
        """Close a workspace; one that is closed already is no error."""
        lease = self._lease(token)
        opened = lease.workspaces.get(name)
        if opened is None:
            return
        with lease.work():
            await opened.workspace.close()
            # Room is given back when the files are gone, here or with the lease.
            if lease.workspaces.pop(name, None) is not None:
                self._workspaces.release()

    def statistics(self) -> Statistics:
        """Return counts and recent durations."""
        return Statistics(
            leases=self.leases,
            workspaces=sum(len(lease.workspaces) for lease in self._leases.values()),
            running=self._running,
            waiting=self._waiting,
            actions=self._done,
            infrastructure_failures=self._failed,
            action_p50_s=_percentile(self._action_s, 50),
            action_p90_s=_percentile(self._action_s, 90),
            waited_p50_s=_percentile(self._waited_s, 50),
            overhead_p50_s=_percentile(self._overhead_s, 50),
            resident_bytes=resident_bytes(),
        )

    @asynccontextmanager
    async def _permit(self) -> AsyncIterator[None]:
        self._waiting += 1
        try:
            with bounded(PERMIT_TIMEOUT_S, "waiting for a permit to run a command"):
                await self._actions.acquire()
        finally:
            self._waiting -= 1
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1
            self._actions.release()

    def _lease(self, token: str) -> Lease:
        lease = self._leases.get(token)
        if lease is None or lease.ending.is_set():
            raise UnknownError("no such lease: it ended, or the broker was started anew")
        return lease

    @staticmethod
    def _opened(lease: Lease, name: str) -> _Opened:
        opened = lease.workspaces.get(name)
        if opened is None:
            raise UnknownError("no such workspace")
        return opened


def resident_bytes() -> int:
    """Return this process's resident memory, 0 where /proc does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * resource.getpagesize()


@contextmanager
def bounded(seconds: float, what: str) -> Iterator[None]:
    """`fail_after` that words its time-out as an infrastructure failure."""
    try:
        with anyio.fail_after(seconds):
            yield
    except TimeoutError as error:
        raise SandboxInfrastructureError(f"{what} took more than {seconds:g} s") from error


def _percentile(values: deque[float], percent: int) -> float | None:
    if len(values) < 2:
        return values[0] if values else None
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]
