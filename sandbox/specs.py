"""What containers and volumes are made of: the policy, spelled for the engine. Pure."""

from __future__ import annotations

from typing import Any

from docker.types import LogConfig, Mount, Ulimit

from sandbox.engine import LABEL_ROLE, LABEL_RUN, LABEL_WORKSPACE, ContainerSpec
from sandbox.policy import MIB, Policy

VOLUME_PATH = "/sandbox"
# Links in the image point at these (Dockerfile.sandbox).
_DIRECTORIES = tuple(f"{VOLUME_PATH}/{name}" for name in ("workspace", "tmp", "home"))

# gVisor mounts a file system of its own over an empty /tmp: with this in it, files there stay as elsewhere.
_GVISOR = "runsc"
_GVISOR_KEEPS_TMP = f"{VOLUME_PATH}/tmp/.keep"  # noqa: S108 - the path in the container

ROLE_HOLDER = "hold"
ROLE_ACTION = "run"
ROLE_VOLUME = "volume"

# The holder runs nothing but the agent; the engine refuses less memory than a few MiB. Processes count the
# threads of a runtime's own kernel too: with 16, gVisor does not start.
_HOLDER_MEMORY_BYTES = 32 * MIB
_HOLDER_PIDS = 64


def labels(run_id: str, workspace_id: str, role: str) -> dict[str, str]:
    """On everything we make: the sweep removes by label and touches nothing else."""
    return {LABEL_RUN: run_id, LABEL_WORKSPACE: workspace_id, LABEL_ROLE: role}


def volume_options(policy: Policy, uid: int) -> dict[str, str]:
    """A tmpfs with a byte and an inode quota; it exists as long as a container has it mounted."""
    options = (
        f"size={policy.workspace_bytes}",
        f"nr_inodes={policy.workspace_inodes}",
        f"uid={uid}",
        f"gid={uid}",
        "mode=0700",
        "nosuid",
        "nodev",
    )
    return {"type": "tmpfs", "device": "tmpfs", "o": ",".join(options)}


def holder_spec(policy: Policy, volume: str, uid: int, container_labels: dict[str, str]) -> ContainerSpec:
    """Keeps the volume mounted and an empty network namespace alive between the actions of a workspace."""
    return ContainerSpec(
        role=ROLE_HOLDER,
        config={
            **_config(policy, uid, container_labels),
            "command": [ROLE_HOLDER, *_directories(policy)],
            "hostname": policy.hostname,
        },
        host_config={
            **_host_config(policy, volume),
            "network_mode": "none",
            "mem_limit": _HOLDER_MEMORY_BYTES,
            "memswap_limit": _HOLDER_MEMORY_BYTES,
            "pids_limit": _HOLDER_PIDS,
        },
    )


def action_spec(
    policy: Policy, volume: str, uid: int, holder_id: str, container_labels: dict[str, str]
) -> ContainerSpec:
    """One command's container. It has no shared memory of the engine's (`ipc none`), so it gets its own."""
    return ContainerSpec(
        role=ROLE_ACTION,
        config={**_config(policy, uid, container_labels), "command": [ROLE_ACTION, *_directories(policy)]},
        host_config={
            **_host_config(policy, volume),
            "network_mode": f"container:{holder_id}",
            "mem_limit": policy.memory_bytes,
            "memswap_limit": policy.memory_bytes,
            "pids_limit": policy.pids,
            "tmpfs": {"/dev/shm": f"rw,nosuid,nodev,noexec,mode=1777,size={policy.shm_bytes}"},  # noqa: S108 - the path in the container
            "ulimits": [
                Ulimit(name="nofile", soft=policy.nofile, hard=policy.nofile),
                Ulimit(name="fsize", soft=policy.fsize_bytes, hard=policy.fsize_bytes),
                Ulimit(name="core", soft=policy.core, hard=policy.core),
            ],
        },
    )


def _directories(policy: Policy) -> tuple[str, ...]:
    gvisor = (policy.runtime or "").startswith(_GVISOR)
    return (*_DIRECTORIES, _GVISOR_KEEPS_TMP) if gvisor else _DIRECTORIES


def _config(policy: Policy, uid: int, container_labels: dict[str, str]) -> dict[str, Any]:
    """`stdin_once` (the SDK sets it for an open, attached stdin) ends the agent with its client."""
    return {
        "image": policy.image,
        "user": f"{uid}:{uid}",
        "labels": container_labels,
        "stdin_open": True,
        "working_dir": "/",
    }


def _host_config(policy: Policy, volume: str) -> dict[str, Any]:
    return {
        "cgroup_parent": policy.cgroup_parent,
        "ipc_mode": "none",
        "read_only": True,
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges"],
        "log_config": LogConfig(type="none"),
        "mounts": [Mount(target=VOLUME_PATH, source=volume, type="volume", no_copy=True)],
    }
