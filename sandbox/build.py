"""Building the image that commands run in, from the files that come with this package.

Who installed a wheel has no checkout to run `docker compose build` in. The engine gets the same context as
from there, by its own API, so no Docker command line is needed.
"""

import io
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import docker
from docker.errors import DockerException

from sandbox.engine import TRANSPORT_ERRORS
from sandbox.errors import SandboxPrerequisiteError

DOCKERFILE = "Dockerfile.sandbox"
LOCK = "requirements/sandbox.lock"
# Wheels of a hundred packages are fetched and unpacked; in between the engine says nothing for minutes.
SILENCE_LIMIT_S = 1_800.0

_PACKAGE = Path(__file__).parent
_CHECKOUT = _PACKAGE.parent
_INSTALLED = _PACKAGE / "image"
"""Where `pyproject.toml` puts into the wheel what lies beside the package in a checkout."""


def context_files() -> dict[str, Path]:
    """What the image is built of, by its name in the build: from the checkout, or from the package."""
    agent = {
        f"sandbox/agent/{path.name}": path
        for path in sorted((_PACKAGE / "agent").iterdir())
        if path.is_file()
    }
    beside = (_CHECKOUT / DOCKERFILE).is_file() and (_CHECKOUT / LOCK).is_file()
    files = {
        name: (_CHECKOUT / name if beside else _INSTALLED / Path(name).name) for name in (DOCKERFILE, LOCK)
    }
    return {**files, **agent}


def build_image(
    api: docker.APIClient,
    tag: str,
    said: Callable[[str], None],
    *,
    base_image: str | None = None,
) -> None:
    """Build the image and give what the engine says to `said`, line by line. Blocking, bounded by silence."""
    try:
        answers = api.build(
            fileobj=_context(),
            custom_context=True,
            dockerfile=DOCKERFILE,
            tag=tag,
            rm=True,
            forcerm=True,
            decode=True,
            buildargs={} if base_image is None else {"BASE_IMAGE": base_image},
            timeout=int(SILENCE_LIMIT_S),
        )
        for answer in answers:
            _pass_on(answer, said)
    except (DockerException, *TRANSPORT_ERRORS) as error:
        raise SandboxPrerequisiteError(
            f"the sandbox image cannot be built: {error}", remedy="look at the Docker engine's own log"
        ) from error


def _pass_on(answer: dict[str, Any], said: Callable[[str], None]) -> None:
    if "error" in answer:
        raise SandboxPrerequisiteError(
            f"the sandbox image cannot be built: {str(answer['error']).strip()}",
            remedy="the lines before say at which step; the build needs the network for its packages",
        )
    for line in str(answer.get("stream") or "").splitlines():
        if line.strip():
            said(line)


def _context() -> io.BytesIO:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, path in context_files().items():
            archive.add(path, name, filter=_nobodys)
    packed.seek(0)
    return packed


def _nobodys(info: tarfile.TarInfo) -> tarfile.TarInfo:
    """Without owner and time, so that the engine's cache knows the file again wherever it was installed."""
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    info.mtime = 0
    return info
