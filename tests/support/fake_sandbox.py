"""A sandbox that runs nothing: every command's result is what the test says."""

import inspect
from collections.abc import Awaitable, Callable
from types import TracebackType

import anyio
from anyio.abc import TaskGroup
from typing_extensions import Self, override

from sandbox import ActionResult, Capacity, CapturedStream, Limit, Sandbox, Usage, Workspace

Answer = ActionResult | Awaitable[ActionResult]
OnRun = Callable[[str], Answer]

PREFIX = "ulimit -v 8388608; "


def stream(data: bytes, *, decode_error: str | None = None) -> CapturedStream:
    """A stream of which everything was kept."""
    return CapturedStream(data, b"", len(data), decode_error)


def result(
    stdout: str = "",
    stderr: str = "",
    exit_code: int | None = 0,
    *,
    timed_out: bool = False,
    limits: tuple[Limit, ...] = (),
) -> ActionResult:
    """How a command ended."""
    return ActionResult(
        stdout=stream(stdout.encode()),
        stderr=stream(stderr.encode()),
        exit_code=exit_code,
        timed_out=timed_out,
        limits=limits,
        usage=Usage(wall_s=0.01, cpu_s=0.005, throttled_s=0.0, peak_memory_bytes=1 << 20),
    )


class FakeWorkspace(Workspace):
    """Remembers the commands it was given and whether it was closed."""

    def __init__(self, sandbox: "FakeSandbox", workspace_id: str) -> None:
        self.id = workspace_id
        self.commands: list[str] = []
        self.closed = False
        self._sandbox = sandbox

    @override
    async def run(self, script: str | bytes, timeout_s: float) -> ActionResult:
        text = script if isinstance(script, str) else script.decode()
        command = text.removeprefix(PREFIX)
        self.commands.append(command)
        answer = self._sandbox.on_run(command)
        return await answer if inspect.isawaitable(answer) else answer

    @override
    async def close(self) -> None:
        if self._sandbox.on_close is not None:
            await self._sandbox.on_close()
        self.closed = True


class FakeSandbox(Sandbox):
    """Opens fake workspaces. Like the real one it holds a task group for as long as it is open."""

    capture_bytes = 1 << 16

    def __init__(
        self, on_run: OnRun | None = None, *, on_close: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """`on_run` maps a command to its result (or raises); by default a command prints itself."""
        self.on_run: OnRun = on_run or result
        self.on_close = on_close
        self.workspaces: list[FakeWorkspace] = []
        self.entered = 0
        self.left = 0
        self._tasks: TaskGroup | None = None

    @property
    def commands(self) -> list[str]:
        """All commands, workspace by workspace."""
        return [command for workspace in self.workspaces for command in workspace.commands]

    @override
    async def open(self, workspace_id: str) -> Workspace:
        workspace = FakeWorkspace(self, workspace_id)
        self.workspaces.append(workspace)
        return workspace

    @override
    async def close(self) -> None:
        await self.__aexit__(None, None, None)

    @override
    async def capacity(self) -> Capacity:
        return Capacity()

    @override
    async def identity(self) -> dict[str, str]:
        return {"kind": "fake"}

    @override
    async def __aenter__(self) -> Self:
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        self.entered += 1
        return self

    @override
    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._tasks is None:
            return
        tasks, self._tasks = self._tasks, None
        tasks.cancel_scope.cancel()
        await tasks.__aexit__(None, None, None)
        self.left += 1
