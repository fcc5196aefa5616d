"""What a command is allowed: the limits of containers, and the bounds of our own waiting."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from sandbox.errors import SandboxPrerequisiteError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

MIB = 1 << 20
GIB = 1 << 30

# Where commands look for their files; links into the workspace volume (Dockerfile.sandbox).
WORKSPACE_PATH = "/workspace"
HOME_PATH = "/home/agent"

# Kernel's least for `ulimit -n` that bash and Python still start with.
LEAST_OPEN_FILES = 16
# A container whose limit is below this does not start (the engine's own floor is 6 MiB).
LEAST_MEMORY_BYTES = 16 * MIB

# No part of a policy's digest.
_UNNOTICED = {
    "name",
    "start_timeout_s",
    "transfer_timeout_s",
    "grace_s",
    "prewarm",
    "start_attempts",
    "concurrent_starts",
    "actions_at_once",
    "workspaces_at_once",
    "reserved_bytes",
    "cgroup_parent",
    "uid_base",
    "uid_count",
}

PositiveInt = Annotated[int, Field(gt=0)]
PositiveSeconds = Annotated[float, Field(gt=0, le=3600)]


def default_environment() -> dict[str, str]:
    """The whole environment of a command.

    The thread counts keep BLAS and OpenMP from starting a thread for every core of a node in each of many
    concurrent commands; no bytecode is written because it would count against the workspace quota.
    """
    threads = dict.fromkeys(
        ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1"
    )
    return {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": HOME_PATH,
        "PWD": WORKSPACE_PATH,
        "USER": "agent",
        "LOGNAME": "agent",
        "LANG": "C.UTF-8",
        "BROWSER": "/bin/false",
        "PYTHONDONTWRITEBYTECODE": "1",
        **threads,
    }


class Policy(BaseModel):
    """The sandbox's own configuration. A caller who runs commands cannot change any of it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(default="custom", pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")
    image: str = Field(default="recount-sandbox:latest", min_length=1)
    runtime: str | None = None
    # A control group under which all containers go; naming one sets no limit by itself.
    cgroup_parent: str | None = Field(
        default=None, pattern=r"^/?[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*$"
    )
    hostname: str = Field(default="sandbox", pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")
    environment: dict[str, str] = Field(default_factory=default_environment)

    memory_bytes: int = Field(default=2 * GIB, ge=LEAST_MEMORY_BYTES)
    pids: PositiveInt = 256
    nofile: int = Field(default=1024, ge=LEAST_OPEN_FILES)
    fsize_bytes: PositiveInt = 256 * MIB
    core: int = Field(default=0, ge=0)
    workspace_bytes: int = Field(default=256 * MIB, ge=MIB)
    workspace_inodes: int = Field(default=16_384, ge=64)
    shm_bytes: PositiveInt = 64 * MIB

    # Each of head and tail of each stream. A 6,000-character observation shows at most 3,000 characters of
    # each end, 12,000 bytes in the widest UTF-8: five times that makes truncation exact.
    capture_bytes: int = Field(default=64 * 1024, ge=0, le=16 * MIB)
    output_limit_bytes: PositiveInt = GIB

    start_timeout_s: PositiveSeconds = 60.0
    transfer_timeout_s: PositiveSeconds = 30.0
    # Past a command's own deadline: reaping after an out-of-memory kill took 12 s on a busy machine.
    grace_s: PositiveSeconds = 30.0
    # One container ahead for every workspace: the next action then costs one message.
    prewarm: bool = True
    # With growing pauses about ten seconds in all: an engine that restarts is back by then.
    start_attempts: int = Field(default=8, ge=1, le=20)
    concurrent_starts: PositiveInt = Field(default_factory=lambda: 2 * (os.cpu_count() or 1))

    # What may run at once, over all runs; None is the report's eight, or a quarter of the cores. Lowered
    # where the host is too small (`admission`).
    actions_at_once: PositiveInt | None = None
    workspaces_at_once: PositiveInt = 128
    # Memory that is not for sandboxes: engines that serve a model on this host.
    reserved_bytes: int = Field(default=0, ge=0)

    # A user of its own for every workspace, in a range that no distribution assigns.
    uid_base: int = Field(default=1_900_000_000, ge=1000)
    uid_count: int = Field(default=100_000_000, ge=1)

    @model_validator(mode="after")
    def _limits_fit_together(self) -> Policy:
        if self.uid_base + self.uid_count > 2**31:
            raise ValueError(
                "uid_base + uid_count must stay below 2**31: the kernel's and the engine's limit"
            )
        for name, value in self.environment.items():
            if not name or "=" in name or "\0" in name or "\0" in value:
                raise ValueError(f"environment entry {name!r} has no valid name or value")
        return self

    def digest(self) -> str:
        """SHA-256 of what a command can notice, for the record of a run; how much runs at once and how
        patient we are may differ from host to host."""
        noticed = self.model_dump_json(exclude=_UNNOTICED)
        return hashlib.sha256(noticed.encode()).hexdigest()


POLICY_DIR = Path(__file__).parent / "policies"


def bundled_policies() -> list[str]:
    """The names of the policies that come with the package, sorted."""
    return sorted(path.stem for path in POLICY_DIR.glob("*.toml"))


def load_policy(name_or_path: str) -> Policy:
    """Read a policy: a bundled one by name, or a TOML file.

    Raises `SandboxPrerequisiteError` that names the file, the setting and what is expected.
    """
    bundled = name_or_path in bundled_policies()
    path = POLICY_DIR / f"{name_or_path}.toml" if bundled else Path(name_or_path)
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        names = ", ".join(bundled_policies())
        raise SandboxPrerequisiteError(
            f"no sandbox policy {name_or_path!r}", remedy=f"name one of {names}, or a TOML file"
        ) from error
    except (OSError, ValueError) as error:
        raise SandboxPrerequisiteError(
            f"sandbox policy {path}: {error}", remedy="a policy is a UTF-8 TOML file"
        ) from error
    try:
        return Policy.model_validate({"name": path.stem} | document)
    except ValidationError as error:
        found = error.errors()[0]
        place = ".".join(str(part) for part in found["loc"]) or "policy"
        problem = "no such setting" if found["type"] == "extra_forbidden" else found["msg"]
        raise SandboxPrerequisiteError(
            f"sandbox policy {path}: {place}: {problem}", remedy="docs/sandbox.md lists every setting"
        ) from error
