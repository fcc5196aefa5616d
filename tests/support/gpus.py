"""GPUs and a driver that are not here, and the report's checkpoint and engines for them."""

from types import SimpleNamespace
from typing import Any

from runner.engines.vllm.fit import GIB
from runner.engines.vllm.gpu import Gpu
from runner.engines.vllm.settings import VllmSettings
from runner.engines.vllm.sizes import ModelSize, assumed

MODEL = "zz1358m/Qwen3.5-4B-MATH-ReAct-Agentic-ESOpt"
MIB = 1 << 20
PARAMETERS = 4_205_751_296
REPORT = VllmSettings(
    model=MODEL,
    context_tokens=131072,
    engines=8,
    gpu_fraction=0.5,
    gpu_memory_utilization=0.42,
    max_num_seqs=64,
)
AMPERE, ADA, HOPPER, TURING = (8, 0), (8, 9), (9, 0), (7, 5)


def known() -> ModelSize:
    size = assumed(MODEL)
    if size is None:
        raise AssertionError("the report's checkpoint is known by name")
    return size


def gpus(count: int, mib: int, capability: tuple[int, int] = HOPPER) -> list[Gpu]:
    return [Gpu("card", mib * MIB, capability, index) for index in range(count)]


class FakeNvml:
    """NVML's bindings over some GPUs; `mig` cuts them into slices of 20 GiB."""

    class NVMLError(Exception):
        pass

    def __init__(self, *, mig: bool = False, count: int = 1) -> None:
        self.mig, self.count = mig, count

    def __getattr__(self, name: str) -> Any:
        answers: dict[str, Any] = {
            "nvmlInit": lambda: None,
            "nvmlShutdown": lambda: None,
            "nvmlSystemGetDriverVersion": lambda: b"570.86.15",
            "nvmlSystemGetCudaDriverVersion_v2": lambda: 12080,
            "nvmlDeviceGetCount": lambda: self.count,
            "nvmlDeviceGetHandleByIndex": lambda index: f"gpu{index}",
            "nvmlDeviceGetName": lambda handle: f"card {handle}",
            "nvmlDeviceGetUUID": lambda handle: f"uuid-{handle}",
            "nvmlDeviceGetIndex": lambda _handle: 0,
            "nvmlDeviceGetMemoryInfo": lambda handle: SimpleNamespace(
                total=20 * GIB if handle == "slice0" else 80 * GIB, used=GIB
            ),
            "nvmlDeviceIsMigDeviceHandle": lambda handle: handle.startswith("slice"),
            "nvmlDeviceGetMigMode": lambda _handle: (1, 1) if self.mig else (0, 0),
            "nvmlDeviceGetMaxMigDeviceCount": lambda _handle: 7,
            "nvmlDeviceGetMigDeviceHandleByIndex": lambda _handle, number: f"slice{number}",
            "nvmlDeviceGetDeviceHandleFromMigDeviceHandle": lambda _handle: "gpu0",
            "nvmlDeviceGetCudaComputeCapability": self._capability,
        }
        if name not in answers:
            raise AttributeError(name)
        return answers[name]

    def _capability(self, handle: str) -> tuple[int, int]:
        if handle.startswith("slice"):
            raise self.NVMLError
        return AMPERE
