"""The sandbox behind a broker: the same interface as in-process, over the broker's Unix socket."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import TypeVar
from urllib.parse import quote

import anyio
import httpx
import tenacity
from anyio.abc import TaskGroup
from pydantic import BaseModel, ValidationError
from typing_extensions import Self, override

from sandbox.errors import SandboxError, SandboxInfrastructureError, SandboxPrerequisiteError
from sandbox.frames import check_script
from sandbox.types import HARMLESS_IDENTITY, ActionResult, Capacity, Sandbox, Workspace
from sandbox.unix_http import BrokenError, UnixHttp, UnreachableError
from sandbox.wire import (
    LEASE_SILENCE_S,
    WIRE_VERSION,
    Failure,
    Granted,
    LeaseRequest,
    Opened,
    OpenRequest,
    ResultMessage,
    Statistics,
)

M = TypeVar("M", bound=BaseModel)

CONNECT_TIMEOUT_S = 10.0
# The broker's own bounds lie below these, so that it is the broker who says what took too long. That it lives
# at all is the lease's to notice, within `LEASE_SILENCE_S`.
GRANT_TIMEOUT_S = 240.0
OPEN_TIMEOUT_S = 1200.0
RUN_EXTRA_S = 2700.0
CLOSE_TIMEOUT_S = 180.0
# Below the broker's, so that it does not hang up under a request.
KEEP_ALIVE_S = 120.0
LET_GO_TIMEOUT_S = 2.0
FIRST_BACKOFF_S = 0.1
LONGEST_BACKOFF_S = 2.0
_NOT_FOUND = 404


class _Held:
    """A lease that stands, and the requests under it; they fail at once when it is lost."""

    def __init__(self, granted: Granted) -> None:
        self.granted = granted
        self.path = f"/v1/leases/{quote(granted.lease)}"
        self.requests: set[anyio.CancelScope] = set()

    def lose(self) -> None:
        for scope in self.requests:
            scope.cancel()


class BrokerSandbox(Sandbox):
    """Workspaces at a broker. Enter it as a context manager, in the task that leaves it."""

    def __init__(self, socket_path: Path, run_id: str, *, wait_s: float = 60.0) -> None:
        """`wait_s` is how long a broker may take to come up, at the start and after it was lost."""
        self.run_id = run_id
        self.capture_bytes = 0
        self._path = socket_path
        self._wait_s = wait_s
        # The lease is a stream, which httpx reads; what happens once an action goes the short way.
        self._http: httpx.AsyncClient | None = None
        self._quick = UnixHttp(socket_path, connect_timeout_s=CONNECT_TIMEOUT_S, keep_alive_s=KEEP_ALIVE_S)
        self._tasks: TaskGroup | None = None
        self._held: _Held | None = None
        self._first: Granted | None = None
        """What the first lease granted; set once there was one."""
        self._lease_changed = anyio.Event()
        self._refused: SandboxError | None = None
        self._last_error: Exception | None = None
        self._leaving = False
        self._lease_let_go = anyio.Event()
        # Cancelling a run must not lose the lease: it is given back, and that is waited for.
        self._keeping = anyio.CancelScope(shield=True)

    @override
    async def __aenter__(self) -> Self:
        self._http = httpx.AsyncClient(
            transport=httpx.AsyncHTTPTransport(
                uds=str(self._path),
                limits=httpx.Limits(
                    max_connections=None, max_keepalive_connections=None, keepalive_expiry=KEEP_ALIVE_S
                ),
            ),
            base_url="http://broker",
            trust_env=False,
        )
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        try:
            self._tasks.start_soon(self._keep_lease, self._http)
            await self._lease()
        except BaseException as error:
            await self._leave(error)
            raise
        return self

    @override
    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Give the lease back; the broker closes and removes everything it has opened."""
        await self._leave(exc)

    @override
    async def close(self) -> None:
        await self._leave(None)

    @override
    async def identity(self) -> dict[str, str]:
        return dict((await self._lease()).granted.identity)

    @override
    async def capacity(self) -> Capacity:
        granted = (await self._lease()).granted
        return Capacity(granted.actions_at_once, granted.workspaces_at_once, granted.notes)

    @override
    async def open(self, workspace_id: str) -> Workspace:
        """Open a workspace at the broker; tried again as long as nothing of the caller's can have run."""
        body = OpenRequest(workspace_id=workspace_id[:256]).model_dump_json().encode()
        async for attempt in tenacity.AsyncRetrying(
            stop=tenacity.stop_after_delay(self._wait_s),
            wait=tenacity.wait_random_exponential(multiplier=0.2, max=LONGEST_BACKOFF_S),
            retry=tenacity.retry_if_exception_type(SandboxInfrastructureError),
            sleep=anyio.sleep,
            reraise=True,
        ):
            with attempt:
                held = await self._lease()
                answer = await self.request(
                    held, "POST", f"{held.path}/workspaces", content=body, timeout_s=OPEN_TIMEOUT_S
                )
                return _BrokerWorkspace(self, held, _parsed(Opened, answer).workspace)
        raise SandboxInfrastructureError("opening a workspace was not tried")  # the loop returns or raises

    async def statistics(self) -> Statistics:
        """Return the broker's own counts."""
        held = await self._lease()
        answer = await self.request(held, "GET", "/v1/statistics", timeout_s=CONNECT_TIMEOUT_S)
        return _parsed(Statistics, answer)

    async def request(
        self,
        held: _Held,
        method: str,
        path: str,
        *,
        timeout_s: float,
        content: bytes = b"",
        command_started: bool = False,
    ) -> bytes:
        """Ask the broker and return the answer's body.

        Raises the error that the broker raised. A broker that cannot be reached has not begun anything;
        one that is lost while it works may have, where `command_started` says so.
        """
        if held is not self._held:
            raise SandboxInfrastructureError(
                "the sandbox broker was lost, and the workspace with it", command_started=command_started
            )
        self._client()
        try:
            with anyio.CancelScope() as scope:
                held.requests.add(scope)
                try:
                    reply = await self._quick.request(method, path, content, timeout_s=timeout_s)
                    return _content(reply.status, reply.body, command_started)
                finally:
                    held.requests.discard(scope)
        except UnreachableError as error:
            raise SandboxInfrastructureError(f"the sandbox broker cannot be reached: {error}") from error
        except BrokenError as error:
            raise SandboxInfrastructureError(
                f"the sandbox broker was lost: {error}", command_started=command_started
            ) from error
        raise SandboxInfrastructureError("the sandbox broker was lost", command_started=command_started)

    async def _lease(self) -> _Held:
        """Return the lease, waiting for it within bounds. Raises what stands in its way."""
        self._client()
        try:
            with anyio.fail_after(self._wait_s):
                while self._held is None:
                    if self._refused is not None:
                        raise self._refused
                    await self._lease_changed.wait()
                return self._held
        except TimeoutError as error:
            message = f"no sandbox broker serves us on {self._path}: {_described(self._last_error)}"
            if self._first is not None:
                raise SandboxInfrastructureError(message) from error
            raise SandboxPrerequisiteError(
                message,
                remedy="start one with `recount broker`, or leave --broker out to use the engine directly",
            ) from error

    async def wait_refused(self) -> SandboxError:
        """Return why, once no lease is asked for any more; nothing is served from then on."""
        while self._refused is None:
            await self._lease_changed.wait()
        return self._refused

    async def _keep_lease(self, http: httpx.AsyncClient) -> None:
        """Keep a lease until leaving, or until one is refused for good."""
        with self._keeping:
            await self._hold_leases(http)
        self._lease_let_go.set()

    async def _hold_leases(self, http: httpx.AsyncClient) -> None:
        """Hold a lease's connection; when it breaks, ask for another until there is one again."""
        backoff_s = FIRST_BACKOFF_S
        while True:
            had_one = False
            try:
                await self._hold_lease(http)
            except (SandboxInfrastructureError, httpx.HTTPError, TimeoutError) as error:
                self._last_error = error
            except SandboxError as error:
                # Not mended by asking again: whoever waits for a lease is told.
                self._refused = error
            finally:
                if self._held is not None:
                    had_one = True
                    self._held.lose()
                    self._held = None
            if self._leaving or self._refused is not None:
                self._announce()
                return
            backoff_s = FIRST_BACKOFF_S if had_one else min(backoff_s * 2, LONGEST_BACKOFF_S)
            await anyio.sleep(backoff_s)

    async def _hold_lease(self, http: httpx.AsyncClient) -> None:
        """Ask for a lease and hold it for as long as the broker is heard; always raises in the end."""
        body = LeaseRequest(version=WIRE_VERSION, run_id=self.run_id).model_dump_json()
        timeout = httpx.Timeout(GRANT_TIMEOUT_S, connect=CONNECT_TIMEOUT_S)
        async with http.stream("POST", "/v1/leases", content=body, timeout=timeout) as response:
            if not response.is_success:
                _content(response.status_code, await response.aread(), command_started=False)
            lines = response.aiter_lines()
            first = await anext(lines, "")
            await self._quick.forget_idle()
            granted = _parsed(Granted, first.encode())
            self._first = self._first or granted
            _check_same(self._first, granted)
            self._held = _Held(granted)
            self.capture_bytes = granted.capture_bytes
            self._announce()
            while True:
                with anyio.move_on_after(LEASE_SILENCE_S) as silence:
                    if await anext(lines, None) is None:
                        raise SandboxInfrastructureError("the sandbox broker ended the lease")
                if silence.cancelled_caught:
                    raise SandboxInfrastructureError(
                        f"the sandbox broker said nothing for {LEASE_SILENCE_S:g} s"
                    )

    def _announce(self) -> None:
        """Wake whoever waits for a lease."""
        self._lease_changed.set()
        self._lease_changed = anyio.Event()

    def _client(self) -> httpx.AsyncClient:
        if self._http is None:
            raise SandboxPrerequisiteError("the sandbox is not started", remedy="use `async with`")
        return self._http

    async def _leave(self, error: BaseException | None) -> None:
        tasks, http = self._tasks, self._http
        self._tasks = self._http = None
        if tasks is None or http is None:
            return
        self._leaving = True
        try:
            with anyio.move_on_after(CLOSE_TIMEOUT_S, shield=True):
                await self._end_lease(http)
        finally:
            self._keeping.cancel()
            tasks.cancel_scope.cancel()
            with anyio.move_on_after(LET_GO_TIMEOUT_S, shield=True):
                await self._quick.forget_idle()
                await http.aclose()
            # A task group wraps what its body raised; it has to see a cancellation only.
            seen = error if isinstance(error, anyio.get_cancelled_exc_class()) else None
            await tasks.__aexit__(type(seen) if seen else None, seen, seen.__traceback__ if seen else None)

    async def _end_lease(self, http: httpx.AsyncClient) -> None:
        """Ask for the end and wait for it: afterwards nothing of this run is left on the engine."""
        if self._held is None:
            return
        try:
            await http.delete(self._held.path, timeout=CLOSE_TIMEOUT_S)
        except httpx.HTTPError:
            # The broker is gone: containers end by themselves, and the next broker sweeps them.
            return
        # The lease's own connection ends now too; cancelling a read that is just being answered would make
        # asyncio complain on stderr.
        with anyio.move_on_after(LET_GO_TIMEOUT_S):
            await self._lease_let_go.wait()


class _BrokerWorkspace(Workspace):
    """A workspace by the names that the broker gave it."""

    def __init__(self, sandbox: BrokerSandbox, held: _Held, workspace: str) -> None:
        self._sandbox = sandbox
        self._held = held
        self._path = f"{held.path}/workspaces/{quote(workspace)}"

    @override
    async def run(self, script: str | bytes, timeout_s: float) -> ActionResult:
        answer = await self._sandbox.request(
            self._held,
            "POST",
            f"{self._path}/run?timeout_s={float(timeout_s)!r}",
            content=check_script(script),
            timeout_s=timeout_s + RUN_EXTRA_S,
            command_started=True,
        )
        return _parsed(ResultMessage, answer, command_started=True).result()

    @override
    async def close(self) -> None:
        try:
            await self._sandbox.request(self._held, "DELETE", self._path, timeout_s=CLOSE_TIMEOUT_S)
        except SandboxError:
            # It went with its lease, or goes with it; the broker removes it in any case.
            return


def _check_same(first: Granted, again: Granted) -> None:
    """Raise where a broker came back as another: a run's commands would not all see the same."""
    then, now = first.identity, again.identity
    # What an engine that just came up could not tell is no difference.
    known = [name for name in sorted(then.keys() & now.keys()) if then[name] and now[name]]
    changed = [
        f"{name}: {then[name]} before, {now[name]} now"
        for name in known
        if name not in HARMLESS_IDENTITY and then[name] != now[name]
    ]
    if changed:
        raise SandboxPrerequisiteError(
            "the sandbox broker came back as another: " + "; ".join(changed),
            remedy="start it again with the image and the policy that the run began with",
        )


def _described(error: Exception | None) -> str:
    """Time-outs of clients have no words of their own."""
    if error is None:
        return "it does not answer"
    return str(error) or f"it does not answer in time ({type(error).__name__})"


def _content(status: int, body: bytes, command_started: bool) -> bytes:
    """Return a success's body or raise what the broker raised.

    A lease or workspace that it does not know was lost with everything in it.
    """
    if httpx.codes.is_success(status):
        return body
    try:
        failure = Failure.model_validate_json(body)
    except ValidationError as error:
        raise SandboxInfrastructureError(
            f"the sandbox broker answered HTTP {status}", command_started=command_started
        ) from error
    if status == _NOT_FOUND:
        raise SandboxInfrastructureError(failure.message, command_started=command_started)
    raise failure.error()


def _parsed(kind: type[M], answer: bytes, *, command_started: bool = False) -> M:
    try:
        return kind.model_validate_json(answer)
    except ValidationError as error:
        raise SandboxInfrastructureError(
            f"the sandbox broker's answer is no {kind.__name__}: {error.errors()[0]['msg']}",
            command_started=command_started,
        ) from error
