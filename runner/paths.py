"""Asking for files whose names somebody wrote."""

from pathlib import Path


def is_file(path: Path) -> bool:
    """Say whether there is such a file; a name that the system refuses (too long, say) names none."""
    try:
        return path.is_file()
    except OSError:
        return False
