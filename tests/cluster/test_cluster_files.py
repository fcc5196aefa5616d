"""The example files of a cluster: their syntax, and that they say what the program understands."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from runner.cli.main import app

ROOT = Path(__file__).parents[2]
FILES = ROOT / "deploy/cluster"
SCRIPTS = ("ssh.sh", "slurm.sbatch")


def sky() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((FILES / "skypilot.yaml").read_text(encoding="utf-8"))
    return found


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_is_bash(name: str) -> None:
    subprocess.run(["bash", "-n", str(FILES / name)], check=True)


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_has_nothing_that_a_checker_warns_of(name: str) -> None:
    checker = Path(sys.executable).with_name("shellcheck")
    if not checker.exists():
        pytest.skip("shellcheck is not in this environment")
    done = subprocess.run(
        [checker, "--shell=bash", str(FILES / name)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("part", ["setup", "run"])
def test_skypilots_commands_are_bash(part: str) -> None:
    subprocess.run(["bash", "-n"], input=sky()[part], text=True, check=True)


def test_the_script_that_slurm_starts_on_every_node_is_bash() -> None:
    text = (FILES / "slurm.sbatch").read_text(encoding="utf-8")
    inner = re.search(r"<<'MACHINE'\n(.*?)\nMACHINE\n", text, re.DOTALL)
    assert inner is not None
    subprocess.run(["bash", "-n"], input=inner.group(1), text=True, check=True)


def test_skypilots_file_has_what_its_tasks_have() -> None:
    known = {"name", "num_nodes", "resources", "workdir", "envs", "secrets", "setup", "run", "file_mounts"}
    assert set(sky()) <= known
    assert sky()["num_nodes"] > 1
    assert sky()["secrets"] == {"RAY_AUTH_TOKEN": None}  # has to be given, and is nobody's default


def test_a_firewalls_rules_close_what_they_do_not_open() -> None:
    text = (FILES / "firewall.nft").read_text(encoding="utf-8")
    assert "policy drop" in text
    assert text.count("{") == text.count("}")


@pytest.mark.parametrize("name", [*SCRIPTS, "skypilot.yaml", "../../docs/cluster.md"])
def test_every_option_that_is_named_is_one(name: str) -> None:
    text = (FILES / name).read_text(encoding="utf-8")
    for command in ("node", "eval", "broker"):
        help_text = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200"}).output
        for line in re.findall(rf"recount {command} ([^\n`#|&]*)", text):
            for option in re.findall(r"(?<!\S)--[a-z][a-z-]+", line):
                assert option in help_text, f"recount {command} {option}"


def test_the_ssh_script_starts_the_head_and_then_the_nodes_with_one_token_that_no_command_line_shows(
    tmp_path: Path,
) -> None:
    tools, home, seen = tmp_path / "bin", tmp_path / "home", tmp_path / "seen"
    for directory in (tools, home / "recount"):
        directory.mkdir(parents=True)
    # Another machine is this one, and Docker says what it was told.
    (tools / "ssh").write_text(
        f'#!/bin/bash\necho "ssh $*" >> {seen}\ncd "$HOME"; exec bash -c "${{@: -1}}"\n'
    )
    (tools / "docker").write_text(
        f'#!/bin/bash\necho "$* $RECOUNT_NODE_ADDRESS ${{RAY_ADDRESS:-}} token=$RAY_AUTH_TOKEN" >> {seen}\n'
    )
    for tool in tools.iterdir():
        tool.chmod(0o755)
    environment = {"PATH": f"{tools}:/usr/bin:/bin", "HOME": str(home)}
    machines = ["me@10.0.0.1", "10.0.0.2"]

    subprocess.run(["bash", str(FILES / "ssh.sh"), "up", *machines], env=environment, check=True)
    token = (home / ".recount-cluster-token").read_text()
    said = seen.read_text().splitlines()
    assert (home / ".recount-cluster-token").stat().st_mode & 0o777 == 0o600
    assert [line for line in said if not line.startswith("ssh ")] == [
        f"compose up -d head 10.0.0.1  token={token}",
        f"compose up -d node 10.0.0.2 10.0.0.1:6379 token={token}",
    ]
    assert len(token) == 64
    assert not any(token in line for line in said if line.startswith("ssh "))

    subprocess.run(["bash", str(FILES / "ssh.sh"), "down", *machines], env=environment, check=True)
    assert seen.read_text().count("compose --profile cluster down") == 4


def test_the_services_are_not_started_unless_they_are_named() -> None:
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
    services = compose["services"]
    for name in ("head", "node", "node-broker"):
        assert services[name]["profiles"] == ["cluster"]
    mounted = [str(one) for name in ("head", "node") for one in services[name]["volumes"]]
    assert not any("docker.sock" in one for one in mounted)
    assert services["node-broker"]["network_mode"] == "none"
    assert not any(services[name].get("ports") for name in ("head", "node", "node-broker"))
