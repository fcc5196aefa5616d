"""What depends on the engine and not on the policy: its runtime, its cgroup version, its cgroup driver."""

from __future__ import annotations

from typing import Any

import docker
import pytest
from pydantic import ValidationError

from sandbox import DockerSandbox, Policy, SandboxPrerequisiteError, specs
from sandbox.engine import LABEL_RUN
from sandbox.policy import MIB
from sandbox.preflight import check_cgroup_parent, choose_runtime, host_options


def info(default: str, *others: str, **more: Any) -> dict[str, Any]:
    return {"DefaultRuntime": default, "Runtimes": {name: {} for name in (default, *others)}, **more}


@pytest.mark.parametrize(
    ("wanted", "engine", "chosen"),
    [
        (None, info("runc"), "runc"),
        (None, info("crun", "runc"), "crun"),
        (None, info("nvidia", "runc"), "runc"),
        (None, info("something", "runc"), "runc"),
        ("runsc", info("runc", "runsc"), "runsc"),
        ("kata", info("nvidia", "kata", "runc"), "kata"),
    ],
)
def test_the_runtime_is_never_one_that_is_not_known_to_isolate_by_default(
    wanted: str | None, engine: dict[str, Any], chosen: str
) -> None:
    assert choose_runtime(Policy(runtime=wanted), engine) == chosen


@pytest.mark.parametrize(
    ("wanted", "engine", "message"),
    [
        ("nvidia", info("runc", "nvidia"), "GPUs"),
        ("nvidia-experimental", info("runc", "nvidia-experimental"), "GPUs"),
        ("runsc", info("runc"), "no runtime 'runsc'"),
        (None, info("nvidia"), "not known to isolate"),
    ],
)
def test_a_runtime_that_cannot_be_used_is_refused(
    wanted: str | None, engine: dict[str, Any], message: str
) -> None:
    with pytest.raises(SandboxPrerequisiteError, match=message):
        choose_runtime(Policy(runtime=wanted), engine)


def test_control_groups_get_a_namespace_of_their_own_where_there_are_such() -> None:
    assert host_options({"CgroupVersion": "1"}, "runc") == {"runtime": "runc"}
    assert host_options({"CgroupVersion": "2"}, "runc") == {"runtime": "runc", "cgroupns": "private"}


@pytest.mark.parametrize("parent", ["recount", "a/recount.slice"])
def test_a_parent_that_is_no_slice_is_refused_where_systemd_keeps_the_groups(parent: str) -> None:
    with pytest.raises(SandboxPrerequisiteError, match="is no slice"):
        check_cgroup_parent(Policy(cgroup_parent=parent), {"CgroupDriver": "systemd"})


@pytest.mark.parametrize(
    ("parent", "driver"), [("recount.slice", "systemd"), ("/recount", "cgroupfs"), (None, "systemd")]
)
def test_a_parent_that_fits_the_driver_is_taken(parent: str | None, driver: str) -> None:
    check_cgroup_parent(Policy(cgroup_parent=parent), {"CgroupDriver": driver})


@pytest.mark.parametrize("parent", ["", "/", "../x", "a/../b", "a b"])
def test_a_parent_that_is_no_name_is_refused(parent: str) -> None:
    with pytest.raises(ValidationError):
        Policy(cgroup_parent=parent)


def test_the_parent_is_the_hosts_matter_and_no_part_of_the_digest() -> None:
    assert Policy(cgroup_parent="recount").digest() == Policy().digest()


@pytest.mark.parametrize("role", ["holder", "action"])
def test_both_kinds_of_containers_go_under_the_parent(role: str) -> None:
    policy = Policy(cgroup_parent="/recount")
    spec = (
        specs.holder_spec(policy, "v", 1, {})
        if role == "holder"
        else specs.action_spec(policy, "v", 1, "h", {})
    )

    assert spec.host_config["cgroup_parent"] == "/recount"


@pytest.mark.docker
@pytest.mark.anyio
async def test_an_engine_puts_the_containers_where_they_belong(engine_api: docker.APIClient) -> None:
    if engine_api.info()["CgroupDriver"] != "cgroupfs":
        pytest.skip("a parent of another form is needed under systemd")
    policy = Policy(memory_bytes=64 * MIB, cgroup_parent="/recount-test")
    async with DockerSandbox(policy, "test-parent") as sandbox:
        workspace = await sandbox.open("a")
        assert (await workspace.run("echo fine", 20)).stdout.head == b"fine\n"
        listed = engine_api.containers(all=True, filters={"label": f"{LABEL_RUN}=test-parent"})
        found = [engine_api.inspect_container(entry["Id"])["HostConfig"] for entry in listed]

    assert {host["CgroupParent"] for host in found} == {"/recount-test"}
    assert {host["Runtime"] for host in found} == {"runc"}
