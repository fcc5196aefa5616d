"""Fetching one file over HTTP: tried again, resumed where it stopped, never spliced of two versions.

Bytes go into `NAME.part`, which outlives cut connections, full disks and Ctrl-C. What identifies the remote
file (its address and ETag) lies beside it.
"""

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import anyio
import httpx
from anyio.to_thread import run_sync
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type

from runner.artifacts.answers import (
    Remote,
    check_beginning,
    check_status,
    host_of,
    range_start,
    range_total,
    shown_url,
    transport_problem,
    unusable,
    whole_size,
)
from runner.artifacts.errors import AGAIN, TransientError
from runner.artifacts.files import (
    BLOCK_BYTES,
    check_space,
    close_part,
    discard_part,
    open_part,
    part_of,
    size_of,
    tag_of,
    write_block,
    write_here,
)
from runner.artifacts.progress import FetchListener, Meter, Phase
from runner.artifacts.settings import FetchSettings
from runner.errors import InfrastructureError, UserError

_ResultT = TypeVar("_ResultT")


def new_client(settings: FetchSettings) -> httpx.AsyncClient:
    """Return a client that follows redirects (tokens stay with their host) and waits with bounds."""
    return httpx.AsyncClient(
        follow_redirects=True,
        max_redirects=10,
        timeout=httpx.Timeout(settings.read_timeout_s, connect=settings.connect_timeout_s),
        limits=httpx.Limits(max_connections=settings.at_once + 2),
        headers={"User-Agent": "recount", "Accept-Encoding": "identity"},
    )


async def download(
    client: httpx.AsyncClient,
    remote: Remote,
    path: Path,
    *,
    settings: FetchSettings,
    listener: FetchListener,
) -> Path:
    """Bring all of a remote file into `path`'s part and return that; tries again as long as it gets on.

    Raises `UserError` for what the user can mend, `InfrastructureError` where network or server stay broken.
    """
    meter = Meter(listener, remote.name, Phase.FETCHING, remote.size_bytes)
    tries = _Tries(settings, remote, listener.note)

    async def attempt() -> Path:
        before = size_of(part_of(path))
        try:
            return await _attempt(client, remote, path, meter)
        finally:
            tries.count(size_of(part_of(path)) - before)

    return await tries.run(attempt)


async def fetch_json(
    client: httpx.AsyncClient, remote: Remote, *, settings: FetchSettings, listener: FetchListener
) -> object:
    """Return a small JSON document, with the same patience as for files."""
    tries = _Tries(settings, remote, listener.note)

    async def attempt() -> object:
        tries.count(0)
        return await _json(client, remote)

    return await tries.run(attempt)


class _Tries:
    """Counts the tries in vain; one that gained bytes begins a new count."""

    def __init__(self, settings: FetchSettings, remote: Remote, note: Callable[[str], None]) -> None:
        self._settings, self._remote, self._note = settings, remote, note
        self._in_vain = 0

    async def run(self, attempt: Callable[[], Awaitable[_ResultT]]) -> _ResultT:
        """Try until it succeeds, fails for good, or too many tries in a row gained nothing."""
        retrying = AsyncRetrying(
            retry=retry_if_exception_type(TransientError),
            stop=self._exhausted,
            wait=self._wait_s,
            before_sleep=self._say,
            sleep=anyio.sleep,
            reraise=True,
        )
        try:
            return await retrying(attempt)
        except TransientError as error:
            host = host_of(self._remote.url)
            raise InfrastructureError(
                f"{self._remote.name}: {error.what} ({self._in_vain} tries, {host})",
                remedy=f"check network, proxy and {host}, then {AGAIN}; without network: --from DIR",
            ) from error

    def count(self, gained_bytes: int) -> None:
        """Count a try and what it gained."""
        self._in_vain = 1 if gained_bytes > 0 else self._in_vain + 1

    def _exhausted(self, state: RetryCallState) -> bool:
        del state
        return self._in_vain >= self._settings.attempts

    def _wait_s(self, state: RetryCallState) -> float:
        wished = _error(state).retry_after_s
        own = min(self._settings.wait_s * 2 ** (max(self._in_vain, 1) - 1), self._settings.wait_cap_s)
        return own if wished is None else wished

    def _say(self, state: RetryCallState) -> None:
        error = _error(state)
        wait_s = state.next_action.sleep if state.next_action else 0.0
        if wait_s > self._settings.longest_retry_after_s:
            raise InfrastructureError(
                f"{self._remote.name}: {error.what}, and asks for a wait of {wait_s:.0f} s",
                remedy=f"wait that long, then {AGAIN}",
            )
        self._note(f"{self._remote.name}: {error.what}; again in {wait_s:.1f} s")


def _error(state: RetryCallState) -> TransientError:
    raised = state.outcome.exception() if state.outcome is not None else None
    return raised if isinstance(raised, TransientError) else TransientError("failed")


async def _attempt(client: httpx.AsyncClient, remote: Remote, path: Path, meter: Meter) -> Path:
    part = part_of(path)
    have = await run_sync(_resumable, path, remote.url)
    headers = dict(remote.headers)
    if have.bytes:
        headers["Range"] = f"bytes={have.bytes}-"
        if have.tag:
            headers["If-Range"] = have.tag
    try:
        async with client.stream("GET", remote.url, headers=headers) as response:
            if response.status_code == httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE and have.bytes:
                if range_total(response) == have.bytes:
                    return part
                await run_sync(discard_part, path)
                raise TransientError("what was here is longer than the file; begun again")
            check_status(response, remote)
            start = range_start(response, have.bytes)
            total = whole_size(response, start, remote.size_bytes)
            if total is not None:
                await run_sync(check_space, path.parent, total - start)
            if start == 0:
                await run_sync(_begin, path, remote.url, response.headers.get("etag"))
            meter.restart(start, total)
            await _receive(response, part, append=start > 0, meter=meter, remote=remote)
    except httpx.TransportError as error:
        raise transport_problem(error, remote) from error
    except (httpx.InvalidURL, httpx.TooManyRedirects) as error:
        raise unusable(error, remote) from error
    size = size_of(part)
    if total is not None and size < total:
        raise TransientError(f"cut short at {size} of {total} bytes")
    return part


async def _receive(
    response: httpx.Response, part: Path, *, append: bool, meter: Meter, remote: Remote
) -> None:
    beginning = not append
    file = await open_part(part, append=append)
    pending = bytearray()
    try:
        # Not in blocks of httpx's: those that are not full would be lost with the connection.
        async for chunk in response.aiter_bytes():
            if beginning:
                check_beginning(chunk, remote)
                beginning = False
            pending += chunk
            if len(pending) >= BLOCK_BYTES:
                block, pending = bytes(pending), bytearray()
                await write_block(file, block, part)
            meter.advance(len(chunk))
    finally:
        await close_part(file, part, bytes(pending))


async def _json(client: httpx.AsyncClient, remote: Remote) -> object:
    try:
        response = await client.get(remote.url, headers=dict(remote.headers))
    except httpx.TransportError as error:
        raise transport_problem(error, remote) from error
    except (httpx.InvalidURL, httpx.TooManyRedirects) as error:
        raise unusable(error, remote) from error
    check_status(response, remote)
    try:
        return json.loads(response.content)
    except ValueError as error:
        raise UserError(
            f"{remote.name}: {host_of(remote.url)} answered something that is no JSON",
            remedy="check HF_ENDPOINT, and whether a proxy answers in the server's place",
        ) from error


@dataclass(frozen=True)
class _Have:
    bytes: int
    tag: str | None


def _resumable(path: Path, url: str) -> _Have:
    """Return how much of this very address is here already."""
    size = size_of(part_of(path))
    if not size:
        return _Have(0, None)
    try:
        tag = json.loads(tag_of(path).read_text(encoding="utf-8"))
        same, etag = tag["url"] == shown_url(url), tag["etag"]
    except (OSError, ValueError, KeyError, TypeError):
        return _Have(0, None)
    if not same:
        return _Have(0, None)
    # A weak tag may not be asked for; the address names a commit, and the hash decides in the end.
    return _Have(size, etag if isinstance(etag, str) and not etag.startswith("W/") else None)


def _begin(path: Path, url: str, etag: str | None) -> None:
    # Without credentials: the file may outlive the fetch.
    write_here(tag_of(path), json.dumps({"url": shown_url(url), "etag": etag}), durable=False)
