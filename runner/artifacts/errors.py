"""What can go wrong with one file of a fetch: each says whether trying again may help."""

import errno
from pathlib import Path

from runner.errors import InfrastructureError, UserError

OTHER_DIRECTORIES = "name another directory with --models or --data-dir"
AGAIN = "run the same command again: what has come is kept and continued"


class TransientError(Exception):
    """A try that failed for a reason that may pass. Ends up in a message only if no try succeeds."""

    def __init__(self, what: str, *, retry_after_s: float | None = None) -> None:
        """`retry_after_s` is the server's wish."""
        super().__init__(what)
        self.what = what
        self.retry_after_s = retry_after_s


class MissingFileError(UserError):
    """The repository does not have this file; an error only where it is required."""


class RefusedFileError(UserError):
    """A file that is not the one of the manifest; it was put aside."""


def refused(
    name: str, aside: Path, *, expected: str, found: str, size: tuple[int, int] | None
) -> RefusedFileError:
    """Word a wrong hash: both, and where the file is now."""
    sizes = "" if size is None or size[0] == size[1] else f"\n  expected {size[0]} bytes, found {size[1]}"
    return RefusedFileError(
        f"{name} is not the file of the report, and was refused\n"
        f"  expected SHA-256 {expected}\n  found    SHA-256 {found}{sizes}\n  kept for a look: {aside}",
        remedy="fetch it again; --allow-unverified takes it as it is, and marks every run with it",
    )


def changed(name: str, path: Path, *, expected: str, found: str, pinned: bool) -> RefusedFileError:
    """Word a wrong hash of a file that stays where it is."""
    what = "is not the file of the report" if pinned else "is not the file that was fetched any more"
    return RefusedFileError(
        f"{name} {what}, and stays where it is: {path}\n"
        f"  expected SHA-256 {expected}\n  found    SHA-256 {found}",
        remedy="recount fetch puts it aside and fetches the right one;"
        " --allow-unverified takes it as it is, and marks every run with it",
    )


def disk_error(path: Path, error: OSError) -> UserError | InfrastructureError:
    """Word what the file system said when something was written to `path`."""
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return UserError(f"the disk is full: {path}", remedy=f"free some space there, then {AGAIN}")
    if error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
        return UserError(
            f"cannot write {path}: {error.strerror}",
            remedy=f"make the directory writable, or {OTHER_DIRECTORIES}",
        )
    if error.errno in {errno.EEXIST, errno.ENOTDIR}:
        return UserError(
            f"cannot write {path}: it, or what holds it, is no directory", remedy=OTHER_DIRECTORIES
        )
    return InfrastructureError(f"cannot write {path}: {error.strerror or error}", remedy=AGAIN)


def not_enough_space(directory: Path, *, needed_bytes: int, free_bytes: int) -> UserError:
    """Word that a file would not fit, before it is begun."""
    return UserError(
        f"not enough space in {directory}: {in_words(needed_bytes)} are needed,"
        f" {in_words(free_bytes)} are free",
        remedy=f"free some space there, or {OTHER_DIRECTORIES}",
    )


def in_words(count: float) -> str:
    """Print a number of bytes for people."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
