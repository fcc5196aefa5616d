"""What the NVIDIA driver tells of the GPUs here. Without one, or without a driver, there are none."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

from runner.engines.vllm.wire import Foreign

VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"
KERNEL_MODULE = Path("/proc/driver/nvidia/version")
"""There wherever the host's kernel has the driver, in containers too, with or without its libraries."""
_MODULE_VERSION = re.compile(r"Kernel Module.*?\s(\d+(?:\.\d+)+)")
_MIG_ENABLED = 1


@dataclass(frozen=True)
class Gpu:
    """One GPU that this process may use, or a slice of one. None where the driver does not tell."""

    name: str
    memory_bytes: int
    capability: tuple[int, int] | None = None
    """CUDA's compute capability, (8, 0) for an A100."""
    index: int | None = None
    """The driver's own number of it, whatever is visible."""
    uuid: str | None = None
    is_slice: bool = False
    """A MIG instance: a process sees one of them, and no other GPU beside it."""
    used_bytes: int | None = field(default=None, compare=False)
    """What everybody on it used when it was looked at."""


@dataclass(frozen=True)
class Driver:
    """The driver, by its kernel module; `usable` says whether its library answers this process.

    `cuda` is the newest CUDA that it was made for, such as (12, 8).
    """

    version: str
    usable: bool
    cuda: tuple[int, int] | None = None

    @property
    def branch(self) -> int:
        """The release branch: 570 of 570.86.15."""
        return int(self.version.partition(".")[0])


@dataclass(frozen=True)
class GpuUsage:
    """How one GPU is used, by everybody on it. `utilization` is a share of the last moments, from 0 to 1."""

    utilization: float | None
    memory_used_bytes: int | None
    memory_total_bytes: int | None


def visible_gpus() -> tuple[Gpu, ...]:
    """Return the GPUs that this process may use; none where there is no driver."""
    with _nvml() as nvml:
        if nvml is None:
            return ()
        gpus = [_gpu(nvml, handle, is_slice=False) for handle in _handles(nvml)]
    # CUDA gives a process the first slice, and that alone.
    slices = [one for one in gpus if one.is_slice]
    return tuple(slices[:1] or gpus)


def find_driver(kernel_module: Path = KERNEL_MODULE) -> Driver | None:
    """Return the driver; None where there is none."""
    with _nvml() as nvml:
        version = None if nvml is None else _ask(nvml, "nvmlSystemGetDriverVersion")
        if nvml is not None and version is not None:
            cuda = _ask(nvml, "nvmlSystemGetCudaDriverVersion_v2")
            return Driver(_text(version), usable=True, cuda=cuda and (cuda // 1000, cuda % 1000 // 10))
    try:
        found = _MODULE_VERSION.search(kernel_module.read_text(encoding="ascii", errors="replace"))
    except OSError:
        return None
    return None if found is None else Driver(found.group(1), usable=False)


def gpu_usage() -> GpuUsage | None:
    """Return how the first GPU of this process is used; None where it has none."""
    with _nvml() as nvml:
        handles = [] if nvml is None else _handles(nvml)
        if nvml is None or not handles:
            return None
        utilization = _ask(nvml, "nvmlDeviceGetUtilizationRates", handles[0])
        memory = _ask(nvml, "nvmlDeviceGetMemoryInfo", handles[0])
        return GpuUsage(
            utilization=None if utilization is None else utilization.gpu / 100,
            memory_used_bytes=None if memory is None else int(memory.used),
            memory_total_bytes=None if memory is None else int(memory.total),
        )


@contextmanager
def _nvml() -> Iterator[ModuleType | None]:
    """Yield NVML's bindings, initialised, or None. They come with vLLM or as `nvidia-ml-py`."""
    try:
        import pynvml as nvml  # noqa: PLC0415 - only where it is
    except ImportError:
        yield None
        return
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        yield None
        return
    try:
        yield nvml
    finally:
        nvml.nvmlShutdown()


def _handles(nvml: ModuleType) -> list[Foreign]:
    """Return handles of the visible GPUs, in the order in which CUDA numbers them for this process.

    CUDA reads the variable up to the first name that it does not know; so is it read here.
    """
    written = os.environ.get(VISIBLE_DEVICES)
    names = (
        [str(index) for index in range(nvml.nvmlDeviceGetCount())]
        if written is None
        else [name.strip() for name in written.split(",")]
    )
    handles = []
    for name in names:
        try:
            handles.append(
                nvml.nvmlDeviceGetHandleByIndex(int(name))
                if name.isdigit()
                else nvml.nvmlDeviceGetHandleByUUID(name)
            )
        except nvml.NVMLError:
            break
    return handles


def _gpu(nvml: ModuleType, handle: Foreign, *, is_slice: bool) -> Gpu:
    """Describe a GPU; one that is sliced is its first slice, which is what a process gets of it."""
    if not is_slice:
        if _ask(nvml, "nvmlDeviceIsMigDeviceHandle", handle):
            return _gpu(nvml, handle, is_slice=True)
        mode = _ask(nvml, "nvmlDeviceGetMigMode", handle)
        if mode is not None and mode[0] == _MIG_ENABLED:
            for number in range(_ask(nvml, "nvmlDeviceGetMaxMigDeviceCount", handle) or 0):
                part = _ask(nvml, "nvmlDeviceGetMigDeviceHandleByIndex", handle, number)
                if part is not None:
                    return _gpu(nvml, part, is_slice=True)
    parent = _ask(nvml, "nvmlDeviceGetDeviceHandleFromMigDeviceHandle", handle) if is_slice else None
    whole = handle if parent is None else parent
    capability = _ask(nvml, "nvmlDeviceGetCudaComputeCapability", whole)
    uuid = _ask(nvml, "nvmlDeviceGetUUID", handle)
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    return Gpu(
        name=_text(nvml.nvmlDeviceGetName(handle)),
        memory_bytes=int(memory.total),
        capability=None if capability is None else (int(capability[0]), int(capability[1])),
        index=_ask(nvml, "nvmlDeviceGetIndex", whole),
        uuid=None if uuid is None else _text(uuid),
        is_slice=is_slice,
        used_bytes=int(memory.used),
    )


def _ask(nvml: ModuleType, question: str, *about: Foreign) -> Foreign:
    """Return the answer; None where this GPU does not tell (a slice has no utilization) or NVML is old."""
    function = getattr(nvml, question, None)
    if function is None:
        return None
    try:
        return function(*about)
    except nvml.NVMLError:
        return None


def _text(value: bytes | str) -> str:
    """Read what older bindings return as bytes."""
    return value.decode() if isinstance(value, bytes) else str(value)
