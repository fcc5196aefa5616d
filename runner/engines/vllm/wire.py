"""What passes between the driver and an engine's actor. None of it needs vLLM or Ray to be read."""

from array import array
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias

from runner.engines.base import GenerationTiming, Sampling

Foreign: TypeAlias = Any
"""An object of vLLM's, Ray's or another library's that is not there where types are checked."""

PACKED_TYPE = "i"
"""Four bytes a token: a long prompt is a tenth of what it is as a pickled list of numbers."""


class Device(str, Enum):
    """Where engines run."""

    CUDA = "cuda"
    CPU = "cpu"


@dataclass(frozen=True)
class EngineConfig:
    """What one engine is made of. `model` is a directory, on the actor's node.

    `seed` is this engine's own. `cpu_threads` and `cpu_kv_cache_gib` are for engines without a GPU, the
    GPU's memory share and the GDN kernels for those with one.
    """

    model: str
    device: Device
    dtype: str
    context_tokens: int
    max_num_seqs: int
    seed: int
    log_path: str
    enforce_eager: bool = True
    prefix_caching: bool = False
    gpu_memory_utilization: float = 0.9
    gdn_prefill_backend: str | None = None
    cpu_threads: int = 1
    cpu_kv_cache_gib: int = 1


@dataclass(frozen=True)
class Placement:
    """Where Ray put an actor. `gpu_ids` are the node's own names of its GPUs."""

    node: str
    pid: int
    gpu_ids: tuple[str, ...]


@dataclass(frozen=True)
class EngineFacts:
    """What an engine that came up is, as a result depends on it."""

    python: str
    torch: str
    vllm: str
    transformers: str
    ray: str
    device_name: str
    kv_cache_tokens: int | None


@dataclass(frozen=True)
class GenerationCall:
    """One turn to generate. `tokens` is the prompt, packed."""

    request_id: str
    tokens: bytes
    sampling: Sampling
    seed: int
    max_tokens: int
    stop: tuple[str, ...]


@dataclass(frozen=True)
class Generated:
    """One turn, generated."""

    text: str
    prompt_tokens: int
    completion_tokens: int
    finish_reason: str
    cached_tokens: int | None
    timing: GenerationTiming


class FailureKind(str, Enum):
    """Whose a failure is."""

    PROMPT_TOO_LONG = "prompt_too_long"
    REFUSED = "refused"
    ENGINE = "engine"


@dataclass(frozen=True)
class Failure:
    """Why there is no turn, or no engine: `original` is the error as `Type: message`.

    It is returned instead of raised: vLLM's exceptions cannot be unpickled where there is no vLLM.
    """

    kind: FailureKind
    original: str


def pack_tokens(token_ids: tuple[int, ...]) -> bytes:
    """Return token ids as bytes."""
    return array(PACKED_TYPE, token_ids).tobytes()


def unpack_tokens(packed: bytes) -> list[int]:
    """Return what `pack_tokens` packed."""
    tokens = array(PACKED_TYPE)
    tokens.frombytes(packed)
    return tokens.tolist()


def describe_error(error: BaseException) -> str:
    """Word an error as the original harness keeps it: `Type: message`."""
    return f"{type(error).__name__}: {error}"
