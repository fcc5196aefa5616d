"""The golden trajectories, every command run for real."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROTOCOL = ROOT.parent / "shared/protocol"

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        not PROTOCOL.is_dir(), reason="the golden trajectories are not ours to ship; none in ../shared"
    ),
]


def conformance(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "runner",
            "conformance",
            "trajectories",
            str(PROTOCOL / "trajectories.jsonl"),
            f"--protocol={PROTOCOL}/protocol.json",
            *options,
        ],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )


@pytest.mark.docker
def test_every_golden_trajectory_holds_in_the_sandbox() -> None:
    done = conformance("--sandbox=docker")
    assert done.stdout.splitlines()[-1] == "50 passed, 0 failed", done.stdout + done.stderr
    assert done.returncode == 0


def test_every_golden_trajectory_holds_on_the_host_when_trusted() -> None:
    done = conformance("--sandbox=host", "--i-trust-these-commands")
    assert done.stdout.splitlines()[-1] == "50 passed, 0 failed", done.stdout + done.stderr


def test_commands_are_not_run_on_the_host_without_explicit_trust() -> None:
    done = conformance("--sandbox=host")
    assert done.returncode == 2
    assert "--i-trust-these-commands" in done.stderr
