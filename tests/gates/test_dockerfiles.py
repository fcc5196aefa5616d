"""What hadolint does not know about our Dockerfiles: one base, locked packages, and who gets the socket."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.command_lines import services
from support.markdown import ROOT

DOCKERFILES = sorted(ROOT.glob("Dockerfile.*"))
HADOLINT = Path(sys.executable).with_name("hadolint")
BASE = "ARG BASE_IMAGE=python:3.10.12-slim-bookworm"
OURS = "--no-deps /tmp/wheels/*.whl"
COMPOSE = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")


def instructions(text: str) -> list[str]:
    """The instructions of a Dockerfile, comments left out, continued lines joined."""
    plain = re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE)
    return [line for line in re.sub(r"\\\n", " ", plain).splitlines() if line.strip()]


def faults(text: str) -> list[str]:
    found = []
    lines = instructions(text)
    if lines[0] != BASE:
        found.append("the base is not that of all our images")
    for line in lines:
        if line.startswith("FROM ") and not line.startswith("FROM ${BASE_IMAGE}"):
            found.append(f"another base: {line}")
        if line.startswith("ADD "):
            found.append(f"ADD fetches and unpacks unasked: {line}")
        if re.search(r"\b(curl|wget|git clone)\b", line):
            found.append(f"fetched without a hash: {line}")
        if "apt-get install" in line and "rm -rf /var/lib/apt/lists/*" not in line:
            found.append(f"apt's lists stay in the layer: {line}")
        found += [
            f"installed without hashes: {command.strip()}"
            for command in re.findall(r"pip install[^&]*", line)
            if "--require-hashes" not in command and OURS not in " ".join(command.split())
        ]
    return found


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
def test_a_dockerfile_keeps_the_rules(path: Path) -> None:
    assert faults(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "line",
    [
        "FROM debian:12",
        "ADD https://github.com/x/y/archive/z.tar.gz /",
        "RUN curl -sSf https://github.com/x | sh",
        "RUN apt-get update && apt-get install -y gcc",
        "RUN pip install numpy",
        "RUN pip install --require-hashes -r a.lock && pip install numpy",
    ],
)
def test_a_line_that_breaks_a_rule_is_found(line: str) -> None:
    assert len(faults(f"{BASE}\nFROM ${{BASE_IMAGE}}\n{line}\n")) == 1


def test_hadolint_finds_what_it_is_there_for(tmp_path: Path) -> None:
    shutil.copy(ROOT / ".hadolint.yaml", tmp_path)
    (tmp_path / "Dockerfile").write_text(
        "FROM python:latest\nRUN sudo ls\nRUN pip install x\n", encoding="utf-8"
    )
    done = subprocess.run(
        [HADOLINT, "Dockerfile"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 1
    assert {"DL3007", "DL3004", "DL3013", "DL3042"} <= set(re.findall(r"DL\d{4}", done.stdout))


def test_what_a_model_s_commands_run_in_is_nobody_s_root() -> None:
    last = instructions((ROOT / "Dockerfile.sandbox").read_text(encoding="utf-8"))
    assert [line for line in last if line.startswith("USER ")] == ["USER 1000:1000"]


def test_the_socket_is_a_broker_s_alone() -> None:
    parts = re.split(
        r"^  ([a-z-]+):", COMPOSE.split("\nservices:\n")[1].split("\nvolumes:\n")[0], flags=re.MULTILINE
    )
    bodies = dict(zip(parts[1::2], parts[2::2], strict=True))
    assert set(bodies) >= services()
    assert {name for name, body in bodies.items() if "docker.sock" in body} == {
        name for name in services() if name.endswith("broker")
    }
