"""The judge of attacks: every way to do harm that can be observed is a breach."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from sandbox import (
    ActionResult,
    CapturedStream,
    DockerSandbox,
    Limit,
    Policy,
    SandboxPrerequisiteError,
    Usage,
)
from sandbox.attack import attack_bench, read_attacks
from sandbox.attack_rules import Attack, Observed, Probe, Verdict, judge
from sandbox.health import Change, Health, processes_of, worse
from sandbox.policy import GIB, MIB

POLICY = Policy(capture_bytes=100)
TIMEOUT_S = 5.0
GOOD = Probe(None, 0.3)
BAD = Probe("exit code 1, ''", 0.3)


def result(
    said: str = "",
    *,
    exit_code: int | None = 0,
    limits: tuple[Limit, ...] = (),
    wall_s: float = 0.1,
    peak: int | None = None,
) -> ActionResult:
    data = said.encode()
    stream = CapturedStream(data[:100], data[100:], len(data), None)
    empty = CapturedStream(b"", b"", 0, None)
    return ActionResult(stream, empty, exit_code, exit_code is None, limits, Usage(wall_s, None, None, peak))


CONTAINED = Observed(
    result=result(),
    refused=None,
    failure=None,
    elapsed_s=0.2,
    same_workspace=GOOD,
    neighbour=GOOD,
    neighbour_meanwhile=(GOOD,),
    processes=(),
    leaked=(),
    host_worse=(),
    close_s=0.3,
    leftovers=(),
    client_growth_bytes=0,
)


def verdict(seen: Observed, expect: str = "") -> Verdict:
    return judge(Attack("a", "true", expect), seen, POLICY, TIMEOUT_S)[0]


def test_what_does_no_harm_is_contained() -> None:
    assert judge(Attack("a", "true", ""), CONTAINED, POLICY, TIMEOUT_S) == (Verdict.CONTAINED, ())


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"failure": "the container was lost", "result": None}, "the sandbox failed: the container"),
        ({"elapsed_s": 100.0}, "it took 100.0 s"),
        ({"result": result(exit_code=None, limits=(Limit.TIME,), wall_s=6.5)}, "past its time-out"),
        ({"result": result(exit_code=None)}, "no limit says why"),
        ({"result": result("x" * 201)}, "more of stdout was kept"),
        ({"result": result(peak=POLICY.memory_bytes + MIB)}, "more than its limit"),
        ({"same_workspace": BAD}, "the next action"),
        ({"neighbour": BAD}, "another workspace after it: exit code 1"),
        ({"neighbour": Probe(None, 11.0)}, "another workspace after it: 11.0 s"),
        ({"neighbour_meanwhile": (GOOD, Probe(None, 12.0))}, "another workspace during it: 12.0 s"),
        ({"processes": ("sleep",)}, "alive after the action: sleep"),
        ({"leaked": ("a file of the host",)}, "in its output: a file of the host"),
        ({"host_worse": (Change("host: core_pattern changed", certain=True),)}, "core_pattern changed"),
        ({"leftovers": ("container abc",)}, "left behind: container abc"),
        ({"close_s": 31.0}, "cleaning up took 31.0 s"),
        ({"client_growth_bytes": 65 * MIB}, "grew by 65 MiB"),
    ],
)
def test_harm_is_a_breach_and_says_which(changed: dict[str, Any], reason: str) -> None:
    found, reasons = judge(Attack("a", "true", ""), replace(CONTAINED, **changed), POLICY, TIMEOUT_S)

    assert found is Verdict.BREACH
    assert reason in reasons[0]


def test_processes_that_cannot_be_seen_are_no_breach() -> None:
    assert verdict(replace(CONTAINED, processes=None)) is Verdict.CONTAINED


def test_a_command_that_was_refused_before_it_ran_is_contained() -> None:
    assert verdict(replace(CONTAINED, result=None, refused="embedded null byte")) is Verdict.CONTAINED


@pytest.mark.parametrize(
    ("expect", "seen", "expected"),
    [
        ("not permitted", result("mount: Operation not permitted", exit_code=0), Verdict.CONTAINED),
        ("not permitted", result("mounted"), Verdict.LOOK),
        ("fails", result("rc=2"), Verdict.CONTAINED),
        ("fails", result("rc=0"), Verdict.LOOK),
        ("-1: denied by the profile", result("-1"), Verdict.CONTAINED),
        ("-1: denied by the profile", result("0"), Verdict.LOOK),
        ("refused by the file-size limit", result(exit_code=-25), Verdict.CONTAINED),
        ("the child is killed by the memory limit", result(limits=(Limit.MEMORY,)), Verdict.CONTAINED),
        ("the child is killed by the memory limit", result(exit_code=-9), Verdict.LOOK),
        ("ends at once; not reported as out of memory", result(exit_code=-9), Verdict.CONTAINED),
        ("not reported as out of memory", result(limits=(Limit.MEMORY,)), Verdict.LOOK),
        ("refused by the process limit", result(limits=(Limit.PROCESSES,)), Verdict.CONTAINED),
        ("refused by the process limit", result(exit_code=1), Verdict.LOOK),
        ("killed at the deadline", result(exit_code=None, limits=(Limit.TIME,)), Verdict.CONTAINED),
        ("killed at the deadline", result(), Verdict.LOOK),
        ("returns at once", result(), Verdict.CONTAINED),
        ("returns at once", result(wall_s=4.0), Verdict.LOOK),
        ("read and dropped, the record says output_limit", result("y"), Verdict.LOOK),
        ("a result, never an exception in the runner", result("x"), Verdict.CONTAINED),
    ],
)
def test_words_of_an_expectation_are_held_against_what_was_seen(
    expect: str, seen: ActionResult, expected: Verdict
) -> None:
    assert verdict(replace(CONTAINED, result=seen), expect) is expected


HEALTH = Health(100, 8 * GIB, {"/d": 9 * GIB}, {"/d": 90_000}, 0, 0.01, {"kernel/core_pattern": "core"})


@pytest.mark.parametrize(
    ("changed", "phrase", "certain"),
    [
        ({"processes": 400}, "300 more processes", False),
        ({"memory_available_bytes": 6 * GIB}, "2048 MiB less memory", False),
        ({"memory_available_bytes": GIB // 2}, "7680 MiB less memory", True),
        ({"disk_free_bytes": {"/d": 5 * GIB}}, "4096 MiB less of /d", False),
        ({"disk_free_bytes": {"/d": MIB}}, "9215 MiB less of /d", True),
        ({"inodes_free": {"/d": 50_000}}, "40000 fewer inodes of /d", False),
        ({"inodes_free": {"/d": 10}}, "89990 fewer inodes of /d", True),
        ({"core_files": 1}, "1 new core files", True),
        ({"daemon_latency_s": 9.0}, "the engine took 9.0 s", True),
        ({"kernel": {"kernel/core_pattern": "x"}}, "kernel/core_pattern changed", True),
    ],
)
def test_a_host_that_is_worse_is_seen(changed: dict[str, Any], phrase: str, certain: bool) -> None:
    found = worse(HEALTH, replace(HEALTH, **changed))

    assert len(found) == 1
    assert phrase in found[0].text
    assert found[0].certain is certain


def test_what_others_may_have_done_to_the_host_is_for_a_person_to_look_at() -> None:
    changes = (Change("host: 90 more processes", certain=False),)

    assert verdict(replace(CONTAINED, host_worse=changes)) is Verdict.LOOK


def test_noise_of_a_host_and_what_cannot_be_seen_are_no_harm() -> None:
    noisy = replace(HEALTH, processes=120, memory_available_bytes=int(7.5 * GIB), inodes_free={"/d": 80_000})

    assert worse(HEALTH, noisy) == ()
    assert worse(HEALTH, replace(HEALTH, processes=None, memory_available_bytes=None)) == ()


def test_processes_of_a_user_that_has_none_are_unknown() -> None:
    assert processes_of(1_999_999_999) is None


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "holds no attack"),
        ("{", "a.jsonl:1: no attack"),
        ('{"id": "a"}', "a.jsonl:1: no attack"),
        ('{"id": "a", "command": "x", "expect": ""}\n{"id": 1, "command": "x"}', "a.jsonl:2: no attack"),
    ],
)
def test_a_file_that_holds_no_attacks_is_refused_with_its_line(
    tmp_path: Path, content: str, message: str
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(content, encoding="utf-8")

    with pytest.raises(SandboxPrerequisiteError, match=message):
        read_attacks(path)


@pytest.mark.docker
@pytest.mark.anyio
@pytest.mark.usefixtures("engine_api")
async def test_real_attacks_are_contained_and_a_read_secret_is_a_breach(policy: Policy) -> None:
    async with attack_bench(policy, timeout_s=3) as bench:
        daemon = await bench.run(
            0, Attack("daemon", "(setsid sh -c 'while :; do date >> w; done' >/dev/null 2>&1 &); echo ok", "")
        )
        loop = await bench.run(
            1, Attack("loop", "trap '' TERM; while :; do :; done", "killed at the deadline")
        )
        nul = await bench.run(2, Attack("nul", "echo \0", ""))
        secret = next(iter(bench._canaries.known.values())).decode()
        leak = await bench.run(3, Attack("leak", f"echo {secret}", ""))

    for outcome in (daemon, loop, nul):
        assert (outcome.verdict, outcome.reasons) == (Verdict.CONTAINED, ())
    assert daemon.seen.processes == ()
    assert len(loop.seen.neighbour_meanwhile) >= 1
    assert nul.seen.refused is not None
    assert leak.verdict is Verdict.BREACH


@pytest.mark.docker
@pytest.mark.anyio
async def test_a_process_that_calls_itself_the_agent_is_seen(docker_sandbox: DockerSandbox) -> None:
    workspace = await docker_sandbox.open("named")
    uid = int((await workspace.run("id -u", 20)).stdout.head)
    if processes_of(uid) is None:
        pytest.skip("the engine's processes are not to be seen from here")
    found: list[str] = []
    async with anyio.create_task_group() as beside:
        beside.start_soon(workspace.run, "cp /bin/sleep agent; ./agent 3", 20)
        with anyio.move_on_after(20):
            while "agent" not in found:
                found = processes_of(uid) or []
                await anyio.sleep(0.1)
    after = processes_of(uid)
    await workspace.close()

    assert "agent" in found
    assert after == []


@pytest.mark.docker
@pytest.mark.anyio
@pytest.mark.usefixtures("engine_api")
async def test_a_workspace_that_does_not_go_on_is_a_breach(policy: Policy) -> None:
    async with attack_bench(policy, timeout_s=3) as bench:
        holder = bench._sandbox

        real_open = holder.open

        async def open_and_break(workspace_id: str) -> Any:
            workspace = await real_open(workspace_id)
            if workspace_id == "attack-0":
                real_run = workspace.run

                async def run_then_lose(script: str | bytes, timeout_s: float) -> ActionResult:
                    done = await real_run(script, timeout_s)
                    if script == "true":
                        await holder.engine.kill(workspace._holder.container_id)  # type: ignore[attr-defined]
                    return done

                workspace.run = run_then_lose  # type: ignore[method-assign]
            return workspace

        holder.open = open_and_break  # type: ignore[method-assign]
        outcome = await bench.run(0, Attack("a", "true", ""))

    assert outcome.verdict is Verdict.BREACH
    assert "the next action" in outcome.reasons[0]
