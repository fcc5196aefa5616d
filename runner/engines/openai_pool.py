"""The servers behind the openai engine: which is asked, how long, how often, and whose fault a failure is.

The API key comes from the environment alone; it is neither logged nor journaled, nor shown where a server
quotes it.
"""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Any, TypeVar

import anyio
import httpx
from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception_type,
    stop_after_attempt,
    stop_after_delay,
    wait_random_exponential,
)

from runner.engines.base import EngineUnavailableError, PromptTooLongError, RequestRefusedError
from runner.engines.openai_wire import Blame, MalformedReplyError, blame, read_error_message
from runner.errors import UserError

CONNECT_TIMEOUT_S = 10.0
PROBE_TIMEOUT_S = 10.0
MAX_RETRY_AFTER_S = 120.0
AVOID_S = 1.0
MAX_AVOID_S = 60.0
"""A server that failed is avoided while another works: this long, doubled with every failure in a row."""

JSON_HEADERS = {"Content-Type": "application/json"}
MAX_ANSWER_BYTES = 16 * 1024 * 1024
"""Largest answer that is read: many times a turn's, or a long prompt's list of tokens."""
MAX_MESSAGE_CHARS = 1000
"""How much of a server's own words is kept; they go into journals and results."""

T = TypeVar("T")


@dataclass(frozen=True)
class OpenAISettings:
    """Where the model is served and how patient to be.

    `base_urls` end in `/v1` as OpenAI clients have it. `omit_parameters` names request fields that the
    server does not know; every one of them is a deviation.
    """

    model: str
    base_urls: tuple[str, ...]
    context_tokens: int
    api_key_env: str = "OPENAI_API_KEY"
    request_timeout_s: float = 1800.0
    attempts: int = 6
    retry_for_s: float = 3600.0
    backoff_cap_s: float = 60.0
    omit_parameters: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Answer:
    """An HTTP answer, read whole. `payload` is its JSON, or its text where it is none."""

    status_code: int
    payload: object
    retry_after_s: float | None = None

    @property
    def is_success(self) -> bool:
        """Say whether the status is one of the 200s."""
        return 200 <= self.status_code < 300


class AnswerTooLargeError(httpx.RequestError):
    """A server sent more than any answer to a request of ours can hold."""


@dataclass
class Endpoint:
    """One server. `avoided_until` is on the monotonic clock."""

    url: str
    under_way: int = 0
    failures_in_a_row: int = 0
    avoided_until: float = 0.0
    tokenizes: bool = False

    def failed(self, wait_s: float | None = None) -> None:
        """Avoid this server for a while, at least as long as it asked for."""
        backoff_s = min(AVOID_S * 2.0 ** min(self.failures_in_a_row, 10), MAX_AVOID_S)
        self.failures_in_a_row += 1
        self.avoided_until = monotonic() + max(backoff_s, wait_s or 0.0)

    def answered(self) -> None:
        """Forget earlier failures."""
        self.failures_in_a_row, self.avoided_until = 0, 0.0

    @property
    def root(self) -> str:
        """vLLM's own routes stand beside `/v1`, not below it."""
        return self.url.removesuffix("/v1")


class _RetryableError(Exception):
    """One more try may succeed; `wait_s` is what the server asked for."""

    def __init__(self, message: str, wait_s: float | None = None) -> None:
        super().__init__(message)
        self.wait_s = wait_s


class ServerPool:
    """Posts to the least loaded of several servers that work, with bounded retries."""

    def __init__(self, settings: OpenAISettings) -> None:
        """Raise `UserError` for an address that is none. Nothing is contacted."""
        for url in settings.base_urls:
            _check_address(url, settings.api_key_env)
        self._settings = settings
        self._key = ""
        self._client: httpx.AsyncClient | None = None
        self.endpoints = [Endpoint(url.rstrip("/")) for url in settings.base_urls]

    def open(self) -> bool:
        """Make ready to ask; say whether that was still to do."""
        if self._client is not None:
            return False
        self._key = _read_key(self._settings.api_key_env)
        self._client = httpx.AsyncClient(
            headers={"Authorization": f"Bearer {self._key}"} if self._key else {},
            timeout=httpx.Timeout(self._settings.request_timeout_s, connect=CONNECT_TIMEOUT_S),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=None),
            follow_redirects=False,
        )
        return True

    async def close(self) -> None:
        """Close all connections."""
        if self._client is not None:
            client, self._client = self._client, None
            await client.aclose()

    @property
    def _http(self) -> httpx.AsyncClient:
        if self._client is None:
            raise EngineUnavailableError("the engine was not started")
        return self._client

    async def probe(self, address: str, body: dict[str, Any] | None = None) -> Answer:
        """Ask one address once, with GET or with POST of a body. Raises `httpx.HTTPError`."""
        content = None if body is None else encode(body)
        return await self._ask(address, content, httpx.Timeout(PROBE_TIMEOUT_S))

    async def _ask(self, address: str, content: bytes | None, patience: httpx.Timeout) -> Answer:
        """Ask once and read the answer; what it may hold is bounded, since a proxy can send anything."""
        method, headers = ("GET", None) if content is None else ("POST", JSON_HEADERS)
        body = bytearray()
        async with self._http.stream(
            method, address, content=content, headers=headers, timeout=patience
        ) as response:
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > MAX_ANSWER_BYTES:
                    raise AnswerTooLargeError(f"more than {MAX_ANSWER_BYTES} bytes")
        return Answer(response.status_code, _json_or_text(bytes(body)), _retry_after_s(response))

    def error_of(self, payload: object) -> tuple[str, str]:
        """Return type and message of an error answer, cut, and without the key, which servers quote."""
        kind, message = (self._without_key(text) for text in read_error_message(payload))
        return kind[:MAX_MESSAGE_CHARS], message[:MAX_MESSAGE_CHARS]

    def _without_key(self, text: str) -> str:
        return text.replace(self._key, "[API key]") if self._key else text

    async def post(
        self, path: str, body: dict[str, Any], read: Callable[[object], T], *, beside_v1: bool = False
    ) -> tuple[str, T]:
        """POST with bounded retries; return who answered, and what `read` made of it."""
        settings = self._settings
        content = encode(body)
        tries = 0
        try:
            async for attempt in AsyncRetrying(
                retry=retry_if_exception_type(_RetryableError),
                stop=stop_after_attempt(settings.attempts) | stop_after_delay(settings.retry_for_s),
                wait=_wait_as_asked(settings.backoff_cap_s),
                sleep=anyio.sleep,
                reraise=True,
            ):
                with attempt:
                    tries += 1
                    return await self._post(path, content, read, beside_v1=beside_v1)
        except _RetryableError as error:
            raise EngineUnavailableError(f"{error} (tried {tries} times)") from error
        raise EngineUnavailableError(f"{path}: not tried")  # pragma: no cover - the loop returns or raises

    async def _post(
        self, path: str, content: bytes, read: Callable[[object], T], *, beside_v1: bool
    ) -> tuple[str, T]:
        """POST once, at the least loaded server of those that work."""
        now = monotonic()
        endpoint = min(
            self.endpoints,
            key=lambda one: (one.avoided_until > now, one.under_way),
        )
        address = f"{endpoint.root if beside_v1 else endpoint.url}{path}"
        endpoint.under_way += 1
        try:
            # httpx bounds every read by itself; a server that sends a byte now and then passes those.
            with anyio.fail_after(self._settings.request_timeout_s):
                answer = await self._ask(address, content, self._http.timeout)
        except TimeoutError as error:
            endpoint.failed()
            limit_s = self._settings.request_timeout_s
            raise _RetryableError(f"{address}: no whole answer within {limit_s:g} s") from error
        except httpx.HTTPError as error:
            endpoint.failed()
            raise _RetryableError(f"{address}: {describe(error)}") from error
        finally:
            endpoint.under_way -= 1
        if answer.status_code != 200:
            raise self._failure(endpoint, address, answer)
        try:
            reply = read(answer.payload)
        except MalformedReplyError as error:
            endpoint.failed()
            raise _RetryableError(f"{address}: {error}") from error
        endpoint.answered()
        return endpoint.url, reply

    def _failure(self, endpoint: Endpoint, address: str, answer: Answer) -> Exception:
        kind, message = self.error_of(answer.payload)
        verdict = blame(answer.status_code, answer.payload)
        if verdict in {Blame.PROMPT_TOO_LONG, Blame.REFUSED}:
            endpoint.answered()
        if verdict is Blame.PROMPT_TOO_LONG:
            return PromptTooLongError(message)
        if verdict is Blame.REFUSED:
            return RequestRefusedError(f"{kind}: {message}")
        text = f"{address}: HTTP {answer.status_code}: {message}"
        if verdict is Blame.MISCONFIGURED:
            endpoint.failed()
            return EngineUnavailableError(text, remedy="check the model's name, the address and the API key")
        endpoint.failed(answer.retry_after_s)
        # Where another server can take the next try there is nothing to wait for.
        now = monotonic()
        elsewhere = any(one.avoided_until <= now for one in self.endpoints)
        return _RetryableError(text, 0.0 if elsewhere else answer.retry_after_s)


def encode(body: dict[str, Any]) -> bytes:
    """Encode as ASCII JSON: a lone surrogate in an observation stays an escape and cannot break the body."""
    return json.dumps(body).encode("ascii")


def _check_address(url: str, api_key_env: str) -> None:
    try:
        parsed = httpx.URL(url)
    except (httpx.InvalidURL, ValueError) as error:
        raise UserError(f"engine.base_urls: {url!r}: {error}", remedy="write http://HOST:PORT/v1") from error
    if parsed.userinfo:
        # Not quoted: addresses stand in the journal, and so would the password.
        raise UserError(
            f"engine.base_urls: the address of {parsed.host} holds a user or a password",
            remedy=f"put the key into the environment variable {api_key_env}",
        )
    if parsed.scheme not in {"http", "https"} or not parsed.host:
        raise UserError(f"engine.base_urls: {url!r} is no http address", remedy="write http://HOST:PORT/v1")


def _read_key(variable: str) -> str:
    """Return the API key, or nothing; never quote it, since what a header refuses would be shown."""
    key = os.environ.get(variable, "").strip()
    if not key.isascii() or not key.isprintable():
        raise UserError(
            f"the environment variable {variable} holds no API key: some of its characters cannot stand in a"
            " header",
            remedy="copy the key again, without line ends or quotes",
        )
    return key


def _json_or_text(body: bytes) -> object:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return body.decode("utf-8", errors="replace")


def describe(error: httpx.HTTPError) -> str:
    """httpx leaves the message of some errors (time-outs) empty."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _retry_after_s(response: httpx.Response) -> float | None:
    """Read `Retry-After` in seconds; its date form is rare among model servers and left to the backoff."""
    try:
        return min(max(float(response.headers["retry-after"]), 0.0), MAX_RETRY_AFTER_S)
    except (KeyError, ValueError):
        return None


class _wait_as_asked:  # noqa: N801 - tenacity's waits are named in lower case
    """Wait as long as the server asked, else exponentially with jitter."""

    def __init__(self, cap_s: float) -> None:
        self._backoff = wait_random_exponential(multiplier=0.5, max=cap_s)

    def __call__(self, state: RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome is not None else None
        if isinstance(error, _RetryableError) and error.wait_s is not None:
            return error.wait_s
        return self._backoff(state)
