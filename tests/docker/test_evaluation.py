"""Whole evaluations through real containers, as the command line runs them."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import docker
import jsonschema
import pytest

ROOT = Path(__file__).parents[2]
SHARED = ROOT.parent / "shared"
RECOUNT = [sys.executable, "-m", "runner"]

pytestmark = [pytest.mark.docker, pytest.mark.timeout(900)]

needs_published_data = pytest.mark.skipif(
    not (SHARED / "datasets").is_dir(),
    reason="the published data sets are not ours to ship; none in ../shared",
)


def containers_of(run_id: str) -> list[str]:
    client = docker.from_env()
    try:
        labelled = {"label": f"recount.run={run_id}"}
        volumes = [one.name for one in client.volumes.list(filters=labelled)]
        return [one.name for one in client.containers.list(all=True, filters=labelled)] + volumes
    finally:
        client.close()


def rows(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def solve(answer: str) -> list[str]:
    """Compute something for real, keep it in a file, and answer two turns later."""
    write = {
        "name": "bash",
        "arguments": {"command": f"printf %s '{answer}' > answer.txt; python3 -c 'print(2**10)'"},
    }
    read = {"name": "bash", "arguments": {"command": "cat answer.txt"}}
    return [
        f"Action:\n{json.dumps(write)}",
        f"Action:\n{json.dumps(read)}",
        f"Final answer: \\boxed{{{answer}}}",
    ]


@needs_published_data
def test_the_published_data_sets_run_through_real_containers_and_score_as_scripted(tmp_path: Path) -> None:
    files = {"dapo": SHARED / "datasets/dapo_test.jsonl", "aime": SHARED / "datasets/aime_2026.jsonl"}
    lines, wrong = [], {"dapo": 0, "aime": 0}
    for dataset, file in files.items():
        for index, row in enumerate(rows(file)):
            # Every fifth answer is wrong, so that a scorer that always agrees is found out.
            answer = str(row["answer"]) if index % 5 else "no such number"
            wrong[dataset] += index % 5 == 0
            lines.append({"dataset": dataset, "id": row["id"], "sample": 0, "completions": solve(answer)})
    script = tmp_path / "script.jsonl"
    script.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    arguments = [f"--data={name}={file}" for name, file in files.items()]
    done = subprocess.run(
        [
            *RECOUNT,
            "eval",
            "interval25",
            "--engine=scripted",
            f"--script={script}",
            *arguments,
            f"--pack={SHARED}/protocol/protocol.json",
            "--no-fetch",
            "--in-flight=16",
            f"--out={tmp_path}",
            "--run-id=published",
        ],
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads((tmp_path / "published/evaluation_results.json").read_text())
    assert results["complete"]
    for dataset, problems in (("dapo", 100), ("aime", 30)):
        found = results["datasets"][dataset]
        assert found["summary"]["count"] == problems
        assert found["summary"]["termination_reasons"] == {"final_answer": problems}
        assert found["mean"]["value"] == pytest.approx((problems - wrong[dataset]) / problems)
        assert found["tools"]["actions"] == 2 * problems
        observations = {row["react_steps"][1]["observation"].split("\n")[0] for row in found["trajectories"]}
        assert len(observations) > problems / 4  # what a trajectory wrote is what it reads, not a neighbour's
        assert all(
            row["react_steps"][1]["observation"] == f"{row['prediction']}\n[exit_code] 0"
            for row in found["trajectories"]
        )
    assert containers_of("published") == []


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_run_ends_within_ten_seconds_and_leaves_no_container(
    tmp_path: Path, sent: signal.Signals
) -> None:
    run_id = f"stopped-{sent.name.lower()}-{os.getpid()}"
    process = subprocess.Popen(
        [*RECOUNT, "eval", "demo", f"--out={tmp_path}", f"--run-id={run_id}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        journal = tmp_path / run_id / "journal.jsonl"
        deadline = time.monotonic() + 120
        while not (journal.exists() and journal.read_text().count('"terminated"') >= 3):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.1)
        process.send_signal(sent)
        output, _ = process.communicate(timeout=10)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "ended=interrupted" in output
    assert "never started" in output
    assert output.rstrip().endswith(f"to go on with it: recount eval --resume {tmp_path / run_id}")
    assert containers_of(run_id) == []
    results = json.loads((tmp_path / run_id / "evaluation_results.json").read_text())
    assert results["end"] == "interrupted"
    assert results["datasets"]["demo"]["summary"]["count"] >= 3
    assert not results["complete"]


def test_the_demo_ends_as_its_table_says(tmp_path: Path) -> None:
    done = subprocess.run(
        [*RECOUNT, "eval", "demo", f"--out={tmp_path}", "--run-id=demo"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads((tmp_path / "demo/evaluation_results.json").read_text())
    found = {
        f"{row['task_id']}:{row['sample_index']}": (row["termination_reason"], row["score"])
        for row in results["datasets"]["demo"]["trajectories"]
    }
    expected = json.loads((ROOT / "datasets/demo_expected.json").read_text())
    assert found == {key: (one["termination"], one["score"]) for key, one in expected.items()}
    assert {"time", "memory", "processes", "output"} <= set(results["datasets"]["demo"]["tools"]["limits"])
    assert len(list((tmp_path / "demo/traces").glob("*.md"))) == len(expected)
    schema = json.loads((ROOT / "runner/data/schemas/evaluation_results.schema.json").read_text())
    jsonschema.validate(results, schema, jsonschema.Draft202012Validator)
    verified = subprocess.run(
        [*RECOUNT, "verify", "run", str(tmp_path / "demo")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert verified.returncode == 0, verified.stdout + verified.stderr
