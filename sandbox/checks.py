"""Self-checks of the lock-down: two real workspaces, a few commands in them, and the engine's own word.

A lock-down that is only configured can be lost without a sign: an engine of another age, a default of the
daemon's, a typing error in a policy. So every control is tried from inside, with what a command could do.
"""

from __future__ import annotations

import json
import shlex
import uuid
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import docker

from sandbox.check_rules import UNLIMITED_V1, Check, Seen, judge
from sandbox.docker_engine import DockerSandbox
from sandbox.engine import LABEL_RUN
from sandbox.errors import SandboxInfrastructureError
from sandbox.policy import Policy
from sandbox.types import ActionResult, Workspace

INSIDE = Path(__file__).with_name("inside.py")
ACTION_TIMEOUT_S = 60.0
# A script's array of that size is ordinary; smaller policies get three quarters of theirs.
NUMPY_BYTES = 200_000_000
# Leaves a process behind that writes on, as a command may; it must be gone when the next one starts.
LEAVE_A_PROCESS = (
    "(setsid sh -c 'while :; do echo x >> /tmp/daemon; sleep 0.05; done' >/dev/null 2>&1 &)\n"
    "sleep 0.3; echo secret | tee ~/secret /tmp/secret > /workspace/secret; chmod -R a+rwX /sandbox/*"
)
CAPTURE_BYTES = 256 * 1024


async def check(policy: Policy, *, base_url: str | None = None) -> tuple[Check, ...]:
    """Try every control. Raises `SandboxPrerequisiteError` where there is nothing to try it on."""
    run_id = f"check-{uuid.uuid4().hex[:12]}"
    # The answers must arrive whole; of what commands can do this changes nothing.
    policy = policy.model_copy(update={"capture_bytes": max(policy.capture_bytes, CAPTURE_BYTES)})
    async with DockerSandbox(policy, run_id, base_url=base_url) as sandbox:
        first, second = await sandbox.open("check-1"), await sandbox.open("check-2")
        numpy_bytes = min(NUMPY_BYTES, policy.memory_bytes * 3 // 4)
        try:
            await _command(first, f"{_install()}\n{LEAVE_A_PROCESS}")
            await _command(second, _install())
        except _NoAnswerError as error:
            raise SandboxInfrastructureError(
                f"the checks cannot be installed in a workspace: {error}"
            ) from error
        numbers = f"{policy.fsize_bytes} {policy.workspace_inodes} {policy.pids}"
        asked = {
            "leftovers": (first, "sleepers"),
            "facts": (first, "facts"),
            "work": (first, f"work {numpy_bytes}"),
            "limits": (first, f"limits {numbers}"),
            "neighbour": (second, "neighbour"),
        }
        answers: dict[str, dict[str, Any]] = {}
        failures: dict[str, str] = {}
        for name, (workspace, part) in asked.items():
            try:
                answers[name] = await _part(workspace, part)
            except _NoAnswerError as error:
                answers[name], failures[name] = {}, str(error)
        containers, info = await anyio.to_thread.run_sync(lambda: _inspect(sandbox.engine.api, run_id))
        seen = Seen(
            **answers,
            containers=containers,
            run_id=run_id,
            uids=sandbox.uids,
            cgroup_version=str(info.get("CgroupVersion") or "1"),
            numpy_bytes=numpy_bytes,
            parent_limit_bytes=parent_limit(policy.cgroup_parent),
            failures=failures,
        )
        return judge(policy, seen)


def parent_limit(parent: str | None, root: Path = Path("/sys/fs/cgroup")) -> int | None:
    """The memory ceiling of a parent group as this machine shows it; None if there is none to be seen."""
    if parent is None:
        return None
    name = parent.strip("/")
    for path in (root / name / "memory.max", root / "memory" / name / "memory.limit_in_bytes"):
        try:
            value = path.read_text(encoding="ascii").strip()
        except OSError:
            continue
        if value.isdigit() and int(value) < UNLIMITED_V1:
            return int(value)
    return None


def _install() -> str:
    return f"printf %s {shlex.quote(INSIDE.read_text(encoding='utf-8'))} > ~/inside.py"


class _NoAnswerError(Exception):
    """A part of the checks ended without one: a finding, since what it does must work."""


async def _command(workspace: Workspace, script: str) -> ActionResult:
    result = await workspace.run(script, ACTION_TIMEOUT_S)
    if result.exit_code != 0:
        said = (result.stderr.head + result.stderr.tail).decode("utf-8", "replace").strip().splitlines()
        limits = "".join(f", limit: {limit.value}" for limit in result.limits)
        raise _NoAnswerError(f"exit code {result.exit_code}{limits}{': ' + said[-1] if said else ''}")
    return result


async def _part(workspace: Workspace, part: str) -> dict[str, Any]:
    result = await _command(workspace, f"exec python3 ~/inside.py {part}")
    try:
        answer = json.loads(result.stdout.head + result.stdout.tail)
    except ValueError as error:
        raise _NoAnswerError(f"no JSON: {error}") from error
    if not isinstance(answer, dict):
        raise _NoAnswerError("no JSON object")
    return answer


def _inspect(api: docker.APIClient, run_id: str) -> tuple[tuple[dict[str, Any], ...], dict[str, Any]]:
    """The run's containers: holders, what is about to be removed, and those started ahead."""
    listed = api.containers(all=True, filters={"label": f"{LABEL_RUN}={run_id}"})
    found = []
    for entry in listed:
        try:
            found.append(api.inspect_container(entry["Id"]))
        except docker.errors.NotFound:
            continue  # removed in the meantime
    return tuple(found), api.info()
