"""A Unix socket to listen on, whose directory and mode are who may use it."""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from sandbox.errors import SandboxPrerequisiteError

_DIRECTORY_MODE = 0o750
# Leaves owner and group to read and write.
_SOCKET_UMASK = 0o117


@contextmanager
def listening(path: Path) -> Iterator[socket.socket]:
    """Listen on a Unix socket that only this process's user and group may use; gone afterwards.

    A lock beside it, which dies with its holder, tells a socket that a killed broker left (replaced) from one
    that is served (an error). The lock's file stays: removing it would let two hold it.
    """
    with ExitStack() as stack:
        try:
            path.parent.mkdir(mode=_DIRECTORY_MODE, parents=True, exist_ok=True)
            _lock(path, stack)
            if path.exists() and not path.is_socket():
                raise SandboxPrerequisiteError(f"{path} is no socket", remedy="name another path")
            path.unlink(missing_ok=True)
            server = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            before = os.umask(_SOCKET_UMASK)
            try:
                server.bind(str(path))
            finally:
                os.umask(before)
            # Who comes before serving has begun waits, instead of being refused.
            server.listen()
        except OSError as error:
            raise SandboxPrerequisiteError(
                f"cannot listen on {path}: {error.strerror or error}",
                remedy="name a socket, below 100 characters, in a directory that the broker may write",
            ) from error
        try:
            yield server
        finally:
            path.unlink(missing_ok=True)


def _lock(path: Path, stack: ExitStack) -> None:
    lock = stack.enter_context(path.with_name(f"{path.name}.lock").open("wb"))
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise SandboxPrerequisiteError(
            f"another broker serves {path}", remedy="stop it, or name another socket"
        ) from error
