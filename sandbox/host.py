"""Commands as plain subprocesses on this machine: no isolation at all.

For conformance runs whose commands are trusted (the protocol's golden trajectories), and for machines without
an engine. Results mean the same as the container sandbox's: the end of a command is that of Python's
`subprocess.run(capture_output=True, timeout=...)`, and its process group is killed.
"""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

import anyio
import anyio.to_thread
from anyio.abc import ByteReceiveStream, Process
from typing_extensions import Self, override

from sandbox.capture import StreamCapture
from sandbox.errors import SandboxInfrastructureError, SandboxPrerequisiteError
from sandbox.frames import check_script
from sandbox.policy import GIB, default_environment
from sandbox.types import ActionResult, Capacity, Limit, Sandbox, Usage, Workspace

READ_BYTES = 64 * 1024
# A killed process is gone at once, unless the kernel holds it.
REAP_TIMEOUT_S = 10.0
DEFAULT_CAPTURE_BYTES = 64 * 1024


class HostSandbox(Sandbox):
    """Workspaces as directories under `root`. Commands can do whatever this user can."""

    def __init__(
        self,
        root: Path,
        *,
        capture_bytes: int = DEFAULT_CAPTURE_BYTES,
        output_limit_bytes: int = GIB,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.capture_bytes = capture_bytes
        self._root = root
        self._output_limit_bytes = output_limit_bytes
        self._environment = dict(environment or {})
        self._workspaces: set[HostWorkspace] = set()

    @override
    async def open(self, workspace_id: str) -> Workspace:
        try:
            self._root.mkdir(parents=True, exist_ok=True)
            directory = Path(tempfile.mkdtemp(prefix="workspace-", dir=self._root))
            for name in ("workspace", "home"):
                (directory / name).mkdir()
        except OSError as error:
            raise SandboxPrerequisiteError(
                f"no workspace can be made under {self._root}: {error}", remedy="choose a writable directory"
            ) from error
        environment = {
            **default_environment(),
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(directory / "home"),
            "PWD": str(directory / "workspace"),
            **self._environment,
        }
        workspace = HostWorkspace(self, directory, environment, self._output_limit_bytes)
        self._workspaces.add(workspace)
        return workspace

    def forget(self, workspace: HostWorkspace) -> None:
        """Called by a workspace that is being removed."""
        self._workspaces.discard(workspace)

    @override
    async def capacity(self) -> Capacity:
        return Capacity()

    @override
    async def identity(self) -> dict[str, str]:
        return {"kind": "host", "kernel": platform.release(), "python": platform.python_version()}

    @override
    async def close(self) -> None:
        with anyio.CancelScope(shield=True):
            for workspace in list(self._workspaces):
                await workspace.close()

    @override
    async def __aenter__(self) -> Self:
        return self

    @override
    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()


class HostWorkspace(Workspace):
    """A directory, and commands with it as their working directory."""

    def __init__(
        self, owner: HostSandbox, directory: Path, environment: Mapping[str, str], output_limit_bytes: int
    ) -> None:
        self._owner = owner
        self._directory = directory
        self._environment = environment
        self._output_limit_bytes = output_limit_bytes
        # One command at a time, as in the container sandbox.
        self._turn = anyio.Lock()

    @override
    async def run(self, script: str | bytes, timeout_s: float) -> ActionResult:
        data = check_script(script)
        async with self._turn:
            started_at = anyio.current_time()
            try:
                process = await anyio.open_process(
                    ["/bin/bash", "-c", data],
                    stdin=subprocess.DEVNULL,
                    cwd=self._directory / "workspace",
                    env=self._environment,
                    start_new_session=True,
                )
            except OSError as error:
                raise SandboxInfrastructureError(f"a command could not be started: {error}") from error
            try:
                return await self._collect(process, started_at, timeout_s)
            finally:
                await _end(process)

    @override
    async def close(self) -> None:
        self._owner.forget(self)
        with anyio.CancelScope(shield=True):
            # What a command made unreadable stays; the directory is the caller's throw-away one.
            await anyio.to_thread.run_sync(lambda: shutil.rmtree(self._directory, ignore_errors=True))

    async def _collect(self, process: Process, started_at: float, timeout_s: float) -> ActionResult:
        if process.stdout is None or process.stderr is None:
            raise SandboxInfrastructureError(
                "a command was started without its streams", command_started=True
            )
        captures = (StreamCapture(self._owner.capture_bytes), StreamCapture(self._owner.capture_bytes))
        limits: list[Limit] = []
        with anyio.move_on_at(started_at + timeout_s) as deadline:
            async with anyio.create_task_group() as tasks:

                async def pump(stream: ByteReceiveStream, capture: StreamCapture) -> None:
                    while True:
                        try:
                            capture.feed(await stream.receive(READ_BYTES))
                        except anyio.EndOfStream:
                            return
                        if sum(each.total_bytes for each in captures) > self._output_limit_bytes:
                            limits.append(Limit.OUTPUT)
                            tasks.cancel_scope.cancel()
                            return

                tasks.start_soon(pump, process.stdout, captures[0])
                tasks.start_soon(pump, process.stderr, captures[1])
                await process.wait()
        if deadline.cancelled_caught:
            limits.append(Limit.TIME)
        wall_s = anyio.current_time() - started_at
        return ActionResult(
            stdout=captures[0].finish(),
            stderr=captures[1].finish(),
            exit_code=None if limits else process.returncode,
            timed_out=bool(limits),
            limits=tuple(limits),
            usage=Usage(wall_s, None, None, None),
        )


async def _end(process: Process) -> None:
    """Kill what is left of the command's group, and close its streams."""
    with anyio.move_on_after(REAP_TIMEOUT_S, shield=True):
        # Not found: nothing of the group is left.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        await process.aclose()
