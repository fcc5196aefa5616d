"""A whole evaluation: command line, real engine, real sandboxes. Its structure is asserted, not its score."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from processes import engine_cores, still_alive, wait_gone, with_engine_core

pytestmark = [pytest.mark.docker, pytest.mark.timeout(900)]

STOPPED_WITHIN_S = 20
"""Ten on a machine that has nothing else to do."""


def test_three_easy_problems_run_from_the_command_line_to_results(small_model: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "runner",
            "eval",
            "cpu",
            "--limit=3",
            "--max-turns=3",
            f"--out={tmp_path}",
            "--run-id=run",
        ],
        env=os.environ | {"RECOUNT_MODEL": str(small_model)},
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""  # neither Ray nor vLLM writes on the terminal
    results = json.loads((tmp_path / "run/evaluation_results.json").read_text(encoding="utf-8"))
    assert results["complete"]
    rows = results["datasets"]["easy"]["trajectories"]
    assert len(rows) == 3
    for row in rows:
        assert row["termination_reason"] in {"final_answer", "max_turns"}
        assert row["generated_tokens"] > 0
        assert len(row["turn_seeds"]) >= 1
    turns = [
        json.loads(line)
        for line in (tmp_path / "run/journal.jsonl").read_text(encoding="utf-8").splitlines()
        if '"assistant"' in line
    ]
    assert {turn["engine"] for turn in turns} == {"engine0"}
    assert all(turn["prompt_tokens"] > 100 and 0 < turn["completion_tokens"] <= 256 for turn in turns)
    assert all("Observation from" not in turn["assistant"] for turn in turns)
    assert all(turn["seeds"] for turn in turns)
    assert "the engines run on a CPU, the report's on GPUs" in results["deviations"]
    assert f"changed: engine.model = {small_model}" in results["deviations"]


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_run_ends_soon_and_leaves_no_process(
    small_model: Path, tmp_path: Path, sent: signal.Signals
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "runner", "eval", "cpu", f"--out={tmp_path}", "--run-id=run"],
        env=os.environ | {"RECOUNT_MODEL": str(small_model)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        journal = tmp_path / "run/journal.jsonl"
        deadline = time.monotonic() + 600
        while not journal.exists():
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.1)
        family = with_engine_core(process.pid)
        assert engine_cores(family), still_alive(family)
        if sent is signal.SIGINT:
            os.killpg(process.pid, sent)  # as a terminal does
        else:
            process.send_signal(sent)
        output, errors = process.communicate(timeout=STOPPED_WITHIN_S)
        assert (process.returncode, errors) == (130, "")
        assert "ended=interrupted" in output
        assert wait_gone(family, within_s=3.0) == {}
    finally:
        process.kill()
