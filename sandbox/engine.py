"""Calls to the Docker engine, each bounded, off the event loop, and with errors of ours.

The SDK blocks, so every call runs in a worker thread under a limiter of its own; the client's time-out
bounds the thread. Cancelling a caller does not abandon a thread: what a call made is known to the caller in
any case.
"""

from __future__ import annotations

import http.client
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import anyio
import anyio.to_thread
import docker
import requests
import urllib3
from docker.errors import APIError, DockerException, ImageNotFound, NotFound

from sandbox.attached import AttachedStream
from sandbox.classify import ContainerState
from sandbox.errors import SandboxError, SandboxInfrastructureError, SandboxPrerequisiteError

LABEL_RUN = "recount.run"
LABEL_WORKSPACE = "recount.workspace"
LABEL_ROLE = "recount.role"

# Short calls (kill, inspect, remove) in flight at once; starts have a limit of their own in the policy.
CONTROL_CALLS = 32

T = TypeVar("T")

# What the SDK and its layers raise when the daemon fails them, besides its own exceptions.
TRANSPORT_ERRORS = (
    requests.exceptions.RequestException,
    urllib3.exceptions.HTTPError,
    http.client.HTTPException,
    OSError,
)


@dataclass(frozen=True)
class ContainerSpec:
    """A container to start: arguments of the SDK's `create_container`, and what it is for."""

    role: str
    config: dict[str, Any]
    host_config: dict[str, Any]


class EngineLoad:
    """How many containers are started, and removed, at once: more are slower for all of them.

    Shared by all sandboxes of a process.
    """

    def __init__(self, concurrent: int) -> None:
        self.starts = anyio.CapacityLimiter(concurrent)
        self.removals = anyio.CapacityLimiter(concurrent)


class Engine:
    """One engine as seen by one client."""

    def __init__(
        self,
        api: docker.APIClient,
        *,
        concurrent_starts: int,
        host_options: Mapping[str, Any] | None = None,
        load: EngineLoad | None = None,
    ) -> None:
        """`host_options` are what this engine needs besides a policy's own (`EngineFacts`).

        `load` is what others share; without it there is one of `concurrent_starts`.
        """
        self.api = api
        self._host_options = dict(host_options or {})
        self._load = load or EngineLoad(concurrent_starts)
        self._control = anyio.CapacityLimiter(CONTROL_CALLS)

    async def call(self, what: str, function: Callable[[], T]) -> T:
        """Run a short blocking call; `what` names it in errors."""
        return await anyio.to_thread.run_sync(lambda: translated(what, function), limiter=self._control)

    async def remove(self, what: str, function: Callable[[], T]) -> T:
        """Run a blocking removal that nobody waits for."""
        return await anyio.to_thread.run_sync(lambda: translated(what, function), limiter=self._load.removals)

    async def launch(self, spec: ContainerSpec) -> tuple[str, AttachedStream]:
        """Create, attach, start, in this order: what the agent says first is not missed."""
        return await anyio.to_thread.run_sync(lambda: self._launch(spec), limiter=self._load.starts)

    async def kill(self, container_id: str) -> None:
        """Remove a container with everything that runs in it; returns when it is gone."""
        await self.call("removing a container", lambda: remove_container(self.api, container_id))

    async def state(self, container_id: str) -> ContainerState | None:
        """What the engine knows of a container; None if nothing."""

        def inspect() -> ContainerState | None:
            try:
                state = self.api.inspect_container(container_id)["State"]
            except NotFound:
                return None
            return ContainerState(
                running=bool(state.get("Running")),
                oom_killed=bool(state.get("OOMKilled")),
                exit_code=state.get("ExitCode"),
                error=str(state.get("Error") or ""),
            )

        return await self.call("inspecting a container", inspect)

    def _launch(self, spec: ContainerSpec) -> tuple[str, AttachedStream]:
        what = f"starting a sandbox container ({spec.role})"
        options = self._host_options | spec.host_config
        host_config = translated(what, lambda: self.api.create_host_config(**options))
        created = translated(
            what,
            lambda: self.api.create_container(host_config=host_config, use_config_proxy=False, **spec.config),
            creating=True,
        )
        container_id: str = created["Id"]
        stream: AttachedStream | None = None
        try:
            stream = translated(what, lambda: _attach(self.api, container_id))
            translated(what, lambda: self.api.start(container_id))
        except BaseException:
            if stream is not None:
                stream.close()
            _remove_quietly(self.api, container_id)
            raise
        return container_id, stream


def translated(what: str, function: Callable[[], T], *, creating: bool = False) -> T:
    """Call the SDK; its errors become ours, sorted by who can mend them."""
    try:
        return function()
    except ImageNotFound as error:
        raise SandboxPrerequisiteError(
            f"the sandbox image is gone: {error.explanation}", remedy="`recount sandbox build`"
        ) from error
    except APIError as error:
        if creating and error.status_code == http.client.BAD_REQUEST:
            raise SandboxPrerequisiteError(
                f"the Docker engine refuses the sandbox policy: {error.explanation}",
                remedy="change the policy's limits or runtime",
            ) from error
        raise SandboxInfrastructureError(f"{what} failed: {error.explanation}") from error
    except (DockerException, *TRANSPORT_ERRORS) as error:
        raise SandboxInfrastructureError(
            f"{what} failed: {error}", remedy="look at the Docker engine's own log"
        ) from error


def remove_container(api: docker.APIClient, container_id: str) -> None:
    """Remove a container, running or not; one that is gone or going is no error."""
    try:
        api.remove_container(container_id, force=True, v=False)
    except NotFound:
        return
    except APIError as error:
        if error.status_code != http.client.CONFLICT or "already in progress" not in str(error.explanation):
            raise


def remove_volume(api: docker.APIClient, name: str) -> None:
    """Remove a volume; one that is gone is no error, one in use is."""
    try:
        api.remove_volume(name)
    except NotFound:
        return


def _remove_quietly(api: docker.APIClient, container_id: str) -> None:
    """Clean-up under another exception; what it cannot remove, the sweep by label does."""
    try:
        translated("removing a container", lambda: remove_container(api, container_id))
    except SandboxError:
        return


def _attach(api: docker.APIClient, container_id: str) -> AttachedStream:
    """The container's raw stream as a socket of our own.

    The SDK's object owns the HTTP response and closes with it; a duplicate descriptor frees the response and
    its place in the connection pool.
    """
    attached = api.attach_socket(container_id, {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1})
    try:
        duplicate = socket.socket(fileno=os.dup(attached.fileno()))
    finally:
        # Closing the response closes the socket object under it too.
        getattr(attached, "_response", attached).close()
    return AttachedStream(duplicate)
