"""What the headers of safetensors files say: how many tensors and parameters, and whether a file is whole."""

import json
import math
import struct
from dataclasses import dataclass
from pathlib import Path

from runner.errors import UserError

_LENGTH_BYTES = 8
_LARGEST_HEADER_BYTES = 100 * 1024 * 1024
"""The format's own limit; a larger number is no header."""


@dataclass(frozen=True)
class WeightFile:
    """One file's header."""

    path: Path
    tensors: frozenset[str]
    parameters: int
    size_bytes: int
    """As the header has it."""


def read_weight_file(path: Path) -> WeightFile:
    """Read a header; raise `UserError` where it is none, or the file is shorter or longer than it says."""
    try:
        actual = path.stat().st_size
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(_LENGTH_BYTES))
            header = json.loads(file.read(min(length, _LARGEST_HEADER_BYTES)))
        tensors = {name: one for name, one in header.items() if name != "__metadata__"}
        end = max((one["data_offsets"][1] for one in tensors.values()), default=0)
        parameters = sum(math.prod(one["shape"]) for one in tensors.values())
    except FileNotFoundError as error:
        raise UserError(f"{path} is missing", remedy="fetch it again") from error
    except (OSError, struct.error, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise UserError(f"{path} is no safetensors file: {error}", remedy="fetch it again") from error
    told = _LENGTH_BYTES + length + end
    if told != actual:
        raise UserError(
            f"{path} has {actual} bytes, not the {told} that its header tells of", remedy="fetch it again"
        )
    return WeightFile(path, frozenset(tensors), parameters, told)


def indexed_files(index: Path) -> dict[str, frozenset[str]]:
    """Return the weight files an index names, with the tensors of each; raise `UserError` for no index."""
    try:
        weight_map = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        names = {str(file) for file in weight_map.values()}
        return {
            name: frozenset(tensor for tensor, file in weight_map.items() if file == name)
            for name in sorted(names)
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{index} is no index of weights: {error}", remedy="fetch it again") from error
