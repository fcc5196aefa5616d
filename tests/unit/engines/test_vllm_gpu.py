"""What the driver tells of GPUs, slices and itself."""

import sys
from pathlib import Path

import pytest
from support.gpus import AMPERE, FakeNvml

from runner.engines.vllm.fit import GIB
from runner.engines.vllm.gpu import Driver, Gpu, find_driver, visible_gpus


def test_a_gpu_is_described_by_its_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml())
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    (found,) = visible_gpus()

    assert found == Gpu("card gpu0", 80 * GIB, AMPERE, 0, "uuid-gpu0")
    assert found.used_bytes == GIB
    assert find_driver() == Driver("570.86.15", usable=True, cuda=(12, 8))


def test_a_sliced_gpu_is_its_first_slice_with_the_whole_one_s_capability(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(mig=True, count=2))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    assert visible_gpus() == (Gpu("card slice0", 20 * GIB, AMPERE, 0, "uuid-slice0", is_slice=True),)


@pytest.mark.parametrize(
    "line",
    [
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024",
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  535.183.01  Release Build  (builder)",
    ],
)
def test_a_driver_whose_library_is_not_here_is_known_by_its_kernel_module(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, line: str
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    (tmp_path / "version").write_text(f"{line}\nGCC version: gcc 12\n", encoding="ascii")

    driver = find_driver(tmp_path / "version")

    assert driver == Driver("535.183.01", usable=False)
    assert driver is not None
    assert driver.branch == 535


def test_no_driver_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)

    assert find_driver(tmp_path / "nowhere") is None
