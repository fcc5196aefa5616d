"""What an engine's log says of why it did not come up."""

import tempfile
from pathlib import Path

from runner.errors import UserError

TAIL_LINES = 25
_TAIL_BYTES = 64 * 1024
_MEMORY_REMEDY = (
    "raise engine.gpu_memory_utilization, or lower engine.max_num_seqs or limits.context_tokens;"
    " if something else is on the GPU, end it"
)
_MISTAKES = {
    "No available memory for the cache blocks": _MEMORY_REMEDY,
    "larger than the available KV cache memory": _MEMORY_REMEDY,
    "less than desired GPU memory utilization": _MEMORY_REMEDY,
    "CUDA out of memory": _MEMORY_REMEDY,
    "is greater than the derived max_model_len": "lower limits.context_tokens to what the checkpoint takes",
}
"""vLLM's words for what settings bring about, and what to do. With other words the error is worded as ours;
it holds the log all the same."""


def log_file(written: str) -> Path:
    """Return where a log lies on this node: a relative path is below the directory for temporary files.

    Another node has no directory of the run.
    """
    path = Path(written)
    return path if path.is_absolute() else Path(tempfile.gettempdir(), path)


def last_lines(path: Path, count: int = TAIL_LINES) -> str:
    """Return the last lines of a log, or why there are none."""
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(file.tell() - _TAIL_BYTES, 0))
            text = file.read().decode("utf-8", errors="replace")
    except OSError as error:
        return f"({error.strerror or error})"
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    return "\n".join(lines[-count:]) or "(empty)"


def user_error_of(log: str, error: str) -> UserError | None:
    """Return the error for what the user's settings brought about, None where it is something else."""
    for phrase, remedy in _MISTAKES.items():
        line = next((line for line in (error, *log.splitlines()) if phrase in line), None)
        if line is not None:
            return UserError(f"the engine does not start: {line.strip()}", remedy=remedy)
    return None
