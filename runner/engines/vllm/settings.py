"""How a checkpoint is served, as a profile says it."""

import math
from dataclasses import dataclass

from runner.engines.vllm.wire import Device

_FRACTION_SLACK = 1e-9
"""Three thirds of a GPU are one GPU."""


@dataclass(frozen=True)
class VllmSettings:
    """How a checkpoint is served. Times in seconds; an engine's seed is `seed` plus its index.

    `gpu_fraction` is what Ray reserves of a GPU for an engine, `gpu_memory_utilization` what that engine
    takes of the GPU's memory, weights included.
    """

    model: str
    context_tokens: int
    revision: str | None = None
    device: Device = Device.CUDA
    engines: int = 1
    gpu_fraction: float = 1.0
    gpu_memory_utilization: float = 0.9
    dtype: str = "bfloat16"
    enforce_eager: bool = True
    max_num_seqs: int = 64
    gdn_prefill_backend: str | None = None
    prefix_caching: bool = False
    seed: int = 0
    cpu_kv_cache_gib: int = 1
    start_timeout_s: float = 900.0
    generation_timeout_s: float = 1800.0
    starts: int = 5


def engines_a_gpu(fraction: float) -> int:
    """Return how many engines of this fraction Ray puts on one GPU."""
    return int(1 / fraction + _FRACTION_SLACK)


def gpus_needed(settings: VllmSettings) -> int:
    """Return how many GPUs the engines take; 0 without GPUs."""
    if settings.device is Device.CPU:
        return 0
    return math.ceil(settings.engines / engines_a_gpu(settings.gpu_fraction))
