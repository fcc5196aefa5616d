"""Where a checkpoint's files are, and whether they are all there: read before anything is started."""

import importlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anyio.to_thread import run_sync

from runner.errors import UserError
from runner.weights import indexed_files, read_weight_file

CONFIG = "config.json"
INDEX = "model.safetensors.index.json"
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_NOT_READ = ("*.bin", "*.pt", "*.pth", "*.gguf", "*.h5", "*.msgpack", "*.onnx", "onnx/*", "original/*")
"""The same weights in formats that engines here do not read."""


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that is here already. `commit` is the hub's, None where nobody knows it."""

    directory: Path
    commit: str | None


def is_hub_id(model: str) -> bool:
    """Say whether `model` names a repository of the Hugging Face hub and not a directory here."""
    return _HUB_ID.fullmatch(model) is not None and not Path(model).is_dir()


async def find_checkpoint(model: str, revision: str | None) -> Checkpoint:
    """Return the checkpoint, fetched from the hub first where it is one of the hub's.

    Raises `UserError` where it is missing or incomplete.
    """
    if is_hub_id(model):
        # Gigabytes: whoever stops the run does not wait for them, and what has come stays in the hub's cache.
        directory = await run_sync(_fetch, model, revision, abandon_on_cancel=True)
        # The cache names a directory by its commit, which is what a branch's name meant at that moment.
        found = Checkpoint(directory, directory.name)
    else:
        found = Checkpoint(await run_sync(Path(model).absolute), None)
    await run_sync(check_checkpoint, found.directory)
    return found


def _fetch(model: str, revision: str | None) -> Path:
    hub = importlib.import_module("huggingface_hub")
    try:
        return Path(hub.snapshot_download(model, revision=revision, ignore_patterns=list(_NOT_READ)))
    except (OSError, ValueError) as error:  # what the hub's own errors derive from
        raise UserError(
            f"cannot fetch {model}{'' if revision is None else f' at {revision}'}: {_first_line(error)}",
            remedy="check name, revision and network (HF_TOKEN for one that is not public),"
            " or name a directory with --model",
        ) from error


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"


def check_checkpoint(directory: Path) -> None:
    """Raise `UserError` unless the directory holds a configuration and all of its weights, whole."""
    if not directory.is_dir():
        raise UserError(
            f"no checkpoint at {directory}",
            remedy="name a directory or a Hugging Face id with --model or RECOUNT_MODEL",
        )
    if not (directory / CONFIG).is_file():
        raise _incomplete(directory, f"{CONFIG} is missing")
    try:
        for name in _weight_files(directory):
            read_weight_file(directory / name)
    except UserError as error:
        raise _incomplete(directory, error.message) from error


def _weight_files(directory: Path) -> list[str]:
    """Return the files of weights: those that the index names, else those that there are."""
    index = directory / INDEX
    if index.is_file():
        return list(indexed_files(index))
    found = sorted(path.name for path in directory.glob("*.safetensors"))
    if not found:
        raise UserError("it holds no *.safetensors")
    return found


def _incomplete(directory: Path, what: str) -> UserError:
    return UserError(f"the checkpoint at {directory} is incomplete: {what}", remedy="fetch it again")


def read_config(directory: Path) -> dict[str, Any]:
    """Return the checkpoint's configuration."""
    try:
        config = json.loads((directory / CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _incomplete(directory, f"{CONFIG} cannot be read: {error}") from error
    if not isinstance(config, dict):
        raise _incomplete(directory, f"{CONFIG} is no object")
    return config
