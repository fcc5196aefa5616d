"""Where exports go: beside a run's directory, and never over what is not an export of that form."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from runner.errors import InfrastructureError, UserError


def beside(run_dir: Path, suffix: str) -> Path:
    """Return where a run's export goes unless told otherwise."""
    run_dir = run_dir.resolve()
    return run_dir.parent / f"{run_dir.name}{suffix}"


@contextmanager
def new_directory(path: Path) -> Iterator[Path]:
    """Yield a directory to fill, which becomes `path` when all of it is there, and nothing if it fails.

    Raises `UserError` for a path that exists: whose files those are cannot be told. Raises
    `InfrastructureError` where the disk refuses.
    """
    if path.exists() or path.is_symlink():
        raise UserError(f"{path} exists already", remedy="remove it, or name another --out")
    try:
        aside = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
    except OSError as error:
        raise UserError(
            f"cannot write {path}: {error.strerror or error}", remedy="name a writable --out"
        ) from error
    try:
        yield aside
        aside.chmod(0o755)
        aside.rename(path)
    except OSError as error:
        raise InfrastructureError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)
