"""What kind of node this is, and which engine it has."""

import hashlib
import json
from pathlib import Path

import pytest
from doctor_support import a_host

from runner.doctor.place import (
    container_kind,
    docker_context,
    engine_remedy,
    examine_place,
    other_sockets,
    selinux_enforces,
)
from runner.doctor.report import State

SOCKET = "/var/run/docker.sock"


@pytest.mark.parametrize(
    ("files", "environment", "kind"),
    [
        ({}, {}, None),
        ({"/proc/1/cgroup": "0::/init.scope\n"}, {}, None),
        ({"/.dockerenv": ""}, {}, "a Docker container"),
        ({"/run/.containerenv": ""}, {}, "a Podman container"),
        ({"/proc/1/cgroup": "3:memory:/kubepods/besteffort/pod1/2\n"}, {}, "a container (kubepods)"),
        ({"/proc/1/cgroup": "0::/lxc.payload.node\n"}, {}, "a container (lxc)"),
        ({}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "a Kubernetes pod"),
        ({}, {"container": "systemd-nspawn"}, "a container (systemd-nspawn)"),
    ],
)
def test_a_container_is_recognised(
    files: dict[str, str], environment: dict[str, str], kind: str | None
) -> None:
    assert container_kind(a_host(files, environment=environment)) == kind


def test_a_container_without_docker_is_told_to_serve_and_to_evaluate_from_elsewhere() -> None:
    found = examine_place(a_host({"/.dockerenv": ""}), broker=None)

    assert found.state is State.FAILED
    assert "has no Docker" in found.detail
    assert "--engine openai" in (found.remedy or "")


def test_a_container_whose_socket_is_closed_to_us_is_not_told_that_it_has_no_docker() -> None:
    host = a_host({"/.dockerenv": "", SOCKET: ""})

    assert engine_remedy(host, "join the group") == "join the group"


@pytest.mark.parametrize(
    ("files", "environment", "broker"),
    [
        ({}, {}, None),
        ({"/.dockerenv": "", SOCKET: ""}, {}, None),
        ({"/.dockerenv": "", "/run/user/1000/docker.sock": ""}, {}, None),
        ({"/.dockerenv": ""}, {"DOCKER_HOST": "tcp://elsewhere:2375"}, None),
        ({"/.dockerenv": ""}, {}, Path("/run/recount/broker.sock")),
    ],
)
def test_a_place_with_an_engine_or_a_broker_is_fine(
    files: dict[str, str], environment: dict[str, str], broker: Path | None
) -> None:
    assert examine_place(a_host(files, environment=environment), broker).state is State.OK


@pytest.mark.parametrize(("enforce", "expected"), [("1\n", True), ("0\n", False)])
def test_selinux_is_enforcing_where_it_says_so(enforce: str, expected: bool) -> None:
    host = a_host({"/sys/fs/selinux/enforce": enforce})

    assert selinux_enforces(host) is expected
    assert ("SELinux" in examine_place(host, None).detail) is expected
    assert ("label=disable" in engine_remedy(host, "start it")) is expected


@pytest.mark.parametrize(
    ("socket", "what"),
    [
        ("/run/user/1000/docker.sock", "rootless Docker"),
        ("/home/someone/.docker/desktop/docker.sock", "Docker Desktop"),
        ("/run/user/1000/podman/podman.sock", "rootless Podman"),
    ],
)
def test_an_engine_at_another_socket_is_named_with_how_to_use_it(socket: str, what: str) -> None:
    remedy = engine_remedy(a_host({socket: ""}), "start it")

    assert f"{what} is at unix://{socket}: export DOCKER_HOST=unix://{socket}" in remedy
    assert f"DOCKER_SOCKET={socket}" in remedy


def test_the_runtime_directory_is_where_the_environment_says() -> None:
    host = a_host({"/run/mine/docker.sock": ""}, environment={"XDG_RUNTIME_DIR": "/run/mine"})

    assert other_sockets(host) == [("rootless Docker", "unix:///run/mine/docker.sock")]


def test_the_socket_that_was_tried_is_no_other() -> None:
    assert other_sockets(a_host({SOCKET: ""})) == []


def context_files(name: str, address: str) -> dict[str, str]:
    key = hashlib.sha256(name.encode()).hexdigest()
    meta = {"Name": name, "Endpoints": {"docker": {"Host": address}}}
    return {
        "/home/someone/.docker/config.json": json.dumps({"currentContext": name}),
        f"/home/someone/.docker/contexts/meta/{key}/meta.json": json.dumps(meta),
    }


def test_the_context_of_the_docker_command_is_named() -> None:
    host = a_host(context_files("far", "tcp://far:2376"))

    assert docker_context(host) == ("far", "tcp://far:2376")
    assert (
        "the Docker context 'far' is at tcp://far:2376: export DOCKER_HOST=tcp://far:2376"
        in engine_remedy(host, "start it")
    )


@pytest.mark.parametrize(
    ("files", "environment"),
    [
        ({}, {}),
        (context_files("default", "unix:///x"), {}),
        (context_files("far", "tcp://far:2376"), {"DOCKER_HOST": "unix:///x"}),
        ({"/home/someone/.docker/config.json": "no JSON"}, {}),
        ({"/home/someone/.docker/config.json": '{"currentContext": "gone"}'}, {}),
    ],
)
def test_no_context_is_made_up(files: dict[str, str], environment: dict[str, str]) -> None:
    assert docker_context(a_host(files, environment=environment)) is None


def test_docker_from_snap_is_named() -> None:
    assert "snap start docker" in engine_remedy(a_host({"/snap/bin/docker": ""}), "start it")


def test_a_plain_machine_s_remedy_stays_what_it_was() -> None:
    assert engine_remedy(a_host(), "start it") == "start it"
