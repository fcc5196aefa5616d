"""Where and with what a run takes place: versions, source, GPUs, driver, artifacts. Bounded; fails no run.

What cannot be told is None, with the reason beside it. Each probe runs in a thread of its own and is given up
after `PROBE_TIMEOUT_S`: a driver that hangs must not keep a run from starting.
"""

import importlib.metadata
import os
import platform
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import anyio
from anyio.to_thread import run_sync

from runner import __version__
from runner.artifacts import Artifacts
from runner.engines.vllm.gpu import Driver, Gpu, find_driver, visible_gpus
from runner.events import CODE, ArtifactsRecord, DriverRecord, GpuRecord, ProvenanceRecord, SourceRecord
from runner.groups import first_error_only
from runner.hashing import code_sha256

PROBE_TIMEOUT_S = 5.0
PACKAGES = ("vllm", "torch", "transformers", "ray")
"""Those that the published environment names."""
IMAGE_VARIABLE = "RECOUNT_IMAGE_ID"
"""A container cannot tell its own image: whoever starts it may."""

_ROOT = Path(__file__).resolve().parents[1]
_OUR_SOURCE = ("runner", "sandbox")
_SHOWN_CHARS = 300

T = TypeVar("T")


class NotToldError(Exception):
    """What was asked for cannot be told here; the message is the reason."""


def checkout_source(root: Path = _ROOT) -> SourceRecord:
    """Return the commit that our own source is of, and whether it was changed; raise `NotToldError`."""
    if not (root / ".git").exists():
        raise NotToldError("no checkout: Recount is installed as a package")
    commit = _git(root, "rev-parse", "--verify", "HEAD").strip()
    changed = _git(root, "status", "--porcelain", "--", *_OUR_SOURCE)
    return SourceRecord(commit=commit, dirty=bool(changed.strip()))


def os_name() -> str:
    """Return the operating system's name and release."""
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError) as error:
        raise NotToldError(f"os-release does not tell: {error}") from error


def package_version(name: str) -> str:
    """Return the version of an installed package; raise `NotToldError`."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError as error:
        raise NotToldError("not installed beside the runner") from error


@dataclass(frozen=True)
class Probes:
    """What is asked. Each may raise anything, or never return."""

    package: Callable[[str], str] = package_version
    os_name: Callable[[], str] = os_name
    source: Callable[[], SourceRecord] = checkout_source
    code: Callable[[], str] = code_sha256
    gpus: Callable[[], tuple[Gpu, ...]] = visible_gpus
    driver: Callable[[], Driver | None] = find_driver
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)
    timeout_s: float = PROBE_TIMEOUT_S


async def gather_provenance(
    sandbox: Mapping[str, str], artifacts: Artifacts | None, probes: Probes | None = None
) -> ProvenanceRecord:
    """Return what can be told of this run; `sandbox` is the sandbox's identity."""
    probes = probes or Probes()
    asked = _Asked(probes.timeout_s)
    with first_error_only():
        async with anyio.create_task_group() as tasks:
            for name in PACKAGES:
                tasks.start_soon(asked.ask, f"versions.{name}", lambda name=name: probes.package(name))
            tasks.start_soon(asked.ask, "versions.os", probes.os_name)
            tasks.start_soon(asked.ask, "source", probes.source)
            tasks.start_soon(asked.ask, f"versions.{CODE}", probes.code)
            tasks.start_soon(asked.ask, "gpus", lambda: _gpus(probes.gpus()))
            tasks.start_soon(asked.ask, "driver", lambda: _driver(probes.driver()))
    engine = sandbox.get("engine_version") or None
    image = probes.environment.get(IMAGE_VARIABLE) or None
    asked.note("versions.docker_engine", engine, "the sandbox does not run in a Docker engine")
    asked.note("runner_image", image, f"{IMAGE_VARIABLE} is not set, and a container cannot tell its own")
    asked.note("artifacts", artifacts, "nothing was fetched for this run")
    return ProvenanceRecord(
        versions={
            "recount": __version__,
            CODE: asked.text(f"versions.{CODE}"),
            "python": platform.python_version(),
            "kernel": platform.release(),
            "os": asked.text("versions.os"),
            "docker_engine": engine,
            **{name: asked.text(f"versions.{name}") for name in PACKAGES},
        },
        source=asked.found("source", SourceRecord),
        gpus=asked.gpus(),
        driver=asked.found("driver", DriverRecord),
        runner_image=image,
        artifacts=None if artifacts is None else _artifacts(artifacts),
        not_told=dict(sorted(asked.not_told.items())),
    )


class _Asked:
    """Answers by the name of the field, and why there is none."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._answers: dict[str, object] = {}
        self.not_told: dict[str, str] = {}

    async def ask(self, name: str, probe: Callable[[], object]) -> None:
        self.not_told[name] = f"no answer within {self._timeout_s:g} s"
        with anyio.move_on_after(self._timeout_s):
            try:
                self._answers[name] = await run_sync(probe, abandon_on_cancel=True)
            except NotToldError as error:
                self.not_told[name] = str(error)
            except Exception as error:  # noqa: BLE001 - whatever a probe ran into is a reason, and no more
                self.not_told[name] = f"{type(error).__name__}: {error}"[:_SHOWN_CHARS]
            else:
                del self.not_told[name]

    def note(self, name: str, value: object, why: str) -> None:
        if value is None:
            self.not_told[name] = why

    def text(self, name: str) -> str | None:
        return self.found(name, str)

    def found(self, name: str, kind: type[T]) -> T | None:
        answer = self._answers.get(name)
        return answer if isinstance(answer, kind) else None

    def gpus(self) -> tuple[GpuRecord, ...] | None:
        answer = self.found("gpus", tuple)
        return None if answer is None else tuple(answer)


def _gpus(found: tuple[Gpu, ...]) -> tuple[GpuRecord, ...]:
    return tuple(
        GpuRecord(name=one.name, memory_bytes=one.memory_bytes, capability=one.capability) for one in found
    )


def _driver(found: Driver | None) -> DriverRecord:
    if found is None:
        raise NotToldError("no NVIDIA driver answers here")
    cuda = None if found.cuda is None else ".".join(str(part) for part in found.cuda)
    return DriverRecord(version=found.version, cuda=cuda)


def _artifacts(found: Artifacts) -> ArtifactsRecord:
    return ArtifactsRecord(
        manifest=found.manifest,
        revision=found.revision,
        sha256=dict(found.sha256),
        unverified=found.unverified,
        unpinned=found.unpinned,
        notes=tuple(one for one in found.notes if not one.startswith(("unverified: ", "unpinned: "))),
    )


def _git(root: Path, *arguments: str) -> str:
    """Ask git about the checkout, without its hooks; the checkout may be another user's."""
    try:
        done = subprocess.run(
            [
                *("git", "--no-optional-locks", "-C", str(root)),
                *("-c", f"safe.directory={root}", "-c", "core.fsmonitor=false"),
                *arguments,
            ],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=PROBE_TIMEOUT_S,
            check=False,
        )
    except FileNotFoundError as error:
        raise NotToldError("there is no git to ask") from error
    if done.returncode != 0:
        raise NotToldError(f"git: {done.stderr.strip()[:_SHOWN_CHARS]}")
    return done.stdout
