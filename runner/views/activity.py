"""A sandbox that tells which command is under way; it changes nothing about how one runs."""

from collections.abc import Callable
from types import TracebackType

from typing_extensions import Self

from sandbox import ActionResult, Capacity, Sandbox, Workspace

SHOWN_CHARS = 2000
"""Of a script: no view shows more of it."""

Tell = Callable[[str, str | None], None]
"""Takes a workspace's id, and the script that begins there or None at its end."""


class WatchedSandbox:
    """Passes everything on. A journal holds what is done; a display wants to know what is being done."""

    def __init__(self, sandbox: Sandbox, tell: Tell) -> None:
        """`tell` is called on the event loop's thread and has to be quick."""
        self._sandbox, self._tell = sandbox, tell
        self.capture_bytes = sandbox.capture_bytes

    async def open(self, workspace_id: str) -> Workspace:
        """Open a watched workspace."""
        return _WatchedWorkspace(await self._sandbox.open(workspace_id), workspace_id, self._tell)

    async def close(self) -> None:
        """Close the sandbox."""
        await self._sandbox.close()

    async def identity(self) -> dict[str, str]:
        """Return the sandbox's own identity: a watched one is no other."""
        return await self._sandbox.identity()

    async def capacity(self) -> Capacity:
        """Return the sandbox's capacity."""
        return await self._sandbox.capacity()

    async def __aenter__(self) -> Self:
        """Enter the sandbox."""
        await self._sandbox.__aenter__()
        # Some know it only now.
        self.capture_bytes = self._sandbox.capture_bytes
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Leave the sandbox."""
        await self._sandbox.__aexit__(exc_type, exc, traceback)


class _WatchedWorkspace:
    def __init__(self, workspace: Workspace, workspace_id: str, tell: Tell) -> None:
        self._workspace, self._id, self._tell = workspace, workspace_id, tell

    async def run(self, script: str | bytes, timeout_s: float) -> ActionResult:
        begin = script[:SHOWN_CHARS]
        self._tell(self._id, begin if isinstance(begin, str) else begin.decode("utf-8", errors="replace"))
        try:
            return await self._workspace.run(script, timeout_s)
        finally:
            self._tell(self._id, None)

    async def close(self) -> None:
        await self._workspace.close()
