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

from runner.profile import load_profile

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
        # The engines' own images take gigabytes; how their containers are run shows with any image.
        engines = {"image": "recount:latest", "volumes": volumes}
        self._override.write_text(
            json.dumps({"services": {"demo": {"volumes": volumes}, "eval-cpu": engines}})
        )

    @property
    def command(self) -> list[str]:
        """How every command of this project begins."""
        files = ("-f", str(COMPOSE_FILE), "-f", str(self._override))
        return ["docker", "compose", "-p", self.name, *files]

    def run(self, *arguments: str, timeout_s: float = 300) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self.command, *arguments],
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
        one.run("--profile", "engines", "down", "--volumes", "--timeout", "20")


def test_the_demo_runs_through_the_broker_and_never_sees_the_engines_socket(
    project: Project, tmp_path: Path
) -> None:
    tmp_path.chmod(0o755)
    done = project.run("up", "--exit-code-from", "demo", "demo")
    assert done.returncode == 0, done.stdout + done.stderr
    (results,) = tmp_path.glob("demo-*/evaluation_results.json")
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


@pytest.mark.parametrize("service", ["demo", "eval-cpu"])
def test_the_runner_has_neither_the_engines_socket_nor_a_capability(project: Project, service: str) -> None:
    look = (
        "import glob, os, re; status = open('/proc/self/status').read();"
        "print(glob.glob('/run/docker*'), glob.glob('/var/run/docker*'));"
        "print(*re.findall(r'Cap...:\\s*(\\w+)', status))"
    )
    done = project.run(
        "run", "--rm", "--no-deps", "--entrypoint", "sh", service, "-c",
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


def described(**environment: str) -> dict[str, Any]:
    """What Compose makes of the file with these variables set and none of its others."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("RECOUNT_", "HF_"))}
    done = subprocess.run(
        [
            "docker", "compose", "-f", str(COMPOSE_FILE), "--env-file", "/dev/null",
            "--profile", "engines", "config", "--format", "json",
        ],
        capture_output=True, check=True, timeout=60, env=kept | environment,
    )  # fmt: skip
    services = json.loads(done.stdout)["services"]
    assert isinstance(services, dict)
    return services


def test_without_a_name_nothing_is_started_or_built_that_takes_a_gpu() -> None:
    done = subprocess.run(
        ["docker", "compose", "-f", str(COMPOSE_FILE), "config", "--services"],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert set(done.stdout.split()) == {"sandbox", "demo-broker", "demo"}


def test_only_brokers_hold_the_engines_socket_and_only_they_are_without_results() -> None:
    mounts = {
        name: {mount["target"] for mount in service.get("volumes", ())}
        for name, service in described().items()
    }
    brokers = {"demo-broker", "eval-broker", "eval-cpu-broker"}
    assert {name for name, targets in mounts.items() if any(SOCKET in one for one in targets)} == brokers
    assert {name for name, targets in mounts.items() if "/results" in targets} == {"demo", "eval", "eval-cpu"}


@pytest.mark.parametrize("service", ["eval", "eval-cpu"])
def test_engines_are_confined_like_the_demo_but_for_the_network(service: str) -> None:
    services = described()
    (broker,) = services[service]["depends_on"]
    assert {services[name]["network_mode"] for name in (broker, "demo-broker")} == {"none"}
    same = ("cap_drop", "cap_add", "security_opt", "read_only", "user", "init")
    assert {key: services[service][key] for key in same} == {key: services["demo"][key] for key in same}
    assert services[service]["ipc"] == "private"


def test_the_evaluation_takes_all_gpus_or_as_many_as_are_named() -> None:
    def devices(**environment: str) -> Any:
        (one,) = described(**environment)["eval"]["deploy"]["resources"]["reservations"]["devices"]
        return one["driver"], one["capabilities"], one["count"]

    assert devices() == ("nvidia", ["gpu"], -1)
    assert devices(RECOUNT_GPUS="2") == ("nvidia", ["gpu"], 2)
    assert "deploy" not in described()["eval-cpu"]


def test_settings_of_the_hub_reach_the_engines_as_they_are_outside_or_not_at_all() -> None:
    names = ("RECOUNT_MODEL", "HF_TOKEN", "HF_ENDPOINT", "HF_HUB_OFFLINE")
    unset = described()["eval"]["environment"]
    assert [unset[name] for name in names] == [None] * len(names)
    given = described(RECOUNT_MODEL="/models/mine", HF_HUB_OFFLINE="1")["eval"]["environment"]
    assert [given[name] for name in names] == ["/models/mine", None, None, "1"]


def test_profile_and_models_are_named_from_outside() -> None:
    service = described(RECOUNT_PROFILE="mine.toml", RECOUNT_MODELS="/srv/models")["eval"]
    assert service["command"] == ["eval", "mine.toml"]
    assert [one["source"] for one in service["volumes"] if one["target"] == "/models"] == ["/srv/models"]


def test_the_reports_own_name_for_an_evaluation_names_the_profile() -> None:
    assert described(MATH_REPORT_MODE="final4")["eval"]["command"] == ["eval", "final4"]
    both = described(MATH_REPORT_MODE="final4", RECOUNT_PROFILE="interval25")
    assert both["eval"]["command"] == ["eval", "interval25"]


@pytest.mark.parametrize(
    ("service", "profile"), [("demo", "demo"), ("eval", "interval25"), ("eval-cpu", "cpu")]
)
def test_each_evaluation_has_a_broker_of_its_profiles_policy(service: str, profile: str) -> None:
    services = described()
    (broker,) = services[service]["depends_on"]
    command = services[broker]["command"]
    assert services[service]["command"] == ["eval", profile]
    assert command[command.index("--policy") + 1] == load_profile(profile).sandbox.policy
    (socket_volume,) = (
        one["source"] for one in services[service]["volumes"] if one["target"] == "/run/recount"
    )
    assert socket_volume in {one["source"] for one in services[broker]["volumes"]}
