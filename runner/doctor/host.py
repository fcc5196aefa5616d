"""What the doctor looks at, each a function of its own, so that a test can be any machine."""

import importlib.metadata
import os
import platform
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import httpx

from runner.engines.vllm.gpu import Driver, Gpu, find_driver, visible_gpus
from sandbox.engine import translated
from sandbox.preflight import connect

CONNECT_TIMEOUT_S = 4.0
ANSWER_TIMEOUT_S = 8.0
DAEMON_TIMEOUT_S = 10.0
"""A call to a Docker engine, in seconds: creating a container on a busy machine takes two."""


@dataclass(frozen=True)
class Space:
    """Room on the disk under a path. `device` tells whether two paths share one."""

    free_bytes: int
    total_bytes: int
    device: int


@dataclass(frozen=True)
class Reply:
    """A server's answer, or why there was none. `served_at` is its clock, in seconds since the epoch."""

    status: int | None = None
    served_at: float | None = None
    problem: str = ""


def _home() -> Path:
    """Return the home directory; a user of a container may have none."""
    try:
        return Path.home()
    except RuntimeError:
        return Path("/")


def _version_of(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _space(path: Path) -> Space:
    found = os.statvfs(path)
    return Space(found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize, path.stat().st_dev)


def _read(path: Path) -> str | None:
    """Return a small file's text, None where it is not there or not for us."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False


def _try_write(directory: Path) -> str | None:
    """Return why nothing can be written into a directory, None if it can. Rights alone do not tell."""
    try:
        with tempfile.NamedTemporaryFile(dir=directory, prefix=".recount-doctor-") as file:
            file.write(b"1")
            file.flush()
    except OSError as error:
        return error.strerror or str(error)
    return None


def engine_info(url: str | None, *, timeout_s: float = DAEMON_TIMEOUT_S) -> Mapping[str, Any]:
    """Ask a Docker engine about itself. Raises `SandboxError`; bounded."""
    api = connect(url, timeout_s=timeout_s)
    try:
        info: Mapping[str, Any] = translated("asking the engine about itself", api.info)
        return info
    finally:
        api.close()


async def _ask(url: str, headers: Mapping[str, str]) -> Reply:
    """Ask for a page's head. A redirect is an answer: where it leads is not this question."""
    timeout = httpx.Timeout(ANSWER_TIMEOUT_S, connect=CONNECT_TIMEOUT_S)
    try:
        async with httpx.AsyncClient(timeout=timeout) as client:
            response = await client.head(url, headers=dict(headers))
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return Reply(problem=str(error) or type(error).__name__)
    try:
        served_at = parsedate_to_datetime(response.headers["date"]).timestamp()
    except (KeyError, ValueError):
        served_at = None
    return Reply(response.status_code, served_at)


@dataclass(frozen=True)
class Host:
    """This machine, or a test's."""

    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    home: Path = field(default_factory=_home)
    uid: int = field(default_factory=os.getuid)
    python: str = platform.python_version()
    gpus: Callable[[], tuple[Gpu, ...]] = visible_gpus
    driver: Callable[[], Driver | None] = find_driver
    version_of: Callable[[str], str | None] = _version_of
    space: Callable[[Path], Space] = _space
    read: Callable[[Path], str | None] = _read
    exists: Callable[[Path], bool] = _exists
    try_write: Callable[[Path], str | None] = _try_write
    now: Callable[[], float] = time.time
    engine_info: Callable[[str | None], Mapping[str, Any]] = engine_info
    ask: Callable[[str, Mapping[str, str]], Awaitable[Reply]] = _ask

    def nearest(self, path: Path) -> Path:
        """Return the path itself, or the nearest directory above it that there is."""
        path = path.absolute()
        while not self.exists(path) and path != path.parent:
            path = path.parent
        return path
