"""Reading files of JSON lines so that every fault names its file and line."""

import json
from collections.abc import Iterator
from pathlib import Path


class JsonLinesError(ValueError):
    """A file of JSON lines that cannot be read; the message names file and line."""


def read_json_lines(path: Path) -> Iterator[tuple[int, object]]:
    """Yield (line number from 1, value) for every line that is not blank.

    Lines end at `\\n` alone: JSON strings may hold other separators (U+2028) unescaped.

    Raises `JsonLinesError` for a file that is absent or unreadable, a line that is not UTF-8 or not JSON.
    """
    try:
        with path.open("rb") as file:
            for number, raw in enumerate(file, start=1):
                if raw.strip():
                    yield number, _decode(raw, path, number)
    except OSError as error:
        raise JsonLinesError(f"{path}: {error.strerror or error}") from error


def _decode(raw: bytes, path: Path, number: int) -> object:
    try:
        return json.loads(raw.rstrip(b"\r\n").decode("utf-8"))
    except UnicodeDecodeError as error:
        raise JsonLinesError(f"{path}:{number}: not UTF-8 (byte {error.start} of the line)") from error
    except json.JSONDecodeError as error:
        raise JsonLinesError(f"{path}:{number}: not JSON: {error.msg} (column {error.colno})") from error
    except (RecursionError, ValueError) as error:
        raise JsonLinesError(f"{path}:{number}: not readable as JSON: {error}") from error
