"""What must be there before the first command: an engine that answers us, and an image with our agent.

Each way in which it is not there has its own message, since each has its own remedy.
"""

from __future__ import annotations

import os
import socket
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import docker
from docker.errors import DockerException, ImageNotFound

from sandbox.engine import LABEL_ROLE, LABEL_RUN, TRANSPORT_ERRORS, remove_container, translated
from sandbox.errors import SandboxError, SandboxPrerequisiteError
from sandbox.frames import AGENT_LABEL, AGENT_PROTOCOL
from sandbox.policy import Policy

DEFAULT_URL = "unix:///var/run/docker.sock"
BUILD_REMEDY = "`recount sandbox build`, or in a checkout `docker compose build sandbox`"
CONNECT_TIMEOUT_S = 10.0
CONNECTION_POOL = 64
# SHA-256 over the image's packages, written at its build: images built twice differ in digest, not in this.
CONTENTS_PATH = "/usr/local/share/recount/contents.sha256"
ROLE_PROBE = "probe"

# Known to add nothing of the host's to a container.
ISOLATING_RUNTIMES = frozenset(
    ("runc", "io.containerd.runc.v2", "io.containerd.runtime.v1.linux", "crun", "youki", "runsc")
)
FALLBACK_RUNTIME = "runc"
DEVICE_RUNTIME = "nvidia"


@dataclass(frozen=True)
class EngineFacts:
    """What preflight learned. `host_options` go to every container, whatever the policy."""

    identity: dict[str, str]
    remaps_users: bool
    host_options: dict[str, Any]
    host_bytes: int
    cores: int


def connect(base_url: str | None = None, *, timeout_s: float = 60.0) -> docker.APIClient:
    """A client of the engine, known to answer. Blocking, bounded."""
    url = base_url or os.environ.get("DOCKER_HOST") or DEFAULT_URL
    if url.startswith("unix://"):
        _check_socket(url.removeprefix("unix://"))
    try:
        return docker.APIClient(
            base_url=url, version="auto", timeout=int(timeout_s), max_pool_size=CONNECTION_POOL
        )
    except (DockerException, *TRANSPORT_ERRORS) as error:
        raise SandboxPrerequisiteError(
            f"the Docker engine does not answer on {url}: {error}",
            remedy="start it, or point DOCKER_HOST at one",
        ) from error


def inspect_engine(api: docker.APIClient, policy: Policy, run_id: str) -> EngineFacts:
    """Check image, agent and runtime against the policy, and say what they are. Blocking, bounded."""
    info = translated("asking the engine about itself", api.info)
    version = translated("asking the engine for its version", api.version)
    image = _inspect_image(api, policy.image)
    runtime = choose_runtime(policy, info)
    check_cgroup_parent(policy, info)
    security = [str(option) for option in info.get("SecurityOptions") or ()]
    identity = {
        "kind": "docker",
        "image": policy.image,
        "image_id": str(image["Id"]),
        "image_contents_sha256": _contents_digest(api, str(image["Id"]), run_id),
        "agent_protocol": str(AGENT_PROTOCOL),
        "policy": policy.name,
        "policy_sha256": policy.digest(),
        "engine_version": str(version.get("Version", "")),
        "api_version": str(version.get("ApiVersion", "")),
        "runtime": runtime,
        "cgroup_version": str(info.get("CgroupVersion", "")),
        "kernel": str(info.get("KernelVersion", "")),
        "architecture": str(info.get("Architecture", "")),
        "security_options": " ".join(security),
    }
    remaps = any("userns" in option or "rootless" in option for option in security)
    return EngineFacts(
        identity,
        remaps,
        host_options(info, runtime),
        host_bytes=int(info.get("MemTotal") or 0),
        cores=int(info.get("NCPU") or 1),
    )


def choose_runtime(policy: Policy, info: Mapping[str, Any]) -> str:
    """The runtime that containers get, named explicitly.

    GPU nodes often have one as default that mounts the host's drivers and devices into every container; a
    sandbox never gets those, so a default that is not known to isolate and no more gives way to runc.
    """
    runtimes = sorted(info.get("Runtimes") or {})
    wanted = policy.runtime
    if wanted is None:
        default = str(info.get("DefaultRuntime") or "")
        if default in ISOLATING_RUNTIMES:
            return default
        if FALLBACK_RUNTIME not in runtimes:
            raise SandboxPrerequisiteError(
                f"the engine's default runtime {default!r} is not known to isolate, and it has no"
                f" {FALLBACK_RUNTIME}",
                remedy=f"set the policy's runtime to one of {', '.join(runtimes)}",
            )
        return FALLBACK_RUNTIME
    if DEVICE_RUNTIME in wanted.lower():
        raise SandboxPrerequisiteError(
            f"the policy's runtime {wanted!r} brings the host's GPUs into the container",
            remedy=f"leave the policy's runtime out, or set {FALLBACK_RUNTIME}",
        )
    if wanted not in runtimes:
        raise SandboxPrerequisiteError(
            f"the Docker engine has no runtime {wanted!r} (it has {', '.join(runtimes)})",
            remedy="install it, or leave the policy's runtime out",
        )
    return wanted


def check_cgroup_parent(policy: Policy, info: Mapping[str, Any]) -> None:
    """Refuse a parent that the engine's cgroup driver would refuse only when a container starts."""
    parent = policy.cgroup_parent
    if parent is None or info.get("CgroupDriver") != "systemd":
        return
    if "/" in parent or not parent.endswith(".slice"):
        raise SandboxPrerequisiteError(
            f"the policy's cgroup_parent {parent!r} is no slice, and the engine's groups are systemd's",
            remedy="name a slice without a path, such as recount.slice",
        )


def host_options(info: Mapping[str, Any], runtime: str) -> dict[str, Any]:
    """What depends on the engine. Under cgroup 2 a namespace of their own hides the host's groups."""
    options: dict[str, Any] = {"runtime": runtime}
    if str(info.get("CgroupVersion", "")) == "2":
        options["cgroupns"] = "private"
    return options


def _check_socket(path: str) -> None:
    """Connect once by hand: the SDK's errors do not tell a missing engine from a missing permission."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(CONNECT_TIMEOUT_S)
        try:
            probe.connect(path)
        except PermissionError as error:
            raise SandboxPrerequisiteError(
                f"no permission to use the Docker engine's socket {path}",
                remedy="join the group that owns it (mostly `sudo usermod -aG docker $USER`, then log in"
                " again), or run as root",
            ) from error
        except OSError as error:
            raise SandboxPrerequisiteError(
                f"the Docker engine does not answer on {path}: {error.strerror or error}",
                remedy="start it, or point DOCKER_HOST at one",
            ) from error


def _inspect_image(api: docker.APIClient, name: str) -> dict[str, Any]:
    try:
        image: dict[str, Any] = api.inspect_image(name)  # type: ignore[no-untyped-call] # the stubs leave it out
    except ImageNotFound as error:
        raise SandboxPrerequisiteError(
            f"the sandbox image {name} is not on this engine", remedy=BUILD_REMEDY
        ) from error
    except (DockerException, *TRANSPORT_ERRORS) as error:
        raise SandboxPrerequisiteError(
            f"the sandbox image {name} cannot be looked at: {error}", remedy=BUILD_REMEDY
        ) from error
    label = ((image.get("Config") or {}).get("Labels") or {}).get(AGENT_LABEL)
    if label is None:
        raise SandboxPrerequisiteError(
            f"the image {name} holds no sandbox agent (it has no label {AGENT_LABEL})",
            remedy=f"name an image built from Dockerfile.sandbox: {BUILD_REMEDY}",
        )
    if label != str(AGENT_PROTOCOL):
        raise SandboxPrerequisiteError(
            f"the agent in {name} speaks version {label}, this program {AGENT_PROTOCOL}", remedy=BUILD_REMEDY
        )
    return image


def _contents_digest(api: docker.APIClient, image: str, run_id: str) -> str:
    """Read the digest out of a container that is created and never started; empty if there is none."""
    labels = {LABEL_RUN: run_id, LABEL_ROLE: ROLE_PROBE}
    created = translated(
        "creating a container",
        lambda: api.create_container(image, labels=labels, network_disabled=True, use_config_proxy=False),
    )
    try:
        archive = translated(
            "reading the image", lambda: b"".join(api.get_archive(created["Id"], CONTENTS_PATH)[0])
        )
        with tarfile.open(fileobj=BytesIO(archive)) as tar:
            member = tar.extractfile(tar.getmembers()[0])
            return "" if member is None else member.read(64).decode("ascii", "replace")
    except (SandboxError, tarfile.TarError):
        return ""
    finally:
        translated("removing a container", lambda: remove_container(api, created["Id"]))
