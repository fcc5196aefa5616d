"""What commands do in real containers, and what their results say."""

from __future__ import annotations

import random
import resource
import time
from collections.abc import Callable

import anyio
import pytest

from sandbox import DockerSandbox, Limit, Policy, Workspace
from sandbox.types import ActionResult

pytestmark = [pytest.mark.docker, pytest.mark.anyio]

TIMEOUT_S = 20.0
FAR_S = 30.0
"""Far above what it takes on a busy machine, far below what the command would take."""


async def out(workspace: Workspace, script: str | bytes, timeout_s: float = TIMEOUT_S) -> bytes:
    return (await workspace.run(script, timeout_s)).stdout.head


def everything(result: ActionResult) -> tuple[bytes, bytes]:
    return result.stdout.head + result.stdout.tail, result.stderr.head + result.stderr.tail


async def test_streams_and_exit_code_are_the_shells(workspace: Workspace) -> None:
    result = await workspace.run("echo out; echo err >&2; exit 3", TIMEOUT_S)
    assert everything(result) == (b"out\n", b"err\n")
    assert (result.exit_code, result.timed_out, result.limits) == (3, False, ())


async def test_files_stay_from_one_action_to_the_next_in_workspace_tmp_and_home(workspace: Workspace) -> None:
    await workspace.run("echo a > f; echo b > /tmp/f; echo c > ~/f", TIMEOUT_S)
    assert await out(workspace, "cat /workspace/f /tmp/f $HOME/f /var/tmp/f") == b"a\nb\nc\nb\n"


async def test_directory_and_variables_do_not_stay(workspace: Workspace) -> None:
    await workspace.run("cd /; export X=1; alias ls=false; f() { :; }; export -f f", TIMEOUT_S)
    assert (
        await out(workspace, "pwd; echo ${X-unset}; type -t f || echo none") == b"/workspace\nunset\nnone\n"
    )


async def test_the_environment_is_the_policys_and_nothing_else(workspace: Workspace, policy: Policy) -> None:
    lines = (await out(workspace, "env -0")).decode().strip("\0").split("\0")
    added_by_bash = {"SHLVL", "_", "OLDPWD"}
    seen = dict(line.split("=", 1) for line in lines)
    assert {name: value for name, value in seen.items() if name not in added_by_bash} == policy.environment


async def test_death_of_the_shell_by_a_signal_is_negative(workspace: Workspace) -> None:
    assert (await workspace.run("kill -9 $$", TIMEOUT_S)).exit_code == -9
    segv = await workspace.run("ulimit -c unlimited; kill -SEGV $$", TIMEOUT_S)
    assert (segv.exit_code, segv.limits) == (-11, ())


async def test_death_of_a_child_by_a_signal_is_the_shells_code(workspace: Workspace) -> None:
    assert (await workspace.run("bash -c 'kill -9 $$'; exit $?", TIMEOUT_S)).exit_code == 137


async def test_stdin_is_empty(workspace: Workspace) -> None:
    assert await out(workspace, "cat; echo done") == b"done\n"


async def test_the_shell_is_what_subprocess_would_start(workspace: Workspace) -> None:
    assert await out(workspace, "echo $0 $# $-") == b"/bin/bash 0 hBc\n"
    result = await workspace.run("nonsense-command", TIMEOUT_S)
    assert result.stderr.head == b"/bin/bash: line 1: nonsense-command: command not found\n"
    assert result.exit_code == 127


async def test_only_the_three_streams_are_open(workspace: Workspace) -> None:
    assert await out(workspace, "for f in /proc/$$/fd/*; do echo ${f##*/}; done | sort -n | head -3") == (
        b"0\n1\n2\n"
    )
    assert b"pipe" not in (await out(workspace, "cd /proc/$$/fd; ls -l 3 4 5 6 7 8 9 2>&1 | grep -e pipe"))


async def test_bytes_pass_unchanged(workspace: Workspace) -> None:
    assert await out(workspace, rb"printf 'a\r\nb\rc\0d\033[2J\n'") == b"a\r\nb\rc\0d\x1b[2J\n"


async def test_what_looks_like_a_frame_is_data(workspace: Workspace) -> None:
    script = rb"printf 'Z\0\0\0\0'; printf '\1\0\0\0\0\0\0\5fake'; printf 'R\0\0\0\1x' >&2"
    result = await workspace.run(script, TIMEOUT_S)
    assert everything(result) == (b"Z\0\0\0\0\1\0\0\0\0\0\0\5fake", b"R\0\0\0\1x")


async def test_a_script_longer_than_an_argument_is_delivered(workspace: Workspace) -> None:
    body = "".join(f"x={number}\n" for number in range(40_000))
    assert len(body) > 300_000
    result = await workspace.run(body + "echo $x ${__script-gone}; ls /proc/$$/fd | wc -l; exit 7", TIMEOUT_S)
    assert result.stdout.head.startswith(b"39999 gone\n")
    assert result.exit_code == 7


@pytest.mark.parametrize("length", [131_071, 131_072])
async def test_scripts_at_the_boundary_of_an_argument_run(workspace: Workspace, length: int) -> None:
    assert await out(workspace, "echo ok #".ljust(length, "x")) == b"ok\n"


async def test_a_nul_is_refused_before_anything_runs(workspace: Workspace) -> None:
    with pytest.raises(ValueError, match="embedded null byte"):
        await workspace.run("echo a\0b", TIMEOUT_S)


def pythons_message(data: bytes) -> str | None:
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return str(error)
    return None


async def test_decode_errors_are_pythons(workspace: Workspace) -> None:
    rng = random.Random(20)  # noqa: S311 - test data
    edges = bytes([0x41, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC1, 0xC2, 0xE0, 0xED, 0xEF, 0xF0, 0xF4, 0xF5])
    for _ in range(12):
        streams = [bytes(rng.choices(edges, k=rng.randrange(1, 5))) for _ in range(2)]
        streams = ["é€𝄞x".encode()[: rng.randrange(11)] + stream for stream in streams]
        # Byte by byte, so that the agent sees sequences cut anywhere.
        writes = "".join(
            f"printf '\\x{byte:02x}' >&{number};" for number in (1, 2) for byte in streams[number - 1]
        )
        result = await workspace.run(writes, TIMEOUT_S)
        assert everything(result) == (streams[0], streams[1])
        for data, captured in zip(streams, (result.stdout, result.stderr), strict=True):
            assert captured.decode_error == pythons_message(data)


async def test_a_decode_error_in_what_was_dropped_has_its_place(workspace: Workspace) -> None:
    result = await workspace.run("head -c 1000000 /dev/zero; printf '\\xff'; head -c 1000000 /dev/zero", 20)
    assert result.stdout.total_bytes == 2_000_001
    assert result.stdout.decode_error == (
        "'utf-8' codec can't decode byte 0xff in position 1000000: invalid start byte"
    )


async def test_a_long_output_keeps_its_two_ends(workspace: Workspace, policy: Policy) -> None:
    result = await workspace.run("seq 200000", TIMEOUT_S)
    whole = b"".join(b"%d\n" % number for number in range(1, 200_001))
    assert result.stdout.head == whole[: policy.capture_bytes]
    assert result.stdout.tail == whole[-policy.capture_bytes :]
    assert result.stdout.total_bytes == len(whole)


@pytest.mark.parametrize("script", ["yes", "yes >&2", "yes & yes >&2"])
async def test_a_flood_ends_at_the_output_limit_and_costs_no_memory(
    workspace: Workspace, policy: Policy, script: str
) -> None:
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = await workspace.run(script, 60)
    assert (result.exit_code, result.timed_out, result.limits) == (None, True, (Limit.OUTPUT,))
    total = result.stdout.total_bytes + result.stderr.total_bytes
    assert policy.output_limit_bytes < total < policy.output_limit_bytes + 1_000_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < 16 * 1024


@pytest.mark.parametrize(
    "script",
    [
        "sleep 99999",
        "trap '' TERM INT HUP; while :; do :; done",
        "kill -STOP $$",
        "sleep 999 & echo started",
        "exec 1>&- 2>&-; sleep 999",
    ],
)
async def test_what_does_not_end_is_killed_on_time(workspace: Workspace, script: str) -> None:
    await workspace.run("true", TIMEOUT_S)
    started = time.monotonic()
    result = await workspace.run(script, 1.0)
    assert 1.0 <= time.monotonic() - started < FAR_S
    assert (result.exit_code, result.timed_out, result.limits) == (None, True, (Limit.TIME,))
    assert 1.0 <= result.usage.wall_s < FAR_S


async def test_the_background_process_is_dead_before_the_next_action(workspace: Workspace) -> None:
    script = "(setsid sh -c 'while :; do date >> w; done' >/dev/null 2>&1 &); sleep 0.3; echo ok"
    assert await out(workspace, script) == b"ok\n"
    sizes = [await out(workspace, "stat -c %s w") for _ in range(2)]
    assert sizes[0] == sizes[1] != b"0\n"


async def test_a_daemon_with_no_stream_of_ours_does_not_hold_up_the_end(workspace: Workspace) -> None:
    result = await workspace.run("setsid nohup sleep 999 >/dev/null 2>&1 & echo ok", TIMEOUT_S)
    assert (result.stdout.head, result.exit_code) == (b"ok\n", 0)
    assert result.usage.wall_s < TIMEOUT_S


async def test_usage_tells_processor_time_and_memory(workspace: Workspace) -> None:
    usage = (await workspace.run("python3 -c 'x = bytearray(50 << 20); sum(range(3_000_000))'", 20)).usage
    assert usage.cpu_s is not None
    assert 0.02 < usage.cpu_s < usage.wall_s + 0.5
    assert usage.peak_memory_bytes is not None
    assert 50 << 20 < usage.peak_memory_bytes < 120 << 20


async def test_what_mathematics_scripts_import_is_there(workspace: Workspace) -> None:
    script = "python -c 'import sympy, mpmath, numpy, networkx; print(sympy.factorint(2**32 + 1))'"
    assert await out(workspace, script, 60) == b"{641: 1, 6700417: 1}\n"


async def test_a_process_pool_works(workspace: Workspace) -> None:
    script = "python3 -c 'from multiprocessing import Pool\nwith Pool(4) as p: print(p.map(abs, [-1, -2]))'"
    assert await out(workspace, script) == b"[1, 2]\n"


async def test_actions_of_one_workspace_run_one_after_another(docker_sandbox: DockerSandbox) -> None:
    workspace = await docker_sandbox.open("turns")
    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(
                workspace.run, "test ! -e busy && touch busy && sleep 0.2; rm busy; echo x >> log", 9
            )
    assert await out(workspace, "wc -l < log; ls") == b"3\nlog\n"
    await workspace.close()


IMPORTABLE = (
    "PIL, aiohttp, anthropic, blake3, cachetools, cbor2, cloudpickle, cpuinfo, datasets, dateutil, "
    "dill, diskcache, einops, fastapi, filelock, gguf, google.protobuf, huggingface_hub, ijson, joblib, "
    "jsonschema, lark, llguidance, lmformatenforcer, mcp, mistral_common, mpmath, msgspec, "
    "multiprocess, networkx, numba, numpy, numpy.testing, openai, openai_harmony, outlines_core, "
    "pandas, partial_json_parser, psutil, pyarrow, pybase64, pydantic, pythonjsonlogger, regex, "
    "requests, safetensors, scipy, scipy.integrate, scipy.optimize, scipy.stats, sentencepiece, "
    "setproctitle, setuptools, sympy, tiktoken, tokenizers, tqdm, transformers, typing_extensions, "
    "yaml, zmq"
)


@pytest.mark.usefixtures("engine_api")
async def test_all_that_the_lock_promises_imports(new_run_id: Callable[[], str]) -> None:
    async with DockerSandbox(Policy(), new_run_id()) as sandbox:
        workspace = await sandbox.open("imports")
        result = await workspace.run(f"ulimit -v 8388608; python3 -c 'import {IMPORTABLE}'", 120)
        assert (result.exit_code, result.stderr.tail) == (0, b"")


@pytest.mark.parametrize(
    ("harm", "where"),
    [
        ("rm -rf /sandbox/*", b"/workspace"),
        ("rm -rf /sandbox/workspace; echo > /sandbox/workspace", b"/"),
        ("rm -rf /sandbox/workspace; ln -s /sandbox/workspace /sandbox/workspace", b"/"),
        ("chmod 0 /sandbox/workspace", b"/"),
        ("chmod 0 /sandbox", b"/"),
    ],
)
async def test_a_command_that_destroyed_the_directories_is_followed_by_commands_that_run(
    workspace: Workspace, harm: str, where: bytes
) -> None:
    await workspace.run(harm, TIMEOUT_S)
    assert await out(workspace, "pwd") == where + b"\n"
