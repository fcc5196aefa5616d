"""What a client and the broker say to each other, over HTTP on a Unix socket. Pure.

| request | body | answer |
|---|---|---|
| `GET /v1/health` | | `Health` |
| `POST /v1/leases` | `LeaseRequest` | lines: `Granted`, then blank ones while the lease lasts |
| `POST /v1/leases/{lease}/workspaces` | `OpenRequest` | `Opened` |
| `POST …/workspaces/{workspace}/run?timeout_s=` | the script | `ResultMessage` |
| `DELETE …/workspaces/{workspace}` | | |
| `DELETE /v1/leases/{lease}` | | |
| `GET /v1/statistics` | | `Statistics` |

Nothing a client says can change image, mounts, limits or security: those are the broker's own policy. A lease
lasts as long as its connection; when that breaks, the broker closes everything the lease has opened.
"""

from __future__ import annotations

from enum import Enum
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from sandbox.errors import SandboxError, SandboxInfrastructureError, SandboxPrerequisiteError
from sandbox.types import ActionResult, CapturedStream, Limit, Usage

WIRE_VERSION = 1
HEARTBEAT_S = 2.0
# A client that hears nothing for this long has lost its broker.
LEASE_SILENCE_S = 30.0
MAX_SCRIPT_BYTES = 16 << 20
MAX_MESSAGE_BYTES = 64 << 10
MAX_TIMEOUT_S = 3600.0

RunId = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$")]


class _Message(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="forbid", ser_json_bytes="base64", val_json_bytes="base64", from_attributes=True
    )


class LeaseRequest(_Message):
    """A run asks to be served. `version` is the client's `WIRE_VERSION`."""

    version: int
    run_id: RunId


class Granted(_Message):
    """A lease, and all that a run's record needs of the sandbox."""

    lease: str
    identity: dict[str, str]
    capture_bytes: int
    actions_at_once: int
    workspaces_at_once: int
    notes: tuple[str, ...] = ()


class OpenRequest(_Message):
    """The id is a label, opaque and not trusted."""

    workspace_id: Annotated[str, Field(max_length=256)]


class Opened(_Message):
    """Names a workspace to the broker; it cannot be guessed."""

    workspace: str


class StreamMessage(_Message):
    """A `CapturedStream`."""

    head: bytes
    tail: bytes
    total_bytes: int
    decode_error: str | None


class UsageMessage(_Message):
    """A `Usage`."""

    wall_s: float
    cpu_s: float | None
    throttled_s: float | None
    peak_memory_bytes: int | None


class ResultMessage(_Message):
    """An `ActionResult`, bytes in base64."""

    stdout: StreamMessage
    stderr: StreamMessage
    exit_code: int | None
    timed_out: bool
    limits: tuple[Limit, ...]
    usage: UsageMessage

    def result(self) -> ActionResult:
        """Return the result that this was made of."""
        return ActionResult(
            stdout=CapturedStream(**dict(self.stdout)),
            stderr=CapturedStream(**dict(self.stderr)),
            exit_code=self.exit_code,
            timed_out=self.timed_out,
            limits=self.limits,
            usage=Usage(**dict(self.usage)),
        )


class Health(_Message):
    """That the broker is there, and under which policy."""

    version: int
    policy_sha256: str
    leases: int


class Statistics(_Message):
    """Counts since the broker's start, and durations in seconds over the most recent actions.

    An action's time is that in the broker, `waited` the part of it before the permit, and `overhead` what is
    left after that and the command's own time.
    """

    leases: int
    workspaces: int
    running: int
    waiting: int
    actions: int
    infrastructure_failures: int
    action_p50_s: float | None
    action_p90_s: float | None
    waited_p50_s: float | None
    overhead_p50_s: float | None
    resident_bytes: int


class FailureKind(str, Enum):
    """Whose an error is, as the exceptions say it."""

    PREREQUISITE = "prerequisite"
    INFRASTRUCTURE = "infrastructure"
    REQUEST = "request"
    """The request itself is wrong: a fault of the client program."""


class Failure(_Message):
    """Body of every answer that is no success."""

    kind: FailureKind
    message: str
    remedy: str = ""
    command_started: bool = False

    @classmethod
    def of(cls, error: SandboxError) -> Failure:
        """Word an error for the wire."""
        kind = FailureKind.INFRASTRUCTURE
        if isinstance(error, SandboxPrerequisiteError):
            kind = FailureKind.PREREQUISITE
        started = isinstance(error, SandboxInfrastructureError) and error.command_started
        return cls(kind=kind, message=error.message, remedy=error.remedy, command_started=started)

    def error(self) -> SandboxError:
        """Return the exception that this was made of."""
        if self.kind is FailureKind.PREREQUISITE:
            return SandboxPrerequisiteError(self.message, self.remedy)
        if self.kind is FailureKind.INFRASTRUCTURE:
            return SandboxInfrastructureError(self.message, self.remedy, command_started=self.command_started)
        return SandboxError(f"the broker refuses the request: {self.message}", self.remedy)
