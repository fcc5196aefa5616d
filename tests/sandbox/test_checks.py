"""The self-checks see a control that is gone, whichever it is."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from sandbox import DockerSandbox, Policy, SandboxPrerequisiteError, specs
from sandbox.check_rules import Check, Seen, judge
from sandbox.checks import check, parent_limit
from sandbox.engine import LABEL_ROLE, LABEL_RUN, LABEL_WORKSPACE
from sandbox.policy import MIB

POLICY = Policy(memory_bytes=192 * MIB, pids=64, workspace_bytes=32 * MIB, workspace_inodes=2000)
UID = POLICY.uid_base + 7
CONTAINER: dict[str, Any] = {
    "Config": {"Labels": {LABEL_RUN: "run", LABEL_WORKSPACE: "a", LABEL_ROLE: "run"}},
    "HostConfig": {
        "LogConfig": {"Type": "none"},
        "IpcMode": "none",
        "CapDrop": ["ALL"],
        "CapAdd": None,
        "Privileged": False,
        "ReadonlyRootfs": True,
        "SecurityOpt": ["no-new-privileges"],
        "MaskedPaths": ["/proc/kcore"],
        "Devices": None,
        "DeviceRequests": None,
        "Binds": None,
        "Memory": 1,
        "MemorySwap": 1,
        "Runtime": "runc",
        "NetworkMode": "none",
        "CgroupnsMode": "private",
    },
}


def good() -> dict[str, Any]:
    """What is seen where everything holds."""
    containers = [copy.deepcopy(CONTAINER) for _ in range(4)]
    containers[0]["HostConfig"]["NetworkMode"] = "container:x"
    containers[1]["Config"]["Labels"][LABEL_ROLE] = "hold"
    return {
        "facts": {
            "status": {
                **dict.fromkeys(("CapEff", "CapPrm", "CapInh", "CapBnd", "CapAmb"), "0" * 16),
                "NoNewPrivs": "1",
                "Seccomp": "2",
                "Seccomp_filters": "2",
                "Groups": str(UID),
            },
            "uid": [UID] * 4,
            "environment": dict(POLICY.environment) | {"_": "python3"},
            "descriptors": ["0 /dev/null", "1 pipe", "2 pipe"],
            "stdin_bytes": 0,
            "hostname": "sandbox",
            "network": {"interfaces": ["lo"], "routes": 0, "connect": "ENETUNREACH", "dns": "gaierror -3"},
            "calls": {"getpid": "works", "ptrace": "EPERM", "memfd_secret": "ENOSYS", "int80": "ENOSYS"},
            "writable": {"/": "EROFS"},
            "kernel_files": {"/proc/sysrq-trigger": "EACCES"},
            "mounts": [
                ["/", "overlay", "ro,relatime"],
                ["/sandbox", "tmpfs", "rw,nosuid,nodev"],
                ["/dev/shm", "tmpfs", "rw,nosuid,nodev,noexec"],
            ],
            "masked": {"/proc/kcore": True},
            "devices": ["/dev/null"],
            "sockets": [],
            "process_1": {"environ": "EACCES"},
            "places": [9, 9, 9, 9],
            "shm": {"bytes": POLICY.shm_bytes, "device": 8},
            "limits": {"nofile": [1024] * 2, "fsize": [POLICY.fsize_bytes] * 2, "core": [0, 0]},
            "cgroup": {
                "/sys/fs/cgroup/memory/memory.limit_in_bytes": f"{POLICY.memory_bytes}\n",
                "/sys/fs/cgroup/memory/memory.memsw.limit_in_bytes": f"{POLICY.memory_bytes}\n",
                "/sys/fs/cgroup/memory.max": f"{POLICY.memory_bytes}\n",
                "/sys/fs/cgroup/memory.swap.max": "0\n",
            },
            "namespaces": {"net": "net:[1]", "pid": "pid:[1]", "user": "user:[1]"},
        },
        "leftovers": {"started": True, "grew": 0, "processes": 2},
        "work": {"pool": True, "numpy_bytes": 5, "sympy": "pi/2"},
        "limits": {
            "volume": [POLICY.workspace_bytes, "ENOSPC"],
            "shm": [POLICY.shm_bytes, "ENOSPC"],
            "fsize": "EFBIG",
            "inodes": [POLICY.workspace_inodes - 5, "ENOSPC"],
            "pids": [62, "EAGAIN"],
        },
        "neighbour": {
            "uid": UID + 1,
            "found": [],
            "processes": 2,
            "namespaces": {"net": "net:[2]", "pid": "pid:[2]", "user": "user:[1]"},
        },
        "containers": tuple(containers),
    }


def judged(document: dict[str, Any], policy: Policy = POLICY, cgroup_version: str = "1") -> list[Check]:
    uids = range(POLICY.uid_base, POLICY.uid_base + POLICY.uid_count)
    seen = Seen(**document, run_id="run", uids=uids, cgroup_version=cgroup_version, numpy_bytes=5)
    return list(judge(policy, seen))


def failing(document: dict[str, Any], **options: Any) -> set[str]:
    return {each.control for each in judged(document, **options) if not each.ok}


@pytest.mark.parametrize("version", ["1", "2"])
def test_what_holds_is_said_to_hold_under_both_versions_of_control_groups(version: str) -> None:
    assert failing(good(), cgroup_version=version) == set()


@pytest.mark.parametrize(
    ("place", "value", "control"),
    [
        ("facts.network.interfaces", ["eth0", "lo"], "network interfaces"),
        ("facts.network.routes", 1, "routes"),
        ("facts.network.connect", "opened", "connecting to an address"),
        ("facts.network.dns", "opened", "looking up a name"),
        ("facts.status.CapBnd", "00000000a80425fb", "capabilities (all five sets)"),
        ("facts.status.NoNewPrivs", "0", "no new privileges"),
        ("facts.status.Seccomp_filters", "1", "system call filters"),
        ("facts.status.Seccomp", "0", "system call filters"),
        ("facts.status.Groups", "0", "user of its own"),
        ("facts.uid", [0, 0, 0, 0], "user of its own"),
        ("facts.calls.ptrace", "returned 0", "call ptrace"),
        ("facts.calls.int80", "returned", "foreign ABI int80"),
        ("facts.calls.getpid", "EPERM", "ordinary system calls"),
        ("facts.writable./", "opened", "root, /proc/sys and /sys read-only"),
        ("facts.kernel_files./proc/sysrq-trigger", "opened", "root, /proc/sys and /sys read-only"),
        ("facts.mounts.1", ["/sandbox", "tmpfs", "rw,nodev"], "the workspace's mount"),
        ("facts.masked./proc/kcore", False, "masked paths of /proc and /sys"),
        ("facts.devices", ["/dev/null", "/dev/nvidia0"], "devices"),
        ("facts.sockets", ["/run/docker.sock"], "sockets of engines"),
        ("facts.process_1.environ", "opened", "process 1 (the agent) is closed to the command"),
        ("facts.places", [9, 9, 8, 9], "/workspace, /tmp and home on one volume"),
        ("facts.shm.device", 9, "/dev/shm, a file system of its own"),
        ("facts.limits.nofile", [1024, 1048576], "open files"),
        ("facts.limits.core", [0, -1], "core files"),
        ("facts.hostname", "node17", "host name"),
        ("facts.environment.SSH_AUTH_SOCK", "/x", "environment"),
        ("facts.stdin_bytes", 4, "standard input"),
        ("facts.descriptors", ["0 a", "1 b", "2 c", "7 socket"], "open descriptors"),
        ("leftovers.grew", 4, "a background process is dead before the next action"),
        ("leftovers.started", False, "a background process is dead before the next action"),
        ("limits.volume", [POLICY.workspace_bytes * 2, "ENOSPC"], "bytes of the workspace"),
        ("limits.volume", [MIB, "EIO"], "bytes of the workspace"),
        ("limits.inodes", [2001, ""], "files of the workspace"),
        ("limits.fsize", "opened", "a larger file"),
        ("limits.pids", [65, ""], "processes"),
        ("neighbour.uid", UID, "another workspace's user"),
        ("neighbour.found", ["/tmp/secret"], "files of another workspace"),
        ("neighbour.namespaces.net", "net:[1]", "namespaces shared with another workspace"),
        ("neighbour.processes", 40, "processes of others"),
        ("work.pool", False, "multiprocessing.Pool(4)"),
        ("work.numpy_bytes", 4, "bytes that numpy can hold"),
        ("containers.2.HostConfig.LogConfig.Type", "json-file", "log driver"),
        ("containers.2.HostConfig.IpcMode", "shareable", "ipc"),
        ("containers.2.HostConfig.CapDrop", None, "capabilities dropped"),
        ("containers.2.HostConfig.CapAdd", ["SYS_ADMIN"], "capabilities added"),
        ("containers.2.HostConfig.Privileged", True, "privileged"),
        ("containers.2.HostConfig.ReadonlyRootfs", False, "read-only root"),
        ("containers.2.HostConfig.SecurityOpt", ["seccomp=unconfined"], "security options"),
        ("containers.2.HostConfig.MaskedPaths", [], "masked paths in place"),
        ("containers.2.HostConfig.DeviceRequests", [{"Driver": "nvidia"}], "devices and GPUs"),
        ("containers.2.HostConfig.Binds", ["/:/host"], "bind mounts of the host"),
        ("containers.2.HostConfig.MemorySwap", -1, "swap beyond memory refused"),
        ("containers.2.HostConfig.Runtime", "nvidia", "runtime"),
        ("containers.2.HostConfig.NetworkMode", "bridge", "network mode"),
        ("containers.2.Config.Labels", {}, "labels of the run, the workspace, the role"),
        ("containers", (), "containers looked at"),
    ],
)
def test_a_control_that_is_gone_is_named(place: str, value: Any, control: str) -> None:
    document = good()
    *path, last = place.split(".") if not place.endswith("./") else [*place[:-2].split("."), "/"]
    at: Any = document
    for step in path:
        at = at[int(step)] if step.isdigit() else at[step]
    at[int(last) if last.isdigit() else last] = value

    assert control in failing(document)


def test_the_swap_of_either_version_must_be_shut() -> None:
    document = good()
    groups = document["facts"]["cgroup"]
    groups["/sys/fs/cgroup/memory/memory.memsw.limit_in_bytes"] = "9223372036854771712\n"
    groups["/sys/fs/cgroup/memory.swap.max"] = "max\n"

    assert failing(document, cgroup_version="1") == {"memory and swap"}
    assert failing(document, cgroup_version="2") == {"swap"}


def test_a_cgroup_namespace_of_its_own_is_wanted_under_version_2() -> None:
    document = good()
    document["containers"][1]["HostConfig"]["CgroupnsMode"] = "host"

    assert failing(document, cgroup_version="1") == set()
    assert failing(document, cgroup_version="2") == {"cgroup namespace"}


def test_a_part_that_cannot_be_asked_does_not_hold_and_the_others_are_still_judged() -> None:
    document = good()
    document["limits"], document["failures"] = {}, {"limits": "exit code -9, limit: memory"}
    found = judged(document)

    assert [each.control for each in found if not each.ok] == ["asking: limits"]
    assert len(found) > 40


def test_a_parent_group_without_a_ceiling_is_none() -> None:
    named = POLICY.model_copy(update={"cgroup_parent": "recount.slice"})

    assert failing(good(), policy=named) == {"ceiling of recount.slice"}


@pytest.mark.parametrize(
    ("file", "content", "limit"),
    [
        ("r.slice/memory.max", "1000\n", 1000),
        ("r.slice/memory.max", "max\n", None),
        ("memory/r.slice/memory.limit_in_bytes", "1000\n", 1000),
        ("memory/r.slice/memory.limit_in_bytes", "9223372036854771712\n", None),
        ("other", "", None),
    ],
)
def test_a_parents_ceiling_is_read_from_both_versions(
    tmp_path: Path, file: str, content: str, limit: int | None
) -> None:
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text(content, encoding="ascii")

    assert parent_limit("r.slice", tmp_path) == limit


@pytest.mark.anyio
async def test_without_an_engine_there_is_nothing_to_check(tmp_path: Path) -> None:
    with pytest.raises(SandboxPrerequisiteError):
        await check(POLICY, base_url=f"unix://{tmp_path}/absent.sock")


@pytest.mark.docker
@pytest.mark.anyio
@pytest.mark.usefixtures("engine_api")
async def test_every_control_holds_in_real_containers(policy: Policy) -> None:
    found = await check(policy)

    assert [each for each in found if not each.ok] == []
    assert len(found) > 70


@pytest.mark.docker
@pytest.mark.anyio
@pytest.mark.usefixtures("engine_api")
async def test_real_containers_without_their_lock_down_are_seen(
    policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked = specs.action_spec

    def loosened(*arguments: Any) -> Any:
        spec = locked(*arguments)
        spec.host_config.update(read_only=False, cap_drop=[], ipc_mode="private", security_opt=[])
        spec.config["environment"] = {}
        return spec

    monkeypatch.setattr(specs, "action_spec", loosened)

    found = {each.control for each in await check(policy) if not each.ok}

    assert {
        "the root's mount",
        "capabilities (all five sets)",
        "capabilities dropped",
        "read-only root",
        "ipc",
        "security options",
    } <= found


@pytest.mark.docker
@pytest.mark.anyio
@pytest.mark.usefixtures("engine_api")
async def test_workspaces_get_users_of_the_range_the_sandbox_names(docker_sandbox: DockerSandbox) -> None:
    workspace = await docker_sandbox.open("uid")
    result = await workspace.run("id -u", 20)
    await workspace.close()

    assert int(result.stdout.head) in docker_sandbox.uids
