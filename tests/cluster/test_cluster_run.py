"""A run over real Ray nodes with brokers of their own: spread, a lost node, a new one, and nothing left.

`RECOUNT_CLUSTER_TRAJECTORIES=200` runs the long version; without it the same with fewer trajectories.
"""

import json
import os
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import pytest
from cluster_machines import GONE_TIMEOUT_S, Cluster, cluster, left_on_engine, running_containers, wait_until
from support.builders import answer, bash, write_lines, write_profile

TRAJECTORIES = int(os.environ.get("RECOUNT_CLUSTER_TRAJECTORIES", "40"))
ACTIONS = 4
SAMPLES = 2
RUN_TIMEOUT_S = 300.0 + 8.0 * TRAJECTORIES
"""On a machine with much else to do; on a quiet one a trajectory takes less than a second."""
EVEN = 0.2
"""How far from an even share a node's may be."""
MEASURED = {"elapsed_s", "attempts"}

pytestmark = [
    pytest.mark.engines,
    pytest.mark.docker,
    pytest.mark.timeout(600 + 2 * RUN_TIMEOUT_S),
]


@pytest.fixture(scope="module")
def two_workers() -> Iterator[Cluster]:
    """A head without sandboxes, and two machines with them."""
    with cluster() as made:
        head = made.machine(slots=0)
        head.begin()
        head.wait_up()
        for worker in (made.machine(slots=6), made.machine(slots=6)):
            worker.begin()
        for worker in made.machines[1:]:
            worker.wait_up()
        yield made


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Trajectories whose observations depend on the files of their own workspace."""
    directory = tmp_path_factory.mktemp("input")
    ids = [f"p{number}" for number in range(TRAJECTORIES // SAMPLES)]
    path = write_profile(
        directory,
        {"kind": "scripted", "script": "script.jsonl", "latency_s": 1.5},
        problems=dict.fromkeys(ids, "42"),
        samples=SAMPLES,
        extra="[concurrency]\ntrajectories = 12\ngenerations = 12\ntools = 12\n",
    )
    text = path.read_text().replace("max_turns = 4", "max_turns = 8")
    text = text.replace("tool_timeout_s = 2.0", "tool_timeout_s = 60.0")
    path.write_text(text.replace("context_tokens = 4000", "context_tokens = 40000"))
    write_lines(
        directory / "script.jsonl",
        (
            {"dataset": "set", "id": one, "sample": sample, "completions": turns(one, sample)}
            for one in ids
            for sample in range(SAMPLES)
        ),
    )
    return path


def turns(problem: str, sample: int) -> list[str]:
    number = int(problem[1:]) + sample
    commands = [f"echo {problem}-{sample}-{turn} >> log; wc -l < log; tail -n 1 log" for turn in range(3)]
    commands.append(f"cat log; exit {number % 3}")
    return [*(bash(one) for one in commands), answer("42" if number % 4 else "41")]


def start(made: Cluster, profile: Path, out: Path, run_id: str) -> subprocess.Popen[str]:
    words = ["eval", str(profile), "--ray-address", made.head, "--out", str(out)]
    return made.recount(*words, "--run-id", run_id, "--ui", "lines", "--no-doctor")


def results_of(out: Path, run_id: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / run_id / "evaluation_results.json").read_text())
    return found


def comparable(results: dict[str, Any]) -> dict[str, Any]:
    """Return scores and transcripts, without what is measured."""
    rows = results["datasets"]["set"]["trajectories"]
    return {row["key"]: {name: row[name] for name in row if name not in MEASURED} for row in rows}


def ended_rows(out: Path, run_id: str) -> int:
    journal = out / run_id / "journal.jsonl"
    return journal.read_text().count('"type":"terminated"') if journal.exists() else 0


def test_a_run_spreads_over_its_nodes_survives_the_loss_of_one_and_uses_a_new_one(
    two_workers: Cluster, profile: Path, tmp_path: Path
) -> None:
    api = docker.from_env().api
    first, second = two_workers.machines[1:]

    # Undisturbed: both nodes do their share.
    undisturbed = start(two_workers, profile, tmp_path, "undisturbed")
    said, _ = undisturbed.communicate(timeout=RUN_TIMEOUT_S)
    assert undisturbed.returncode == 0, said
    done = [first.actions(), second.actions()]
    print("actions a node, undisturbed:", done)
    share = TRAJECTORIES * ACTIONS / 2
    assert sum(done) == TRAJECTORIES * ACTIONS
    assert all(abs(one - share) <= EVEN * share for one in done), done
    assert left_on_engine(api, "undisturbed") == []
    results = results_of(tmp_path, "undisturbed")
    assert results["sandbox"]["nodes"] == f"{first.address} {second.address}"

    # Disturbed: one machine dies in the middle, and another joins.
    third = two_workers.machine(slots=6)
    disturbed = start(two_workers, profile, tmp_path, "disturbed")
    before = second.actions()
    wait_until(lambda: ended_rows(tmp_path, "disturbed") >= 1, RUN_TIMEOUT_S, "no end")
    third.begin()
    wait_until(lambda: ended_rows(tmp_path, "disturbed") >= TRAJECTORIES // 8, RUN_TIMEOUT_S, "no ends")
    first.kill()
    said, _ = disturbed.communicate(timeout=RUN_TIMEOUT_S)

    assert disturbed.returncode == 0, said
    found = results_of(tmp_path, "disturbed")
    assert found["complete"]
    assert comparable(found) == comparable(results)
    assert found["datasets"]["set"]["infrastructure_retries"] > 0
    assert first.address in said  # told that it was lost
    assert second.actions() > before
    assert f"node {third.address} joined" in said
    assert third.actions() > 0
    print(
        "actions of the node that stayed and of the one that came:",
        second.actions() - before,
        third.actions(),
    )
    # Nothing runs on either. Of the machine whose power failed there are still names: containers that it had
    # made and not started, volumes that were in its memory. They go when it is back and tidied up.
    lost = f"disturbed.{first.address}"
    wait_until(lambda: running_containers(api, "disturbed") == [], GONE_TIMEOUT_S, "containers run")
    wait_until(
        lambda: set(left_on_engine(api, "disturbed")) <= {lost},
        GONE_TIMEOUT_S,
        "something of the others is left",
    )
    cleaned = two_workers.recount("sandbox", "clean", "--run", lost)
    said, _ = cleaned.communicate(timeout=120)
    assert cleaned.returncode == 0, said
    assert left_on_engine(api, "disturbed") == []
    scores = Counter(row["score"] for row in found["datasets"]["set"]["trajectories"])
    assert sum(scores.values()) == TRAJECTORIES
