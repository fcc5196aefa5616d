"""What `docker-compose.yml` promises about who holds what, seen from inside the running containers."""

import json
import os
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
COMPOSE_FILE = ROOT / "docker-compose.yml"
SOCKET = "docker.sock"

pytestmark = [pytest.mark.compose, pytest.mark.timeout(600)]


class Project:
    """A Compose project of its own, so that nobody's demo is touched."""

    def __init__(self, results: Path) -> None:
        self.name = f"recount-test-{uuid.uuid4().hex[:8]}"
        self._override = results / "override.json"
        volumes = [{"type": "bind", "source": str(results), "target": "/results"}]
        self._override.write_text(json.dumps({"services": {"demo": {"volumes": volumes}}}))

    def run(self, *arguments: str, timeout_s: float = 300) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [
                "docker",
                "compose",
                "-p",
                self.name,
                "-f",
                str(COMPOSE_FILE),
                "-f",
                str(self._override),
                *arguments,
            ],
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def inspect(self, service: str) -> dict[str, Any]:
        container = self.run("ps", "-aq", service).stdout.strip()
        found = subprocess.run(["docker", "inspect", container], capture_output=True, check=True, timeout=60)
        (description,) = json.loads(found.stdout)
        assert isinstance(description, dict)
        return description


@pytest.fixture(scope="module")
def built() -> None:
    done = subprocess.run(
        ["docker", "compose", "-f", str(COMPOSE_FILE), "build", "--quiet"],
        capture_output=True,
        text=True,
        timeout=550,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture
def project(built: None, tmp_path: Path) -> Iterator[Project]:
    one = Project(tmp_path)
    try:
        yield one
    finally:
        one.run("down", "--volumes", "--timeout", "20")


def test_the_demo_runs_through_the_broker_and_never_sees_the_engines_socket(
    project: Project, tmp_path: Path
) -> None:
    tmp_path.chmod(0o755)
    done = project.run("up", "--exit-code-from", "demo", "demo")
    assert done.returncode == 0, done.stdout + done.stderr
    (results,) = tmp_path.glob("demo-*/results.json")
    assert json.loads(results.read_text())["complete"]

    demo, broker = project.inspect("demo"), project.inspect("demo-broker")
    assert not any(SOCKET in mount["Destination"] for mount in demo["Mounts"])
    assert any(SOCKET in mount["Destination"] for mount in broker["Mounts"])
    assert not any(mount["Destination"] == "/results" for mount in broker["Mounts"])
    for one in (demo, broker):
        assert one["HostConfig"]["NetworkMode"] == "none"
        assert one["HostConfig"]["ReadonlyRootfs"]
        assert one["HostConfig"]["CapDrop"] == ["ALL"]
    assert not broker["HostConfig"]["CapAdd"]


def test_the_broker_ends_by_itself_after_the_demo(project: Project) -> None:
    assert project.run("up", "--exit-code-from", "demo", "demo").returncode == 0
    deadline = time.monotonic() + 60
    while (state := project.inspect("demo-broker")["State"])["Running"]:
        assert time.monotonic() < deadline, "the broker still runs"
        time.sleep(1)
    assert state["ExitCode"] == 0


def test_the_runner_has_neither_the_engines_socket_nor_a_capability(
    project: Project,
) -> None:
    look = (
        "import glob, os, re; status = open('/proc/self/status').read();"
        "print(glob.glob('/run/docker*'), glob.glob('/var/run/docker*'));"
        "print(*re.findall(r'Cap...:\\s*(\\w+)', status))"
    )
    done = project.run(
        "run", "--rm", "--no-deps", "--entrypoint", "sh", "demo", "-c",
        f'sed "s/ recount / python /" /usr/local/bin/recount-entry > /tmp/entry; sh /tmp/entry -c "{look}"',
    )  # fmt: skip
    assert done.stdout.split() == ["[]", "[]", *["0000000000000000"] * 5], done.stdout + done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory to somebody else")
def test_results_belong_to_the_owner_of_the_results_directory(project: Project, tmp_path: Path) -> None:
    subprocess.run(["chown", "12345:12345", str(tmp_path)], check=True)
    done = project.run("run", "--rm", "demo", "eval", "demo", "--limit", "1", "--samples", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    owners = {path.stat().st_uid for path in tmp_path.glob("demo-*/**/*")}
    assert owners == {12345}
