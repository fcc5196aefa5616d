"""The host sandbox: the same results as the container sandbox's, for commands that are trusted."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from sandbox import HostSandbox, Limit, Workspace

pytestmark = pytest.mark.anyio

LIMIT_BYTES = 4096
FAR_S = 30.0
"""Far above what it takes on a busy machine, far below what the command would take."""


@pytest.fixture
async def workspace(tmp_path: Path) -> AsyncIterator[Workspace]:
    async with HostSandbox(tmp_path, capture_bytes=LIMIT_BYTES, output_limit_bytes=64 << 20) as sandbox:
        yield await sandbox.open("test")


async def test_streams_and_exit_code_are_the_shells(workspace: Workspace) -> None:
    result = await workspace.run("printf 'a\\r\\n'; printf b >&2; exit 3", 5)
    assert (result.stdout.head, result.stderr.head, result.exit_code) == (b"a\r\n", b"b", 3)
    assert (result.timed_out, result.limits) == (False, ())


async def test_death_by_a_signal_is_negative(workspace: Workspace) -> None:
    assert (await workspace.run("kill -9 $$", 5)).exit_code == -9


async def test_files_stay_and_shell_state_does_not(workspace: Workspace) -> None:
    await workspace.run("echo kept > f; X=1; cd /; export X", 5)
    assert (await workspace.run("cat f; echo ${X-unset}", 5)).stdout.head == b"kept\nunset\n"


# An orphan that was killed is a zombie until this machine's process 1 reaps it.
IS_DEAD = "test ! -e /proc/$(cat pid) || grep -q '^State:.Z' /proc/$(cat pid)/status"


async def test_a_time_out_takes_the_whole_group(workspace: Workspace) -> None:
    started = time.monotonic()
    result = await workspace.run("echo before; sleep 60 & echo $! > pid; sleep 60", 0.5)
    assert time.monotonic() - started < FAR_S
    assert (result.exit_code, result.timed_out, result.limits) == (None, True, (Limit.TIME,))
    assert (await workspace.run(IS_DEAD, 5)).exit_code == 0


async def test_a_background_process_that_keeps_a_stream_open_runs_into_the_time_out(
    workspace: Workspace,
) -> None:
    assert (await workspace.run("sleep 60 & echo started", 0.5)).limits == (Limit.TIME,)


async def test_a_flood_is_bounded_and_counted(workspace: Workspace) -> None:
    result = await workspace.run("yes", 30)
    assert (result.exit_code, result.timed_out, result.limits) == (None, True, (Limit.OUTPUT,))
    assert (len(result.stdout.head), len(result.stdout.tail)) == (LIMIT_BYTES, LIMIT_BYTES)
    assert result.stdout.total_bytes > 64 << 20


async def test_stdin_is_empty(workspace: Workspace) -> None:
    assert (await workspace.run("cat; echo done", 5)).stdout.head == b"done\n"


async def test_a_nul_is_refused(workspace: Workspace) -> None:
    with pytest.raises(ValueError, match="embedded null byte"):
        await workspace.run("a\0b", 5)


async def test_cancellation_kills_the_command(workspace: Workspace) -> None:
    with anyio.move_on_after(0.5):
        await workspace.run("echo $$ > pid; sleep 60", 30)
    assert (await workspace.run(IS_DEAD, 5)).exit_code == 0


async def test_closing_removes_the_files(tmp_path: Path) -> None:
    async with HostSandbox(tmp_path) as sandbox:
        workspace = await sandbox.open("test")
        await workspace.run("echo x > f", 5)
    assert not any(os.scandir(tmp_path))
