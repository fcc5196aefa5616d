"""The agent's system call filter, by itself and without an engine's: it has to deny what it denies alone,
since engines of other ages deny less."""

from __future__ import annotations

import errno
import platform
import re
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from sandbox.inside import ARGUMENTS, CALLS, EVERYWHERE, X32_GETPID

HERE = Path(__file__).parent
AGENT = HERE.parents[1] / "sandbox" / "agent"
MACHINE = platform.machine()
NUMBERS = {**CALLS.get(MACHINE, {}), **EVERYWHERE}
ABSENT = {"io_uring_setup", "io_uring_enter", "io_uring_register", "memfd_secret"}
SOCKET = {"x86_64": 41, "aarch64": 198}.get(MACHINE, 0)
SOCKETPAIR = {"x86_64": 53, "aarch64": 199}.get(MACHINE, 0)
PRLIMIT = {"x86_64": 302, "aarch64": 261}.get(MACHINE, 0)
GETPID = {"x86_64": 39, "aarch64": 172}.get(MACHINE, 0)
OPENAT2, PIDFD_SEND_SIGNAL = 437, 424
CLOSE_RANGE = 436

pytestmark = pytest.mark.skipif(MACHINE not in CALLS, reason=f"no system call numbers for {MACHINE}")


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler to build the agent's filter with")
    program = tmp_path_factory.mktemp("seccomp") / "harness"
    source = HERE / "seccomp_harness.c"
    subprocess.run(
        [compiler, "-O1", "-std=gnu11", "-Wall", "-Wextra", "-Werror", f"-I{AGENT}", "-o", program, source],
        check=True,
    )
    return program


def answer(harness: Path, number: int, *arguments: int) -> str:
    asked = ",".join(str(value) for value in (number, *arguments))
    done = subprocess.run([harness, asked], check=True, capture_output=True, text=True, timeout=30)
    return errno.errorcode.get(int(done.stdout.split()[1]), "works")


@pytest.mark.parametrize("name", sorted(NUMBERS))
def test_the_filter_alone_denies(harness: Path, name: str) -> None:
    arguments = ARGUMENTS.get(name, ())[:3]

    assert answer(harness, NUMBERS[name], *arguments) == ("ENOSYS" if name in ABSENT else "EPERM")


@pytest.mark.skipif(MACHINE != "x86_64", reason="x32 is of x86")
def test_calls_by_their_x32_numbers_are_refused(harness: Path) -> None:
    assert answer(harness, X32_GETPID) == "ENOSYS"


@pytest.mark.parametrize("family", ["AF_ALG", "AF_VSOCK", "AF_PACKET", "AF_NETLINK"])
def test_socket_families_that_leave_the_namespace_are_refused(harness: Path, family: str) -> None:
    number = int(getattr(socket, family))

    assert answer(harness, SOCKET, number, int(socket.SOCK_RAW), 0) == "EPERM"
    assert answer(harness, SOCKETPAIR, number, int(socket.SOCK_RAW), 0) == "EPERM"


@pytest.mark.parametrize("family", ["AF_UNIX", "AF_INET", "AF_INET6"])
def test_other_sockets_open(harness: Path, family: str) -> None:
    assert answer(harness, SOCKET, int(getattr(socket, family)), int(socket.SOCK_STREAM), 0) == "works"


def test_limits_of_process_1_are_not_to_be_set_and_others_are(harness: Path) -> None:
    assert answer(harness, PRLIMIT, 1, 7, 0) == "EPERM"
    assert answer(harness, PRLIMIT, 0, 7, 0) == "works"


def test_calls_beside_the_denied_ones_are_let_through(harness: Path) -> None:
    assert answer(harness, GETPID) == "works"
    # The neighbours of io_uring's numbers: theirs are the arguments' faults, not the filter's.
    assert answer(harness, PIDFD_SEND_SIGNAL, -1) == "EBADF"
    assert answer(harness, OPENAT2, -1, 0) in {"EINVAL", "EFAULT"}
    assert answer(harness, CLOSE_RANGE, 100, 200) == "works"


def test_every_denial_says_why() -> None:
    """A comment stands over each group of a few; a denial that is added gets one, or joins a group."""
    text = (AGENT / "filter.h").read_text(encoding="utf-8")
    program = text[text.index("struct sock_filter program") : text.index("ANSWER(SECCOMP_RET_ALLOW)")]
    before, *groups = re.split(r"/\*.*?\*/", program, flags=re.DOTALL)
    denials = [len(re.findall(r"\bDENY\w*\(", group)) for group in groups]

    assert "DENY" not in before
    assert max(denials) <= 5
    assert set(CALLS[MACHINE]) <= set(re.findall(r"DENY\(SYS_(\w+)\)", program))
