"""Sent into a sandbox and run there: says what a command sees, as JSON. Only the standard library.

It imports nothing of ours and is never imported by us but for its tests: `checks` reads the file's text.
`python3 inside.py PART [NUMBER...]` prints one JSON object; the parts are functions below.
"""

from __future__ import annotations

import ctypes
import errno
import importlib
import json
import mmap
import multiprocessing
import os
import platform
import re
import resource
import signal
import socket
import stat
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

MIB = 1 << 20
SHM, TMP = "/dev/shm", "/tmp"  # noqa: S108 - the sandbox's own
OPENED = "opened"
FORK_ROUND_S = 10.0

# Numbers where the architectures differ, and those that are the same on all.
CALLS: dict[str, dict[str, int]] = {
    "x86_64": {
        "ptrace": 101, "process_vm_readv": 310, "process_vm_writev": 311, "kcmp": 312, "keyctl": 250,
        "add_key": 248, "request_key": 249, "userfaultfd": 323, "bpf": 321, "perf_event_open": 298,
        "name_to_handle_at": 303, "open_by_handle_at": 304, "modify_ldt": 154, "sync": 162, "syncfs": 306,
        "unshare": 272, "setns": 308, "mount": 165,
    },
    "aarch64": {
        "ptrace": 117, "process_vm_readv": 270, "process_vm_writev": 271, "kcmp": 272, "keyctl": 219,
        "add_key": 217, "request_key": 218, "userfaultfd": 282, "bpf": 280, "perf_event_open": 241,
        "name_to_handle_at": 264, "open_by_handle_at": 265, "sync": 81, "syncfs": 267, "unshare": 97,
        "setns": 268, "mount": 40,
    },
}  # fmt: skip
EVERYWHERE = {
    "io_uring_setup": 425,
    "io_uring_enter": 426,
    "io_uring_register": 427,
    "pidfd_getfd": 438,
    "memfd_secret": 447,
}
# Without a filter most of these would do something or complain about their arguments, not about permission.
ARGUMENTS: dict[str, tuple[int, ...]] = {
    "unshare": (0x10000000,),
    "keyctl": (0, -3, 0),
    "syncfs": (1,),
    "perf_event_open": (0, 0, -1, -1, 0),
    "modify_ldt": (0, 0, 0),
    "kcmp": (1, 1, 0),
}
X32_GETPID = 0x40000000 + 39
# mov eax, 20 (getpid of i386); int 0x80; ret
INT_80 = b"\xb8\x14\x00\x00\x00\xcd\x80\xc3"
FAMILIES = {"alg": 38, "vsock": 40, "packet": 17, "netlink": 16}
SECRET_PATHS = (
    "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list", "/proc/sched_debug",
    "/proc/acpi", "/proc/scsi", "/sys/firmware",
)  # fmt: skip
CGROUP_FILES = (
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/memory.swap.max",
    "/sys/fs/cgroup/pids.max",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
    "/sys/fs/cgroup/memory/memory.memsw.limit_in_bytes",
    "/sys/fs/cgroup/pids/pids.max",
    "/proc/self/cgroup",
)
READ_ONLY_PLACES = ("/", "/usr/bin", "/etc", "/sys", "/sys/fs/cgroup", "/dev")
KERNEL_FILES = (
    "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname", "/proc/sysrq-trigger",
    "/proc/1/oom_score_adj",
)  # fmt: skip


def text(path: str) -> str | None:
    """A small file's content; None if it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def name_of(error: OSError) -> str:
    """An errno as the manual writes it."""
    return errno.errorcode.get(error.errno or 0, str(error.errno))


def outcome(action: Callable[[], object]) -> str:
    """`opened`, or the name of the error."""
    try:
        action()
    except OSError as error:
        return name_of(error)
    return OPENED


def system_calls() -> dict[str, str]:
    """What each call that is to be refused answers."""
    libc = ctypes.CDLL(None, use_errno=True)

    def answer(number: int, arguments: tuple[int, ...]) -> str:
        ctypes.set_errno(0)
        padded = [ctypes.c_long(value) for value in (arguments + (0,) * 6)[:6]]
        returned = libc.syscall(ctypes.c_long(number), *padded)
        found = ctypes.get_errno()
        return errno.errorcode.get(found, str(found)) if returned == -1 else f"returned {returned}"

    machine = platform.machine()
    answers = {
        name: answer(number, ARGUMENTS.get(name, ()))
        for name, number in {**CALLS.get(machine, {}), **EVERYWHERE}.items()
    }
    if machine == "x86_64":
        answers["x32"] = answer(X32_GETPID, ())
        answers["int80"] = int_80()
    answers["getpid"] = "works" if answer(39 if machine == "x86_64" else 172, ()) != "EPERM" else "EPERM"
    for name, family in FAMILIES.items():
        kind = socket.SOCK_RAW if name in {"packet", "netlink"} else socket.SOCK_STREAM
        kind = socket.SOCK_SEQPACKET if name == "alg" else kind
        answers[f"socket {name}"] = outcome(partial(open_socket, family, kind))
    return answers


def open_socket(family: int, kind: int) -> None:
    """Open one and close it."""
    socket.socket(family, kind, 0).close()


def open_file(path: str, flags: int) -> None:
    """Open one as it is, and close it."""
    os.close(os.open(path, flags))


def int_80() -> str:
    """A call in the 32-bit way, in a child: a kernel without it kills the child."""
    child = os.fork()
    if child == 0:
        code = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        code.write(INT_80)
        function = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
        returned = function()
        os._exit(-returned if -128 < returned < 0 else 0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return signal.Signals(os.WTERMSIG(status)).name
    code_seen = os.WEXITSTATUS(status)
    return errno.errorcode.get(code_seen, "returned") if code_seen else "returned"


def network() -> dict[str, Any]:
    """Interfaces, routes, and what a connection and a look-up say."""
    lines = (text("/proc/net/dev") or "").splitlines()[2:]
    interfaces = sorted(line.split(":")[0].strip() for line in lines)
    routes = (text("/proc/net/route") or "").splitlines()[1:]
    with socket.socket() as attempt:
        attempt.settimeout(3)
        connect = outcome(lambda: attempt.connect(("169.254.169.254", 80)))
    try:
        socket.getaddrinfo("example.com", 80)
        look_up = OPENED
    except socket.gaierror as error:
        look_up = f"gaierror {error.errno}"
    return {"interfaces": interfaces, "routes": len(routes), "connect": connect, "dns": look_up}


def writable(place: str) -> str:
    """Whether a file can be made in a directory."""
    path = Path(place) / "recount-check"
    said = outcome(lambda: path.open("x").close())
    if said == OPENED:
        path.unlink()
    return said


def masked(path: str) -> bool:
    """Absent, an empty file or directory, or not to be read: nothing of the host's to see."""
    try:
        mode = Path(path).stat().st_mode
        if stat.S_ISDIR(mode):
            return not any(Path(path).iterdir())
        with Path(path).open("rb") as file:
            return not file.read(1)
    except OSError:
        return True


def facts() -> dict[str, Any]:
    """Everything that can be looked at without doing harm."""
    # First of all: what is looked at later opens descriptors of its own.
    descriptors = []
    for entry in Path("/proc/self/fd").iterdir():
        try:
            descriptors.append(f"{entry.name} {entry.readlink()}")
        except OSError:
            continue  # the listing's own
    status = dict(
        line.split(":", 1) for line in (text("/proc/self/status") or "").splitlines() if ":" in line
    )
    wanted = re.compile(r"Cap|NoNewPrivs|Seccomp|Groups")
    devices = [
        str(path)
        for path in Path("/dev").rglob("*")
        if stat.S_ISCHR(path.lstat().st_mode) or stat.S_ISBLK(path.lstat().st_mode)
    ]
    volume, shm = os.statvfs("/sandbox"), os.statvfs(SHM)
    limits = {
        name: list(resource.getrlimit(getattr(resource, f"RLIMIT_{name.upper()}")))
        for name in ("nofile", "fsize", "core")
    }
    return {
        "status": {name: value.strip() for name, value in status.items() if wanted.match(name)},
        "uid": [os.getuid(), os.geteuid(), os.getgid(), os.getegid()],
        "environment": dict(os.environ),
        "descriptors": sorted(descriptors),
        "stdin_bytes": len(sys.stdin.buffer.read()),
        "hostname": socket.gethostname(),
        "network": network(),
        "calls": system_calls(),
        "writable": {place: writable(place) for place in READ_ONLY_PLACES},
        "kernel_files": {path: outcome(partial(open_file, path, os.O_WRONLY)) for path in KERNEL_FILES},
        "mounts": [line.split()[1:4] for line in (text("/proc/self/mounts") or "").splitlines()],
        "masked": {path: masked(path) for path in SECRET_PATHS},
        "devices": devices,
        "limits": limits,
        "cgroup": {path: content for path in CGROUP_FILES if (content := text(path)) is not None},
        "volume": {"bytes": volume.f_blocks * volume.f_frsize, "inodes": volume.f_files},
        "places": [Path(path).stat().st_dev for path in ("/sandbox", "/workspace", TMP, "/home/agent")],
        "shm": {"bytes": shm.f_blocks * shm.f_frsize, "device": Path(SHM).stat().st_dev},
        "process_1": {
            path: outcome(partial(open_file, f"/proc/1/{path}", os.O_RDONLY))
            for path in ("environ", "mem", "maps", "fd/0", "fd/1")
        },
        "sockets": [
            path
            for path in ("/var/run/docker.sock", "/run/docker.sock", "/run/containerd", "/run/recount")
            if os.path.lexists(path)
        ],
        "namespaces": {path.name: str(path.readlink()) for path in Path("/proc/self/ns").iterdir()},
    }


def sleepers() -> dict[str, Any]:
    """What an earlier command left: its processes, and whether its file still grows."""
    grown = Path(TMP) / "daemon"
    before = grown.stat().st_size
    time.sleep(0.3)
    return {"started": before > 0, "grew": grown.stat().st_size - before, "processes": processes()}


def processes() -> int:
    """How many there are to be seen."""
    return sum(entry.name.isdigit() for entry in Path("/proc").iterdir())


def square(number: int) -> int:
    """For the pool."""
    return number * number


def work() -> dict[str, Any]:
    """What calculations need and isolation must not take away."""
    numpy, sympy = importlib.import_module("numpy"), importlib.import_module("sympy")
    with multiprocessing.Pool(4) as pool:
        squares = pool.map(square, range(8))
    array = numpy.ones(int(sys.argv[2]), dtype=numpy.uint8)
    touched = int(array.sum(dtype=numpy.int64))
    x = sympy.Symbol("x")
    return {
        "pool": squares == [number * number for number in range(8)],
        "numpy_bytes": touched,
        "sympy": str(sympy.integrate(sympy.sin(x) ** 2, (x, 0, sympy.pi))),
    }


def limits() -> dict[str, Any]:
    """Runs into every quota, cleaning up after itself."""
    fsize, inodes, pids = (int(number) for number in sys.argv[2:5])
    here = Path("/workspace")
    found: dict[str, Any] = {}
    found["volume"] = fill_all(here)
    found["shm"] = fill_all(Path(SHM))
    sparse = here / "sparse"
    with sparse.open("wb") as file:
        found["fsize"] = outcome(lambda: os.ftruncate(file.fileno(), fsize + 1))
    sparse.unlink()
    made, refusal = 0, ""
    while made <= inodes:
        try:
            os.mknod(here / f"f{made}", stat.S_IFREG | 0o600)
        except OSError as error:
            refusal = name_of(error)
            break
        made += 1
    for number in range(made):
        (here / f"f{number}").unlink()
    found["inodes"] = [made, refusal]
    found["pids"] = fork_until_refused(pids)
    return found


def fill_all(directory: Path) -> list[Any]:
    """Several files, since one may meet the file-size limit first."""
    total, refusal = 0, errno.errorcode[errno.EFBIG]
    paths: list[Path] = []
    while refusal == errno.errorcode[errno.EFBIG] and len(paths) < 64:
        path = directory / f"fill{len(paths)}"
        written = 0
        try:
            with path.open("wb", buffering=0) as file:
                while True:
                    written += file.write(b"\0" * MIB)
        except OSError as error:
            refusal = name_of(error)
        paths.append(path)
        total += written
    for path in paths:
        path.unlink(missing_ok=True)
    return [total, refusal]


def fork_until_refused(pids: int) -> list[Any]:
    """How many children there could be, and how the next was refused."""
    children: list[int] = []
    refusal = ""
    deadline = time.monotonic() + FORK_ROUND_S
    while len(children) <= pids and time.monotonic() < deadline:
        try:
            child = os.fork()
        except OSError as error:
            refusal = name_of(error)
            break
        if child == 0:
            signal.pause()
            os._exit(0)
        children.append(child)
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return [len(children), refusal]


def neighbour() -> dict[str, Any]:
    """What another workspace can find of the first: its user's processes, its files, its namespaces."""
    found = []
    for place in ("/workspace", TMP, "/home/agent", SHM):
        found += [str(path) for path in Path(place).rglob("*") if path.name.startswith("secret")]
    return {
        "uid": os.getuid(),
        "found": found,
        "processes": processes(),
        "namespaces": {path.name: str(path.readlink()) for path in Path("/proc/self/ns").iterdir()},
    }


PARTS = {"facts": facts, "sleepers": sleepers, "work": work, "limits": limits, "neighbour": neighbour}

if __name__ == "__main__":
    json.dump(PARTS[sys.argv[1]](), sys.stdout)
