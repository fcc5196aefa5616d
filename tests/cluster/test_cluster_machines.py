"""Real nodes: what they listen on, whom they refuse, what they leave behind, and a head that dies.

One head and one worker for all of these; the last test takes the head down.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest
from cluster_machines import POLICY, ROOT, Cluster, cluster, left_on_engine, processes_below, wait_until
from support.builders import answer, bash, write_lines, write_profile

pytestmark = [pytest.mark.engines, pytest.mark.docker, pytest.mark.timeout(1200)]

LOOPBACK_AND_OWN = {"127.0.0.1", "::1"}
BOUND_S = 120.0
"""For a run to end whose head is gone: 30 s of silence, the end itself, and a busy machine."""


@pytest.fixture(scope="module")
def small_cluster() -> Iterator[Cluster]:
    with cluster() as made:
        head = made.machine(slots=0)
        head.begin()
        head.wait_up()
        worker = made.machine(slots=4)
        worker.begin()
        worker.wait_up()
        yield made


def listening(pids: set[int]) -> dict[str, list[str]]:
    """Return the TCP addresses on which these processes listen, with who does."""
    inodes: dict[str, int] = {}
    for pid in pids:
        try:
            for one in Path(f"/proc/{pid}/fd").iterdir():
                target = str(one.readlink())
                if target.startswith("socket:["):
                    inodes[target[8:-1]] = pid
        except OSError:
            continue
    found: dict[str, list[str]] = {}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                name = Path(f"/proc/{inodes[fields[9]]}/comm").read_text().strip()
                found.setdefault(_address(fields[1].partition(":")[0]), []).append(name)
    return found


def _address(hexadecimal: str) -> str:
    words = [bytes.fromhex(hexadecimal[at : at + 8])[::-1] for at in range(0, len(hexadecimal), 8)]
    raw = b"".join(words)
    if len(raw) == 4 or raw[:12] == b"\0" * 10 + b"\xff\xff":
        return ".".join(str(one) for one in raw[-4:])
    return "::" if not any(raw) else raw.hex()


def test_only_rays_own_ports_are_on_all_addresses_and_the_broker_on_none(small_cluster: Cluster) -> None:
    head, worker = small_cluster.machines
    for machine in (head, worker):
        heard = listening(set(processes_below(machine.started.pid)))
        anywhere = {name for address in ("::", "0.0.0.0") for name in heard.pop(address, [])}
        # These bind to every address on any machine but the loopback one: the reason for all the rest.
        assert anywhere <= {"gcs_server", "raylet", "ray::NodeAgent", "ray::IDLE", "python"}
        assert {"raylet"} <= anywhere
        assert set(heard) <= LOOPBACK_AND_OWN | {machine.address}
    assert worker.broker.process is not None
    assert listening({worker.broker.process.pid}) == {}


def test_whoever_does_not_have_the_token_is_refused(small_cluster: Cluster) -> None:
    asked = [sys.executable, "-m", "runner.cluster.look", small_cluster.head]
    without = {
        name: value for name, value in small_cluster.environment.items() if not name.startswith("RAY_AUTH")
    } | {"HOME": str(small_cluster.directory)}
    for environment in (without, without | {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "guessed"}):
        done = subprocess.run(
            asked, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode != 0
        assert "InvalidAuthToken" in done.stderr
        assert "NodeID" not in done.stdout
    admitted = subprocess.run(
        asked,
        cwd=ROOT,
        env=small_cluster.environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert admitted.stdout.count("NodeID") == 2


def test_a_machine_whose_sandboxes_differ_may_not_join_and_is_told_in_what(small_cluster: Cluster) -> None:
    other = small_cluster.machine(slots=4, policy=POLICY.model_copy(update={"pids": 32}))
    other.begin()
    assert other.started.wait(180) == 2, other.said
    assert f"differs from the cluster's node {small_cluster.machines[1].address}" in other.said
    assert "the sandbox policy: here" in other.said
    other.broker.kill()


def test_a_machine_without_the_token_may_not_join(small_cluster: Cluster) -> None:
    other = small_cluster.machine(slots=0)
    other.begin(RAY_AUTH_TOKEN="guessed")
    assert other.started.wait(180) == 2, other.said
    assert "refuses our token" in other.said


def test_a_node_that_is_asked_to_leave_leaves_nothing(small_cluster: Cluster) -> None:
    other = small_cluster.machine(slots=2)
    other.begin()
    other.wait_up()
    below = set(processes_below(other.started.pid))
    assert len(below) > 3
    assert other.leave() == 0, other.said
    alive = {pid for pid in below if Path(f"/proc/{pid}").exists() and pid in processes_below(pid)}
    assert alive == set()
    assert other.broker.stop() == 0


def profile_in(directory: Path, *, problems: int, latency_s: float) -> Path:
    ids = [f"p{number}" for number in range(problems)]
    profile = write_profile(
        directory,
        {"kind": "scripted", "script": "script.jsonl", "latency_s": latency_s},
        problems=dict.fromkeys(ids, "42"),
        extra="[concurrency]\ntrajectories = 3\n",
    )
    completions = [bash("echo a >> log; wc -l < log"), bash("echo a >> log; wc -l < log"), answer("42")]
    write_lines(
        directory / "script.jsonl",
        ({"dataset": "set", "id": one, "sample": 0, "completions": completions} for one in ids),
    )
    return profile


def test_a_run_whose_head_dies_ends_soon_and_can_be_gone_on_with(
    small_cluster: Cluster, tmp_path: Path
) -> None:
    api = docker.from_env().api
    profile = profile_in(tmp_path / "input", problems=36, latency_s=2.0)
    head, worker = small_cluster.machines[:2]
    words = ["eval", str(profile), "--ray-address", small_cluster.head, "--out", str(tmp_path)]
    run = small_cluster.recount(*words, "--run-id", "run", "--ui", "lines", "--no-doctor")
    journal = tmp_path / "run/journal.jsonl"
    wait_until(lambda: journal.exists() and '"terminated"' in journal.read_text(), 300, "no end")
    for pid, command in processes_below(head.started.pid).items():
        if "gcs_server" in command.split(" ")[0]:
            os.kill(pid, signal.SIGKILL)
    began = time.monotonic()
    said, _ = run.communicate(timeout=BOUND_S)

    assert run.returncode == 3, said
    assert time.monotonic() - began < BOUND_S
    assert "said nothing" in said
    assert '"type":"run_ended","reason":"failed"' in journal.read_text()
    wait_until(lambda: left_on_engine(api, "run") == [], 90, "something is left")

    # Without the cluster, in this machine's own sandboxes: another place, the same run.
    resumed = small_cluster.recount(
        *("eval", "--resume", str(tmp_path / "run"), "--broker", str(worker.broker.socket)),
        *("--ui", "lines", "--no-doctor"),
    )
    said, _ = resumed.communicate(timeout=600)
    assert resumed.returncode == 0, said
    assert journal.read_text().count('"type":"terminated"') == 36
    assert left_on_engine(api, "run") == []

    # A node whose head is gone ends too, so that whoever watches over it can start it again.
    assert worker.started.wait(180) == 3, worker.said
    assert "see whether the head lives" in worker.said
