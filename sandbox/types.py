"""What a command leaves behind, and the two protocols through which commands are run."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from types import TracebackType
from typing import Protocol

from typing_extensions import Self

HARMLESS_IDENTITY = frozenset(
    {
        *("image", "image_id", "policy", "engine_version", "api_version", "cgroup_version", "kernel"),
        "security_options",
    }
)
"""What of a sandbox's identity may change within a run. An image is its contents, a policy its digest; image
ids differ from build to build."""


class Limit(str, Enum):
    """A limit of ours that a command ran into. Values stand in journals."""

    TIME = "time"
    MEMORY = "memory"
    PROCESSES = "processes"
    OUTPUT = "output"


@dataclass(frozen=True)
class CapturedStream:
    """The first and the last bytes of one output stream, and facts about all of it.

    `head` holds the first bytes up to the capture limit, `tail` the last bytes that are not in `head`, so
    `head + tail` is everything exactly if nothing was dropped. `decode_error` is Python's own message for
    strict UTF-8 decoding of the whole stream, dropped bytes included; None if it decodes.
    """

    head: bytes
    tail: bytes
    total_bytes: int
    decode_error: str | None

    @property
    def dropped_bytes(self) -> int:
        """Bytes between `head` and `tail` that were read and counted but not kept."""
        return self.total_bytes - len(self.head) - len(self.tail)


EMPTY_STREAM = CapturedStream(b"", b"", 0, None)


@dataclass(frozen=True)
class Usage:
    """What one command used; None where it could not be measured."""

    wall_s: float
    cpu_s: float | None
    throttled_s: float | None
    peak_memory_bytes: int | None


@dataclass(frozen=True)
class ActionResult:
    """How one command ended.

    `exit_code` is the shell's own, negative for death by a signal, None if the deadline or the output limit
    ended it (`timed_out`; `limits` says which). `limits` also names those that bit without ending the
    command, such as a child killed for memory. `node` is where in a cluster it ran; None on one machine.
    """

    stdout: CapturedStream
    stderr: CapturedStream
    exit_code: int | None
    timed_out: bool
    limits: tuple[Limit, ...]
    usage: Usage
    node: str | None = None


@dataclass(frozen=True)
class Capacity:
    """How much may run at once; None where nothing bounds it. `notes` says what the host made smaller."""

    actions_at_once: int | None = None
    workspaces_at_once: int | None = None
    notes: tuple[str, ...] = ()


class Workspace(Protocol):
    """Files that stay from one command to the next, for one trajectory."""

    async def run(self, script: str | bytes, timeout_s: float) -> ActionResult:
        """Run `/bin/bash -c script` with empty stdin; what it leaves running is killed before this returns.

        Raises `ValueError` for a script that holds NUL or is too large, before anything runs.
        """
        ...

    async def close(self) -> None:
        """Remove the files. Closing twice is closing once."""
        ...


class Sandbox(Protocol):
    """Where workspaces come from; an async context manager."""

    capture_bytes: int

    async def open(self, workspace_id: str) -> Workspace:
        """Make an empty workspace. The id is a label for logs, opaque and not trusted."""
        ...

    async def close(self) -> None:
        """Close every workspace and remove what this run made."""
        ...

    async def identity(self) -> dict[str, str]:
        """What commands run in, for the record of a run."""
        ...

    async def capacity(self) -> Capacity:
        """How much a caller should have under way at once."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...
