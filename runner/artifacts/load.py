"""The card's "Loading the weights", tried: transformers loads it on the CPU, and it is counted."""

import importlib
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from runner.artifacts.errors import in_words
from runner.errors import InfrastructureError, UserError

OVERHEAD = 1.15
"""Buffers and what the loader holds twice, measured against the files' size; a shard at a time is mapped."""
BASE_BYTES = 1 << 30
"""torch and transformers themselves."""
_CGROUP_LIMITS = (
    (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")),
    (
        Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
        Path("/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ),
)


@dataclass(frozen=True)
class Loaded:
    """What came of loading. `missing` tensors were made up by the loader, `unexpected` ones were left out."""

    model_class: str
    dtype: str
    parameters: int
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]


def needed_bytes(directory: Path) -> int:
    """Return an estimate of the memory that loading takes; raise `UserError` where there are no weights."""
    files = list(directory.glob("*.safetensors"))
    if not files:
        raise UserError(f"{directory} holds no *.safetensors", remedy="name the checkpoint's directory")
    return int(sum(path.stat().st_size for path in files) * OVERHEAD) + BASE_BYTES


def available_bytes(meminfo: Path = Path("/proc/meminfo")) -> int | None:
    """Return the memory this process may still take, of machine and container; None where nothing says."""
    found = [_machine_bytes(meminfo), *(_container_bytes(*paths) for paths in _CGROUP_LIMITS)]
    return min((one for one in found if one is not None), default=None)


def _machine_bytes(meminfo: Path) -> int | None:
    try:
        for line in meminfo.read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        return None  # not Linux
    return None


def _container_bytes(limit: Path, used: Path) -> int | None:
    try:
        return int(limit.read_text("ascii")) - int(used.read_text("ascii"))
    except (OSError, ValueError):
        return None  # no such controller, or no limit ("max")


def check_memory(directory: Path, *, available: int | None) -> None:
    """Raise `UserError` where loading would not fit, before anything is loaded."""
    needed = needed_bytes(directory)
    if available is not None and available < needed:
        raise UserError(
            f"loading {directory} takes about {in_words(needed)} of memory, {in_words(available)} are free",
            remedy="free memory, raise the container's limit, or leave out --load:"
            " hashes, index and headers are checked without it",
        )


def load_checkpoint(directory: Path) -> Loaded:
    """Load the checkpoint with transformers on the CPU, as the card says, and count it.

    Raises `UserError` where transformers is missing or does not take the checkpoint.
    """
    try:
        transformers = importlib.import_module("transformers")
        importlib.import_module("torch")
    except ImportError as error:
        raise UserError(
            f"--load needs {error.name or 'transformers'}, which is not installed",
            remedy="use the GPU image, or: pip install '.[gpu]' where Recount's source is",
        ) from error
    try:
        model, info = _load(transformers, directory)
    except MemoryError as error:
        raise InfrastructureError(f"memory ran out while loading {directory}") from error
    except (OSError, ValueError, RuntimeError, KeyError, AttributeError, TypeError) as error:
        lines = str(error).strip().splitlines() or [""]
        raise UserError(
            f"transformers does not load {directory}: {type(error).__name__}: {lines[0][:300]}",
            remedy="recount verify checkpoint without --load says whether its files are the published ones",
        ) from error
    return Loaded(
        model_class=type(model).__name__,
        dtype=str(model.dtype).removeprefix("torch."),
        parameters=sum(one.numel() for one in model.parameters()),
        missing=tuple(sorted(info["missing_keys"])),
        unexpected=tuple(sorted(info["unexpected_keys"])),
    )


def _load(transformers: ModuleType, directory: Path) -> tuple[Any, dict[str, Any]]:
    # Tied tensors are one parameter, so parameters() counts them once, as the card does.
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        str(directory),
        dtype="auto",
        local_files_only=True,
        trust_remote_code=False,
        output_loading_info=True,
    )
    return model, info
