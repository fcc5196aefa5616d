"""What commands cannot do, in real containers with the policy's limits."""

from __future__ import annotations

import re

import pytest

from sandbox import DockerSandbox, Limit, Workspace

pytestmark = [pytest.mark.docker, pytest.mark.anyio]

TIMEOUT_S = 20.0


async def text(workspace: Workspace, script: str) -> str:
    result = await workspace.run(script, TIMEOUT_S)
    return (result.stdout.head + result.stderr.head).decode()


async def test_memory_that_kills_a_child_is_named_and_the_shell_lives_on(workspace: Workspace) -> None:
    result = await workspace.run("tail /dev/zero; echo rc=$?", TIMEOUT_S)
    assert (result.stdout.head, result.exit_code) == (b"rc=137\n", 0)
    assert result.limits == (Limit.MEMORY,)


async def test_memory_that_kills_the_shell_is_named(workspace: Workspace) -> None:
    result = await workspace.run("echo before; exec tail /dev/zero", TIMEOUT_S)
    assert (result.exit_code, result.timed_out, result.limits) == (-9, False, (Limit.MEMORY,))
    assert result.stdout.head == b"before\n"


async def test_a_shell_that_kills_itself_is_not_out_of_memory(workspace: Workspace) -> None:
    assert (await workspace.run("kill -9 $$", TIMEOUT_S)).limits == ()


async def test_a_fork_bomb_meets_the_process_limit_and_the_next_action_works(workspace: Workspace) -> None:
    result = await workspace.run("b(){ b|b& };b; sleep 1", 5)
    assert Limit.PROCESSES in result.limits
    assert await text(workspace, "echo fine") == "fine\n"


@pytest.mark.parametrize("target", ["1", "-1"])
async def test_the_agent_cannot_be_killed(workspace: Workspace, target: str) -> None:
    result = await workspace.run(f"kill -9 {target}; kill -STOP {target}; echo alive", TIMEOUT_S)
    assert result.stdout.head == b"alive\n"


@pytest.mark.parametrize(
    "path", ["/proc/1/environ", "/proc/1/fd/0", "/proc/1/fd/1", "/proc/1/mem", "/proc/1/maps"]
)
async def test_the_agents_insides_cannot_be_opened(workspace: Workspace, path: str) -> None:
    result = await workspace.run(f"exec 3< {path} && echo opened", TIMEOUT_S)
    assert result.stdout.head == b""


async def test_the_agents_limits_cannot_be_set(workspace: Workspace) -> None:
    assert "not permitted" in await text(workspace, "prlimit --pid 1 --cpu=0; prlimit --pid 1 --nofile=0:0")
    assert (await text(workspace, "ulimit -v 8388608; ulimit -v")).strip() == "8388608"


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("dd if=/dev/zero of=big bs=1M; ls -s big", "No space left"),
        ("dd if=/dev/zero of=/tmp/big bs=1M", "No space left"),
        ("dd if=/dev/zero of=$HOME/big bs=1M", "No space left"),
        ("for i in $(seq 3000); do : > f$i; done 2>&1 | tail -n 1", "No space left"),
        ("truncate -s 1T s; echo rc=$?", "rc=153"),
        ("fallocate -l 9G x; echo rc=$?", "rc=153"),
        ("for i in 1 2; do dd if=/dev/zero of=/dev/shm/$i bs=1M count=40; done", "No space left"),
        ("echo x > /etc/passwd; echo y > /usr/x; echo z > /x", "Read-only file system"),
        ("mount -t tmpfs x /mnt; unshare -Ur id", "not permitted"),
        ("echo x > /proc/sys/kernel/core_pattern", "Read-only file system"),
        ("echo b > /proc/sysrq-trigger", "Read-only file system|denied|No such file"),
        ("mkdir /sys/fs/cgroup/memory/x /sys/fs/cgroup/x", "Read-only file system"),
        ("echo > /dev/tcp/169.254.169.254/80", "Network is unreachable"),
        ("cat /etc/shadow", "Permission denied"),
        ("ls /var/run/docker.sock /run/docker.sock", "No such file"),
        ("ls /dev/nvidia*", "No such file"),
        ("python3 -c 'f=[open(\"/dev/null\") for _ in range(99999)]'", "Too many open files"),
    ],
)
async def test_it_is_refused(workspace: Workspace, script: str, expected: str) -> None:
    assert re.search(expected, await text(workspace, script))
    assert await text(workspace, "rm -rf /workspace/* /tmp/* ~/*; echo fine > f; cat f") == "fine\n"


async def test_there_is_no_interface_but_the_loopback(workspace: Workspace) -> None:
    assert await text(workspace, "ls /sys/class/net") == "lo\n"
    assert await text(workspace, "getent hosts example.com; echo rc=$?") == "rc=2\n"


async def test_no_capability_and_no_new_privileges(workspace: Workspace) -> None:
    status = await text(workspace, "grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status")
    fields = dict(line.split(":\t") for line in status.splitlines())
    assert fields.pop("NoNewPrivs") == "1"
    assert fields.pop("Seccomp") == "2"
    assert set(fields.values()) == {"0" * 16}


async def test_system_calls_that_no_calculation_needs_are_refused(workspace: Workspace) -> None:
    script = r"""python3 - <<'EOF'
import ctypes, os, socket
libc = ctypes.CDLL(None, use_errno=True)
def call(name, *numbers):
    ctypes.set_errno(0)
    libc.syscall(*numbers)
    print(name, os.strerror(ctypes.get_errno()))
call("ptrace", 101, 0, 0, 0, 0)
call("process_vm_readv", 310, os.getpid(), 0, 0, 0, 0, 0)
call("io_uring_setup", 425, 8, 0)
call("keyctl", 250, 0, -3, 0)
call("userfaultfd", 323, 0)
call("bpf", 321, 0, 0, 0)
call("perf_event_open", 298, 0, 0, -1, -1, 0)
call("name_to_handle_at", 303, 0, 0, 0, 0, 0)
call("memfd_secret", 447, 0)
call("syncfs", 306, 1)
call("unshare", 272, 0x10000000)
call("x32 getpid", 0x40000000 + 39)
call("getpid", 39)
for family in (38, 40, 17, 16):
    try:
        socket.socket(family, socket.SOCK_RAW if family in (16, 17) else socket.SOCK_STREAM, 0)
        print(family, "opened")
    except OSError as error:
        print(family, error.strerror)
for family in (socket.AF_INET, socket.AF_UNIX):
    socket.socket(family).close()
EOF"""
    denied = "Operation not permitted"
    absent = "Function not implemented"
    expected = {
        **dict.fromkeys(("ptrace", "process_vm_readv", "keyctl", "userfaultfd", "bpf"), denied),
        **dict.fromkeys(("perf_event_open", "name_to_handle_at", "syncfs", "unshare"), denied),
        **dict.fromkeys(("io_uring_setup", "memfd_secret", "x32 getpid"), absent),
        "getpid": "Success",
        **dict.fromkeys(("38", "40", "17", "16"), denied),
    }
    lines = (await text(workspace, script)).splitlines()
    seen = {
        name: next(line.removeprefix(f"{name} ") for line in lines if line.startswith(f"{name} "))
        for name in expected
    }
    assert seen == expected


async def test_two_workspaces_do_not_see_each_other(
    docker_sandbox: DockerSandbox, workspace: Workspace
) -> None:
    other = await docker_sandbox.open("other")
    await other.run("echo secret > f; echo secret > /tmp/f; chmod -R 777 /sandbox", TIMEOUT_S)
    assert "secret" not in await text(workspace, "cat f /tmp/f ~/f; grep -r secret / 2>/dev/null --include=f")
    users = {await text(each, "id -u") for each in (workspace, other)}
    assert len(users) == 2
    processes = await text(workspace, "ls -d /proc/[0-9]* | wc -l")
    assert int(processes) < 6
    await other.close()


async def test_nothing_on_one_volume_fills_another(
    docker_sandbox: DockerSandbox, workspace: Workspace
) -> None:
    other = await docker_sandbox.open("other")
    await workspace.run("dd if=/dev/zero of=big bs=1M", TIMEOUT_S)
    assert await text(other, "dd if=/dev/zero of=big bs=1M count=8 status=none; echo $?") == "0\n"
    await other.close()
