"""The broker as a service: the only holder of the engine's socket, behind a narrow HTTP interface.

Access is the socket's directory: the broker makes it for its own group alone, and only the runner's
container is in that group. Peer process ids mean nothing across containers.

A lease is a connection. Whether a client ends, is killed, or its container is, the kernel closes the
connection, and what the lease opened is closed with it.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import anyio
from pydantic import BaseModel, ValidationError
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from sandbox.errors import SandboxError
from sandbox.leases import STOP_TIMEOUT_S, Broker, UnknownError, bounded
from sandbox.wire import (
    HEARTBEAT_S,
    MAX_MESSAGE_BYTES,
    MAX_SCRIPT_BYTES,
    MAX_TIMEOUT_S,
    WIRE_VERSION,
    Failure,
    FailureKind,
    Granted,
    Health,
    LeaseRequest,
    Opened,
    OpenRequest,
    ResultMessage,
)

M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")

BODY_TIMEOUT_S = 30.0
# Bodies above a message's size that are held at once; a command waits while others of its size run.
LARGE_BODIES = 4
_STATUS = {FailureKind.REQUEST: 400, FailureKind.PREREQUISITE: 424, FailureKind.INFRASTRUCTURE: 503}
_NOT_FOUND = 404

log = logging.getLogger("recount.broker")


class _RefusedError(Exception):
    """A request that a correct client does not make."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


def create_app(broker: Broker) -> Starlette:
    """Return the HTTP interface to `broker`; leases end when its `stopping` is set."""
    large_bodies = anyio.CapacityLimiter(LARGE_BODIES)

    async def health(_: Request) -> Response:
        return _answer(
            Health(version=WIRE_VERSION, policy_sha256=broker.policy.digest(), leases=broker.leases)
        )

    async def statistics(_: Request) -> Response:
        return _answer(broker.statistics())

    async def end_lease(request: Request) -> Response:
        with bounded(STOP_TIMEOUT_S, "ending a lease"):
            await broker.end(request.path_params["lease"])
        return Response(status_code=204)

    async def open_workspace(request: Request) -> Response:
        asked = await _message(request, OpenRequest)
        name = await _while_connected(
            request, lambda: broker.open(request.path_params["lease"], asked.workspace_id)
        )
        return _answer(Opened(workspace=name))

    async def run(request: Request) -> Response:
        timeout_s = _timeout_s(request)
        lease, workspace = request.path_params["lease"], request.path_params["workspace"]
        broker.check(lease, workspace)
        async with _room_for_body(request, large_bodies):
            script = await _body(request, MAX_SCRIPT_BYTES)
            result = await _while_connected(request, lambda: broker.run(lease, workspace, script, timeout_s))
        return _answer(ResultMessage.model_validate(result))

    async def close_workspace(request: Request) -> Response:
        await broker.close(request.path_params["lease"], request.path_params["workspace"])
        return Response(status_code=204)

    workspace = "/v1/leases/{lease}/workspaces/{workspace}"
    return Starlette(
        routes=[
            Route("/v1/health", _with_failures(health), methods=["GET"]),
            Route("/v1/statistics", _with_failures(statistics), methods=["GET"]),
            Route("/v1/leases", _LeaseEndpoint(broker), methods=["POST"]),
            Route("/v1/leases/{lease}", _with_failures(end_lease), methods=["DELETE"]),
            Route("/v1/leases/{lease}/workspaces", _with_failures(open_workspace), methods=["POST"]),
            Route(f"{workspace}/run", _with_failures(run), methods=["POST"]),
            Route(workspace, _with_failures(close_workspace), methods=["DELETE"]),
        ]
    )


class _LeaseEndpoint:
    """Grants a lease and holds it for as long as the connection stands.

    Raw ASGI, since it has to notice a client that leaves, and the broker's own end, while it has nothing
    to say.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            asked = await _lease_request(Request(scope, receive))
            await self._serve(asked.run_id, receive, send)
        except (SandboxError, _RefusedError, ClientDisconnect) as error:
            await _failure(error)(scope, receive, send)

    async def _serve(self, run_id: str, receive: Receive, send: Send) -> None:
        failure: SandboxError | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_cancel_at_disconnect, receive, tasks.cancel_scope)
            tasks.start_soon(_cancel_at, self._broker.stopping, tasks.cancel_scope)
            try:
                async with self._broker.lease(run_id) as lease:
                    log.info("run %s: lease granted", run_id)
                    tasks.start_soon(_cancel_at, lease.ending, tasks.cancel_scope)
                    try:
                        await _hold(lease.granted, send)
                    finally:
                        log.info("run %s: lease ends", run_id)
            except SandboxError as error:
                log.warning("run %s: %s", run_id, error)
                failure = error
            tasks.cancel_scope.cancel()
        if failure is not None:
            raise failure
        # Where the client is gone, this goes nowhere.
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _lease_request(request: Request) -> LeaseRequest:
    asked = await _message(request, LeaseRequest)
    if asked.version != WIRE_VERSION:
        raise _RefusedError(f"the client speaks version {asked.version}, this broker {WIRE_VERSION}")
    return asked


async def _hold(granted: Granted, send: Send) -> None:
    """Say what was granted, then something now and then, so that a dead broker is noticed by its silence."""
    headers = [(b"content-type", b"application/x-ndjson")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    line = granted.model_dump_json().encode() + b"\n"
    while True:
        await send({"type": "http.response.body", "body": line, "more_body": True})
        line = b"\n"
        await anyio.sleep(HEARTBEAT_S)


async def _cancel_at_disconnect(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue
    scope.cancel()


async def _cancel_at(event: anyio.Event, scope: anyio.CancelScope) -> None:
    await event.wait()
    scope.cancel()


async def _while_connected(request: Request, work: Callable[[], Awaitable[T]]) -> T:
    """Do work for a client that waits for it; one that hangs up has its work cancelled."""
    done: list[T] = []
    failure: Exception | None = None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_cancel_at_disconnect, request.receive, tasks.cancel_scope)
        try:
            done.append(await work())
        except (SandboxError, UnknownError, ValueError) as error:
            failure = error
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure
    if not done:
        raise ClientDisconnect
    return done[0]


def _with_failures(
    endpoint: Callable[[Request], Awaitable[Response]],
) -> Callable[[Request], Awaitable[Response]]:
    """Word what an endpoint raises as a `Failure`."""

    async def guarded(request: Request) -> Response:
        try:
            return await endpoint(request)
        except (SandboxError, UnknownError, _RefusedError, ClientDisconnect, ValueError) as error:
            return _failure(error)

    return guarded


def _failure(error: Exception) -> Response:
    if isinstance(error, SandboxError):
        failure = Failure.of(error)
        return _answer(failure, _STATUS[failure.kind])
    status = error.status if isinstance(error, _RefusedError) else 400
    if isinstance(error, UnknownError):
        status = _NOT_FOUND
    return _answer(Failure(kind=FailureKind.REQUEST, message=str(error) or type(error).__name__), status)


def _answer(message: BaseModel, status: int = 200) -> Response:
    return Response(message.model_dump_json(), status_code=status, media_type="application/json")


async def _message(request: Request, kind: type[M]) -> M:
    body = await _body(request, MAX_MESSAGE_BYTES)
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        raise _RefusedError(f"not a {kind.__name__}: {error.errors()[0]['msg']}") from error


async def _body(request: Request, limit_bytes: int) -> bytes:
    """Read a body of at most `limit_bytes`; more is refused as soon as it shows."""
    body = bytearray()
    with anyio.move_on_after(BODY_TIMEOUT_S) as waiting:
        async for chunk in request.stream():
            body += chunk
            if len(body) > limit_bytes:
                raise _RefusedError(f"the body is longer than {limit_bytes} bytes", status=413)
    if waiting.cancelled_caught:
        raise _RefusedError(f"the body did not come within {BODY_TIMEOUT_S:g} s", status=408)
    return bytes(body)


@asynccontextmanager
async def _room_for_body(request: Request, limiter: anyio.CapacityLimiter) -> AsyncIterator[None]:
    """Bound what the bodies of all clients take together; small ones pass."""
    announced = request.headers.get("content-length", "")
    if announced.isascii() and announced.isdigit() and int(announced) <= MAX_MESSAGE_BYTES:
        yield
        return
    async with limiter:
        yield


def _timeout_s(request: Request) -> float:
    try:
        timeout_s = float(request.query_params["timeout_s"])
    except (KeyError, ValueError) as error:
        raise _RefusedError("timeout_s is missing or no number") from error
    if not 0 < timeout_s <= MAX_TIMEOUT_S:
        raise _RefusedError(f"timeout_s must lie above 0 and at most at {MAX_TIMEOUT_S:g}")
    return timeout_s
