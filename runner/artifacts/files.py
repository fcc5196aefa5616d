"""Files on this disk: the part that outlives an interruption, copying, hashing, and the room for them."""

import hashlib
import os
import shutil
import threading
from pathlib import Path
from typing import BinaryIO

import anyio
from anyio.to_thread import run_sync

from runner.artifacts.errors import disk_error, not_enough_space
from runner.artifacts.progress import FetchListener, Meter, Phase
from runner.atomic import write_text
from runner.errors import InfrastructureError, UserError
from runner.groups import first_error_only

BLOCK_BYTES = 1 << 20
SPARE_BYTES = 64 * 1024 * 1024
"""Space that stays free beside a file: logs and results go to the same disk."""
LFS_BEGINNING = b"version https://git-lfs.github.com/spec/"
_REPORT_EVERY_S = 0.2


def part_of(path: Path) -> Path:
    """Return where a file's bytes are gathered until it is whole."""
    return path.with_name(f"{path.name}.part")


def tag_of(path: Path) -> Path:
    """Return where it lies what the part is a part of."""
    return path.with_name(f"{path.name}.part.json")


def size_of(path: Path) -> int:
    """Return a file's size, 0 where there is none."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def discard_part(path: Path) -> None:
    """Forget what has come of a file."""
    try:
        part_of(path).unlink(missing_ok=True)
        tag_of(path).unlink(missing_ok=True)
    except OSError as error:
        raise disk_error(part_of(path), error) from error


def put_in_place(part: Path, path: Path) -> None:
    """Make the part the file, on disk before it has its name."""
    try:
        with part.open("rb") as file:
            os.fsync(file.fileno())
        part.replace(path)
        tag_of(path).unlink(missing_ok=True)
    except OSError as error:
        raise disk_error(path, error) from error


def put_aside(found: Path, path: Path) -> Path:
    """Rename a file that was refused, for a look; the last one is kept."""
    aside = path.with_name(f"{path.name}.refused")
    try:
        found.replace(aside)
        tag_of(path).unlink(missing_ok=True)
    except OSError as error:
        raise disk_error(aside, error) from error
    return aside


def make_directory(directory: Path) -> None:
    """Make a directory unless it is there."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise disk_error(directory, error) from error


def write_here(path: Path, text: str, *, durable: bool = True) -> None:
    """Write a small file whole or not at all; what the user can mend of a failure is a `UserError`."""
    make_directory(path.parent)
    try:
        write_text(path, text, durable=durable)
    except InfrastructureError as error:
        if isinstance(error.__cause__, OSError):
            raise disk_error(path, error.__cause__) from error
        raise


def check_space(directory: Path, needed_bytes: int) -> None:
    """Raise `UserError` unless the disk has this much space and some to spare."""
    free = shutil.disk_usage(directory).free
    if needed_bytes > 0 and free < needed_bytes + SPARE_BYTES:
        raise not_enough_space(directory, needed_bytes=needed_bytes, free_bytes=free)


def is_lfs_pointer(path: Path) -> bool:
    """Say whether a file is what git keeps in the place of a large one."""
    with path.open("rb") as file:
        return file.read(len(LFS_BEGINNING)) == LFS_BEGINNING


async def write_block(file: BinaryIO, block: bytes, part: Path) -> None:
    """Append a block to an open part."""
    try:
        await run_sync(file.write, block)
    except OSError as error:
        raise disk_error(part, error) from error


async def open_part(part: Path, *, append: bool) -> BinaryIO:
    """Open a part for writing."""
    try:
        return await run_sync(lambda: part.open("ab" if append else "wb"))
    except OSError as error:
        raise disk_error(part, error) from error


async def close_part(file: BinaryIO, part: Path, pending: bytes = b"") -> None:
    """Write what is left and close, also while cancelled, so that what has come is there for the next try."""

    def close() -> None:
        with file:
            file.write(pending)

    with anyio.CancelScope(shield=True):
        try:
            await run_sync(close)
        except OSError as error:
            raise disk_error(part, error) from error


async def copy(source: Path, path: Path, *, name: str, listener: FetchListener) -> Path:
    """Copy a file into `path`'s part and return that."""
    part = part_of(path)
    size = await run_sync(size_of, source)
    await run_sync(check_space, path.parent, size)
    await run_sync(discard_part, path)  # with what it was a part of, which this is none of
    meter = Meter(listener, name, Phase.COPYING, size)
    try:
        reading: BinaryIO = await run_sync(lambda: source.open("rb"))
    except OSError as error:
        raise UserError(f"{source}: {error.strerror or error}", remedy="make the file readable") from error
    with reading:
        writing = await open_part(part, append=False)
        try:
            while block := await run_sync(reading.read, BLOCK_BYTES):
                await write_block(writing, block, part)
                meter.advance(len(block))
        finally:
            await close_part(writing, part)
    return part


async def hash_file(path: Path, *, name: str, listener: FetchListener) -> str:
    """Return a file's SHA-256, computed in a thread that a cancellation stops."""
    stop = threading.Event()
    meter = Meter(listener, name, Phase.HASHING, await run_sync(size_of, path))
    hashed_bytes = 0

    def work() -> str:
        nonlocal hashed_bytes
        digest = hashlib.sha256()
        with path.open("rb") as file:
            while not stop.is_set() and (block := file.read(BLOCK_BYTES)):
                digest.update(block)
                hashed_bytes += len(block)
        return digest.hexdigest()

    async def watch() -> None:
        while True:
            await anyio.sleep(_REPORT_EVERY_S)
            meter.advance(hashed_bytes - meter.done_bytes)

    try:
        with first_error_only():
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(watch)
                found = await run_sync(work, abandon_on_cancel=True)
                tasks.cancel_scope.cancel()
    finally:
        stop.set()
    meter.advance(hashed_bytes - meter.done_bytes)
    return found
