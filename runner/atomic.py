"""Writing files whole or not at all."""

import os
import tempfile
from pathlib import Path

from runner.errors import InfrastructureError


def write_text(path: Path, text: str, *, durable: bool = True) -> None:
    """Replace `path` by `text` in UTF-8: written aside, synced, renamed, so never seen half-written.

    `durable=False` leaves out the sync, for the many small files that can be derived again. Raises
    `InfrastructureError` where the disk refuses. Lone surrogates are replaced.
    """
    try:
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise InfrastructureError(f"cannot write {path}: {error.strerror or error}") from error
    aside = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(text.encode("utf-8", errors="replace"))
            file.flush()
            if durable:
                os.fsync(file.fileno())
        aside.chmod(0o644)
        aside.replace(path)
    except OSError as error:
        aside.unlink(missing_ok=True)
        raise InfrastructureError(f"cannot write {path}: {error.strerror or error}") from error
