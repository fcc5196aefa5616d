"""What kind of place this is: a machine, or a container; which engines it has, by their sockets. Pure but for
what `Host` reads.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runner.doctor.host import Host
from runner.doctor.report import Finding, failed, ok
from sandbox.preflight import DEFAULT_URL

UNIX = "unix://"
SERVE_THERE = (
    "many rented GPUs are such containers: serve the checkpoint here (`vllm serve`, with Recount installed"
    " beside vLLM for its plugin), and run Recount on a machine that has Docker, with"
    " --engine openai --model NAME --base-url http://THIS-NODE:8000/v1"
)
SELINUX_REMEDY = (
    "SELinux forbids containers the engine's socket: give the brokers of docker-compose.yml"
    " `security_opt: [label=disable]`, and label mounted directories with :z"
)
_CGROUP_OF_A_CONTAINER = re.compile(r"docker|containerd|kubepods|libpod|lxc|garden")
_MARKS = ((".dockerenv", "a Docker container"), ("run/.containerenv", "a Podman container"))
_ROOT = Path("/")


def container_kind(host: Host) -> str | None:
    """Say what kind of container this is, None on a machine of its own."""
    for mark, kind in _MARKS:
        if host.exists(_ROOT / mark):
            return kind
    if "KUBERNETES_SERVICE_HOST" in host.environment:
        return "a Kubernetes pod"
    if host.environment.get("container"):
        return f"a container ({host.environment['container']})"
    found = _CGROUP_OF_A_CONTAINER.search(host.read(_ROOT / "proc/1/cgroup") or "")
    return f"a container ({found.group()})" if found else None


def selinux_enforces(host: Host) -> bool:
    """Say whether SELinux is on and enforcing."""
    return (host.read(_ROOT / "sys/fs/selinux/enforce") or "").strip() == "1"


def engine_address(host: Host) -> str:
    """Return where the Docker engine is looked for."""
    return host.environment.get("DOCKER_HOST") or DEFAULT_URL


def other_sockets(host: Host) -> list[tuple[str, str]]:
    """Return what else might be an engine's socket here: what it is, and where."""
    runtime_dir = Path(host.environment.get("XDG_RUNTIME_DIR") or f"/run/user/{host.uid}")
    known = [
        ("Docker", Path("/var/run/docker.sock")),
        ("rootless Docker", runtime_dir / "docker.sock"),
        ("Docker Desktop", host.home / ".docker/desktop/docker.sock"),
        ("Docker Desktop", host.home / ".docker/run/docker.sock"),
        ("Colima", host.home / ".colima/default/docker.sock"),
        ("rootless Podman", runtime_dir / "podman/podman.sock"),
        ("Podman", Path("/run/podman/podman.sock")),
    ]
    tried = engine_address(host)
    found = [(what, f"{UNIX}{path}") for what, path in known if host.exists(path)]
    context = docker_context(host)
    if context is not None:
        found.insert(0, (f"the Docker context {context[0]!r}", context[1]))
    addresses: dict[str, str] = {}
    for what, address in found:
        if address != tried:
            addresses.setdefault(address, what)
    return [(what, address) for address, what in addresses.items()]


def docker_context(host: Host) -> tuple[str, str] | None:
    """Return the context that the `docker` command uses, and its address; None for the default one."""
    if host.environment.get("DOCKER_HOST"):
        return None  # it wins over contexts
    directory = Path(host.environment.get("DOCKER_CONFIG") or host.home / ".docker")
    name = host.environment.get("DOCKER_CONTEXT") or _json(host, directory / "config.json").get(
        "currentContext"
    )
    if not isinstance(name, str) or name in {"", "default"}:
        return None
    key = hashlib.sha256(name.encode()).hexdigest()
    meta = _json(host, directory / "contexts/meta" / key / "meta.json")
    try:
        address = meta["Endpoints"]["docker"]["Host"]
    except (KeyError, TypeError):
        return None
    return name, str(address)


def _json(host: Host, path: Path) -> Mapping[str, Any]:
    try:
        document = json.loads(host.read(path) or "{}")
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def engine_remedy(host: Host, remedy: str) -> str:
    """Say what to do about an engine that does not answer, as this place suggests."""
    parts = [
        f"{what} is at {address}: export DOCKER_HOST={address}"
        + (f" (for docker compose: DOCKER_SOCKET={address.removeprefix(UNIX)})" if UNIX in address else "")
        for what, address in other_sockets(host)
    ]
    kind = container_kind(host)
    if not parts and kind is not None and not _has_socket(host):
        parts = [f"this node is itself {kind} without Docker; {SERVE_THERE}"]
    else:
        parts.append(remedy)
    if host.exists(Path("/snap/bin/docker")):
        parts.append("Docker comes from snap here: `snap start docker`, `snap connect docker:home`")
    if selinux_enforces(host):
        parts.append(SELINUX_REMEDY)
    return "; ".join(parts)


def _has_socket(host: Host) -> bool:
    """Say whether the engine's address leads anywhere; an engine behind it may still refuse us."""
    address = engine_address(host)
    return not address.startswith(UNIX) or host.exists(Path(address.removeprefix(UNIX)))


def examine_place(host: Host, broker: Path | None) -> Finding:
    """Say what this node is, and fail where no sandbox can come from it."""
    kind = container_kind(host)
    selinux = ", SELinux enforcing" if selinux_enforces(host) else ""
    if kind is None:
        return ok(f"a machine of its own{selinux}")
    if broker is not None:
        return ok(f"{kind}; commands go to a broker{selinux}")
    if _has_socket(host) or other_sockets(host):
        return ok(f"{kind} with an engine's socket{selinux}")
    return failed(f"this node is itself {kind}, and has no Docker", SERVE_THERE)
