"""What a sandbox must look like from inside and from the engine, control by control. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sandbox.engine import LABEL_ROLE, LABEL_RUN, LABEL_WORKSPACE
from sandbox.policy import MIB, Policy
from sandbox.specs import ROLE_ACTION, ROLE_HOLDER

REFUSALS = frozenset(("EPERM", "ENOSYS"))
CAPABILITY_SETS = ("CapEff", "CapPrm", "CapInh", "CapBnd", "CapAmb")
# What bash and the engine's shell set by themselves.
OWN_VARIABLES = frozenset(("SHLVL", "_", "OLDPWD"))
STANDARD_DEVICES = frozenset(
    f"/dev/{name}"
    for name in ("null", "zero", "full", "random", "urandom", "tty", "pts/ptmx", "ptmx", "console")
)
# A kernel without 32-bit calls kills who tries one.
NO_32_BIT = REFUSALS | {"SIGSEGV", "SIGILL", "SIGSYS"}
# What a file system's own records may take of a quota.
QUOTA_SLACK_BYTES = MIB
QUOTA_SLACK_INODES = 64
# The agent and the shell.
OWN_PROCESSES = 4
UNLIMITED_V1 = 1 << 60
SHM = "/dev/shm"  # noqa: S108 - the container's
SEPARATE_NAMESPACES = ("net", "ipc", "pid", "mnt", "uts")


@dataclass(frozen=True)
class Check:
    """One control: what must be, what was seen, and whether it holds."""

    control: str
    expected: str
    seen: str
    ok: bool


@dataclass(frozen=True)
class Seen:
    """What `inside` printed in two workspaces, and what the engine says about their containers.

    `failures` says of those of the first five that are empty why they are.
    `parent_limit_bytes` is the memory ceiling of the policy's parent group; None if it has none or cannot
    be seen from here.
    """

    facts: Mapping[str, Any]
    leftovers: Mapping[str, Any]
    work: Mapping[str, Any]
    limits: Mapping[str, Any]
    neighbour: Mapping[str, Any]
    containers: tuple[Mapping[str, Any], ...]
    run_id: str
    uids: range
    cgroup_version: str
    numpy_bytes: int
    parent_limit_bytes: int | None = None
    failures: Mapping[str, str] = field(default_factory=dict)


def judge(policy: Policy, seen: Seen) -> tuple[Check, ...]:
    """Every control of the lock-down; what could not be asked does not hold."""
    found = [Check(f"asking: {part}", "an answer", why, ok=False) for part, why in seen.failures.items()]
    for rules, needed in _PARTS:
        if not any(name in seen.failures for name in needed):
            found += rules(policy, seen)
    return tuple(found)


def same(control: str, expected: object, seen: object) -> Check:
    """A control that is a value."""
    return Check(control, _shown(expected), _shown(seen), expected == seen)


def none_of(control: str, expected: str, offending: Iterable[str]) -> Check:
    """A control that holds if nothing offends; what does is shown."""
    found = sorted(offending)
    return Check(control, expected, ", ".join(found) if found else expected, not found)


def _network(_: Policy, seen: Seen) -> Iterator[Check]:
    network = seen.facts["network"]
    yield same("network interfaces", ["lo"], network["interfaces"])
    yield same("routes", 0, network["routes"])
    refused = network["connect"] in {"ENETUNREACH", "EPERM", "EACCES", "EHOSTUNREACH"}
    yield Check("connecting to an address", "no way there", network["connect"], refused)
    yield Check("looking up a name", "fails", network["dns"], network["dns"] != "opened")


def _privileges(_: Policy, seen: Seen) -> Iterator[Check]:
    status = seen.facts["status"]
    held = (f"{name} {status.get(name)}" for name in CAPABILITY_SETS if int(status.get(name, "1"), 16) != 0)
    yield none_of("capabilities (all five sets)", "none", held)
    yield same("no new privileges", "1", status.get("NoNewPrivs"))
    filters = status.get("Seccomp_filters")
    mode = f"{status.get('Seccomp')}" + (f", {filters} filters" if filters else "")
    enough = status.get("Seccomp") == "2" and int(filters or 2) >= 2
    yield Check("system call filters", "mode 2: the engine's and ours", mode, enough)
    uid, euid, gid, egid = seen.facts["uid"]
    groups = set(status.get("Groups", "").split()) - {str(gid)}
    own = uid == euid == gid == egid and uid in seen.uids and not groups
    expected = f"{seen.uids.start} to {seen.uids.stop - 1}, no other group"
    yield Check("user of its own", expected, f"{uid}:{gid} {' '.join(sorted(groups))}".strip(), own)


def _calls(_: Policy, seen: Seen) -> Iterator[Check]:
    calls = dict(seen.facts["calls"])
    yield same("ordinary system calls", "works", calls.pop("getpid"))
    foreign = {name: calls.pop(name) for name in ("x32", "int80") if name in calls}
    for name, answer in calls.items():
        yield Check(f"call {name}", "EPERM or ENOSYS", answer, answer in REFUSALS)
    for name, answer in foreign.items():
        yield Check(f"foreign ABI {name}", "refused", answer, answer in NO_32_BIT)


def _files(_: Policy, seen: Seen) -> Iterator[Check]:
    facts = seen.facts
    yield none_of(
        "root, /proc/sys and /sys read-only",
        "refused",
        (
            f"{place} {answer}"
            for place, answer in {**facts["writable"], **facts["kernel_files"]}.items()
            if answer not in {"EROFS", "EACCES", "EPERM", "ENOENT"}
        ),
    )
    mounts = {place: (kind, options.split(",")) for place, kind, options in facts["mounts"]}
    yield _mount("the root's mount", mounts.get("/"), {"ro"})
    yield _mount("the workspace's mount", mounts.get("/sandbox"), {"nosuid", "nodev"})
    yield _mount(f"the mount of {SHM}", mounts.get(SHM), {"nosuid", "nodev", "noexec"})
    yield none_of("masked paths of /proc and /sys", "masked", _false(facts["masked"]))
    yield none_of("devices", "the standard ones", set(facts["devices"]) - STANDARD_DEVICES)
    yield none_of("sockets of engines", "absent", facts["sockets"])
    yield none_of(
        "process 1 (the agent) is closed to the command",
        "refused",
        (f"{path} {answer}" for path, answer in facts["process_1"].items() if answer == "opened"),
    )


def _quotas(policy: Policy, seen: Seen) -> Iterator[Check]:
    one_volume = len(set(seen.facts["places"])) == 1
    yield same("/workspace, /tmp and home on one volume", expected=True, seen=one_volume)
    written, refusal = seen.limits["volume"]
    holds = policy.workspace_bytes - QUOTA_SLACK_BYTES <= written <= policy.workspace_bytes
    yield Check(
        "bytes of the workspace",
        f"{policy.workspace_bytes}, then ENOSPC",
        f"{written}, {refusal}",
        holds and refusal == "ENOSPC",
    )
    made, refusal = seen.limits["inodes"]
    holds = policy.workspace_inodes - QUOTA_SLACK_INODES <= made <= policy.workspace_inodes
    yield Check(
        "files of the workspace",
        f"{policy.workspace_inodes}, then ENOSPC",
        f"{made}, {refusal}",
        holds and refusal == "ENOSPC",
    )
    written, refusal = seen.limits["shm"]
    separate = seen.facts["shm"]["device"] not in seen.facts["places"]
    holds = separate and written <= policy.shm_bytes and refusal == "ENOSPC"
    shown = f"{written}, {refusal}" + ("" if separate else ", on the workspace's volume")
    yield Check(f"{SHM}, a file system of its own", f"{policy.shm_bytes}, then ENOSPC", shown, holds)


def _limits(policy: Policy, seen: Seen) -> Iterator[Check]:
    limits, groups = seen.facts["limits"], seen.facts["cgroup"]
    yield same("open files", [policy.nofile] * 2, limits["nofile"])
    yield same("file size", [policy.fsize_bytes] * 2, limits["fsize"])
    yield same("a larger file", "EFBIG", seen.limits["fsize"])
    yield same("core files", [policy.core] * 2, limits["core"])
    forked, refusal = seen.limits["pids"]
    yield Check(
        "processes",
        f"at most {policy.pids}, then EAGAIN",
        f"{forked}, {refusal}",
        forked < policy.pids and refusal == "EAGAIN",
    )
    if seen.cgroup_version == "2":
        yield same("memory", str(policy.memory_bytes), _stripped(groups, "/sys/fs/cgroup/memory.max"))
        swap = _stripped(groups, "/sys/fs/cgroup/memory.swap.max")
        # Absent where the kernel accounts for no swap: then there is none to limit.
        yield Check("swap", "none", swap or "none", swap in {"", "0"})
    else:
        base = "/sys/fs/cgroup/memory/memory"
        yield same("memory", str(policy.memory_bytes), _stripped(groups, f"{base}.limit_in_bytes"))
        both = _stripped(groups, f"{base}.memsw.limit_in_bytes")
        expected = f"{policy.memory_bytes}, or not accounted for"
        yield Check(
            "memory and swap", expected, both or "not accounted for", both in {"", str(policy.memory_bytes)}
        )
    if policy.cgroup_parent is not None:
        ceiling = seen.parent_limit_bytes
        shown = "none that can be seen here" if ceiling is None else str(ceiling)
        yield Check(f"ceiling of {policy.cgroup_parent}", "a memory limit", shown, ceiling is not None)


def _identity(policy: Policy, seen: Seen) -> Iterator[Check]:
    facts = seen.facts
    yield same("host name", policy.hostname, facts["hostname"])
    environment = {name: value for name, value in facts["environment"].items() if name not in OWN_VARIABLES}
    differing = {
        name
        for name in environment.keys() | policy.environment.keys()
        if environment.get(name) != policy.environment.get(name)
    }
    yield none_of("environment", "the policy's, nothing else", differing)
    yield same("standard input", "0 bytes", f"{facts['stdin_bytes']} bytes")
    descriptors = facts["descriptors"]
    yield Check(
        "open descriptors",
        "0, 1, 2",
        ", ".join(descriptors),
        {entry.split()[0] for entry in descriptors} == set("012"),
    )


def _engine(policy: Policy, seen: Seen) -> Iterator[Check]:
    """What the engine says, for holders and actions alike."""
    hosts = [container["HostConfig"] for container in seen.containers]
    roles = {(container["Config"].get("Labels") or {}).get(LABEL_ROLE) for container in seen.containers}
    shown = ", ".join(sorted(str(role) for role in roles)) or "none"
    yield Check("containers looked at", "holders and actions", shown, {ROLE_HOLDER, ROLE_ACTION} <= roles)
    yield _every("log driver", "none", [(host.get("LogConfig") or {}).get("Type") for host in hosts])
    yield _every("ipc", "none", [host.get("IpcMode") for host in hosts])
    yield _every("capabilities dropped", ["ALL"], [host.get("CapDrop") for host in hosts])
    yield _every("capabilities added", [], [host.get("CapAdd") or [] for host in hosts])
    yield _every("privileged", expected=False, seen=[host.get("Privileged") for host in hosts])
    yield _every("read-only root", expected=True, seen=[host.get("ReadonlyRootfs") for host in hosts])
    yield _every("security options", ["no-new-privileges"], [host.get("SecurityOpt") for host in hosts])
    yield _every(
        "masked paths in place", expected=True, seen=[bool(host.get("MaskedPaths")) for host in hosts]
    )
    yield _every(
        "devices and GPUs",
        [],
        [(host.get("Devices") or []) + (host.get("DeviceRequests") or []) for host in hosts],
    )
    yield _every("bind mounts of the host", [], [host.get("Binds") or [] for host in hosts])
    swap = [host.get("MemorySwap") == host.get("Memory") for host in hosts]
    yield _every("swap beyond memory refused", expected=True, seen=swap)
    runtimes = sorted({str(host.get("Runtime")) for host in hosts})
    no_gpu = not any("nvidia" in runtime for runtime in runtimes)
    yield Check(
        "runtime",
        policy.runtime or "no GPU runtime",
        ", ".join(runtimes),
        no_gpu and (policy.runtime is None or runtimes == [policy.runtime]),
    )
    modes = {str(host.get("NetworkMode")).split(":")[0] for host in hosts}
    yield Check(
        "network mode",
        "none, shared within a workspace",
        ", ".join(sorted(modes)),
        modes == {"none", "container"},
    )
    if seen.cgroup_version == "2":
        yield _every("cgroup namespace", "private", [host.get("CgroupnsMode") for host in hosts])
    labels = [(container["Config"].get("Labels") or {}) for container in seen.containers]
    complete = [
        each.get(LABEL_RUN) == seen.run_id and {LABEL_ROLE, LABEL_WORKSPACE} <= each.keys() for each in labels
    ]
    yield _every("labels of the run, the workspace, the role", expected=True, seen=complete)


def _isolation(_: Policy, seen: Seen) -> Iterator[Check]:
    left = seen.leftovers
    dead = left["started"] and not left["grew"] and left["processes"] <= OWN_PROCESSES
    expected = f"at most {OWN_PROCESSES} processes, its own"
    shown = f"{left['processes']} processes, file grew by {left['grew']} bytes"
    yield Check("a background process is dead before the next action", f"{expected}; no growth", shown, dead)
    other = seen.neighbour
    yield none_of("files of another workspace", "none", other["found"])
    different = other["uid"] != seen.facts["uid"][0]
    yield Check("another workspace's user", "a different one", str(other["uid"]), different)
    own = seen.facts["namespaces"]
    shared = [
        name for name in SEPARATE_NAMESPACES if name in own and own[name] == other["namespaces"].get(name)
    ]
    yield none_of("namespaces shared with another workspace", "none", shared)
    yield Check("processes of others", expected, str(other["processes"]), other["processes"] <= OWN_PROCESSES)


def _usable(_: Policy, seen: Seen) -> Iterator[Check]:
    yield same("multiprocessing.Pool(4)", "works", "works" if seen.work["pool"] else "fails")
    yield same("bytes that numpy can hold", seen.numpy_bytes, seen.work["numpy_bytes"])
    yield same("sympy integrates", "pi/2", seen.work["sympy"])


def _mount(control: str, found: tuple[str, list[str]] | None, wanted: set[str]) -> Check:
    if found is None:
        return Check(control, ", ".join(sorted(wanted)), "not mounted", ok=False)
    kind, options = found
    held = sorted(wanted & set(options))
    return Check(
        control,
        ", ".join(sorted(wanted)),
        f"{kind}: {', '.join(held) or 'none of them'}",
        set(held) == wanted,
    )


def _every(control: str, expected: object, seen: list[Any]) -> Check:
    others = sorted({_shown(value) for value in seen if value != expected})
    return Check(control, _shown(expected), ", ".join(others) or _shown(expected), bool(seen) and not others)


def _false(answers: Mapping[str, bool]) -> list[str]:
    return [name for name, answer in answers.items() if not answer]


def _stripped(files: Mapping[str, str], path: str) -> str:
    return files.get(path, "").strip()


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(str(item) for item in value) or "none"
    return str(value)


# Rules, and the answers that they read.
_PARTS: tuple[tuple[Callable[[Policy, Seen], Iterable[Check]], tuple[str, ...]], ...] = (
    (_network, ("facts",)),
    (_privileges, ("facts",)),
    (_calls, ("facts",)),
    (_files, ("facts",)),
    (_quotas, ("facts", "limits")),
    (_limits, ("facts", "limits")),
    (_identity, ("facts",)),
    (_engine, ()),
    (_isolation, ("facts", "leftovers", "neighbour")),
    (_usable, ("work",)),
)
