"""What an HTTP answer, or its absence, means for a fetch: the file, a wait, or a message with a remedy."""

import email.utils
import re
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import httpx

from runner.artifacts.errors import MissingFileError, TransientError
from runner.errors import UserError

_HTML_BEGINNINGS = (b"<!doctype html", b"<html")
_TRANSIENT_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504})
_SNIFFED_BYTES = 256
_CREDENTIALS = re.compile(r"^([a-zA-Z][a-zA-Z0-9+.-]*://)?.*@", re.DOTALL)
_TRANSPORT_WORDS: tuple[tuple[type[httpx.TransportError], str], ...] = (
    (httpx.ConnectTimeout, "no connection in time"),
    (httpx.ConnectError, "no connection"),
    (httpx.TimeoutException, "the connection stalled"),
    (httpx.ProxyError, "the proxy refused"),
    (httpx.RemoteProtocolError, "the connection was cut"),
    (httpx.NetworkError, "the connection was cut"),
)


@dataclass(frozen=True)
class Remote:
    """Where a file is fetched from. `headers` may carry a token, which no other host is sent."""

    name: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    size_bytes: int | None = None
    remedy_missing: str = "check the repository's name and revision"
    remedy_refused: str = "check that the repository is public"


def check_status(response: httpx.Response, remote: Remote) -> None:
    """Raise what this status means; a page instead of a file is no answer either."""
    status = response.status_code
    if status in {200, 206}:
        if response.headers.get("content-type", "").lower().startswith("text/html"):
            raise _page(remote)
        return
    said = response.headers.get("x-error-message", "")
    said = f": {said[:300]}" if said else ""
    if status in {401, 403}:
        gated = response.headers.get("x-error-code") == "GatedRepo"
        what = "is gated: its terms have to be accepted" if gated else "is not open to us"
        raise UserError(
            f"{remote.name} {what} (HTTP {status} from {host_of(remote.url)}{said})",
            remedy=remote.remedy_refused,
        )
    if status in {404, 410}:
        raise MissingFileError(
            f"{remote.name} is not at {shown_url(remote.url)} (HTTP {status}{said})",
            remedy=remote.remedy_missing,
        )
    if status in _TRANSIENT_STATUSES:
        raise TransientError(
            f"the server answers HTTP {status}", retry_after_s=_retry_after_s(response.headers)
        )
    raise UserError(
        f"{remote.name}: HTTP {status} from {shown_url(remote.url)}{said}",
        remedy="check HF_ENDPOINT and the proxy",
    )


def transport_problem(error: httpx.TransportError, remote: Remote) -> Exception:
    causes: list[BaseException] = [error]
    while (inner := causes[-1].__cause__ or causes[-1].__context__) is not None and inner not in causes:
        causes.append(inner)
    if any(isinstance(one, ssl.SSLCertVerificationError) for one in causes):
        return UserError(
            f"{remote.name}: the certificate of {host_of(remote.url)} is not trusted",
            remedy="if a proxy stands in between, name its certificate with SSL_CERT_FILE; check the clock",
        )
    if isinstance(error, httpx.UnsupportedProtocol):
        return UserError(
            f"{remote.name}: {shown_url(remote.url)} is no http address",
            remedy="check HF_ENDPOINT and RECOUNT_GITHUB_RAW",
        )
    if isinstance(error, httpx.LocalProtocolError):
        # What the library says of it may quote a header, and with it the token.
        return UserError(
            f"{remote.name}: the request to {host_of(remote.url)} cannot be sent as it is",
            remedy="check HF_TOKEN, HF_ENDPOINT and RECOUNT_GITHUB_RAW for stray characters",
        )
    what = next((words for kind, words in _TRANSPORT_WORDS if isinstance(error, kind)), type(error).__name__)
    return TransientError(what)


def _page(remote: Remote) -> UserError:
    return UserError(
        f"{remote.name}: an HTML page came instead of the file ({host_of(remote.url)})",
        remedy="a proxy or a login page answers in the server's place: open the address in a browser,"
        " or use --from DIR",
    )


def check_beginning(block: bytes, remote: Remote) -> None:
    beginning = block[:_SNIFFED_BYTES].lstrip().lower()
    if beginning.startswith(_HTML_BEGINNINGS):
        raise _page(remote)


def _retry_after_s(headers: httpx.Headers) -> float | None:
    written = headers.get("retry-after", "").strip()
    if not written:
        return None
    if written.isdigit():
        return float(written)
    try:
        return max(email.utils.parsedate_to_datetime(written).timestamp() - time.time(), 0.0)
    except (ValueError, TypeError):
        return None


def range_start(response: httpx.Response, asked: int) -> int:
    if response.status_code != httpx.codes.PARTIAL_CONTENT:
        return 0
    begins = response.headers.get("content-range", "").removeprefix("bytes ").partition("-")[0]
    if begins != str(asked):
        raise TransientError(f"the server sent another range than was asked for ({begins or 'none'})")
    return asked


def range_total(response: httpx.Response) -> int | None:
    written = response.headers.get("content-range", "").rpartition("/")[2]
    return int(written) if written.isdigit() else None


def whole_size(response: httpx.Response, start: int, expected: int | None) -> int | None:
    total = range_total(response) if response.status_code == httpx.codes.PARTIAL_CONTENT else None
    if total is None:
        length = response.headers.get("content-length", "")
        total = start + int(length) if length.isdigit() else expected
    return total


def unusable(error: httpx.InvalidURL | httpx.TooManyRedirects, remote: Remote) -> UserError:
    """Word an address that leads nowhere; the library's own words may quote a password in it."""
    why = "it redirects on and on" if isinstance(error, httpx.TooManyRedirects) else "it is no valid address"
    return UserError(
        f"{remote.name}: cannot be fetched from {shown_url(remote.url)}: {why}",
        remedy="check HF_ENDPOINT and RECOUNT_GITHUB_RAW",
    )


def shown_url(url: str) -> str:
    """Return an address as it may be printed: without user and password.

    All up to the last @ goes, also where a password with a slash makes it no valid address; in paths of ours
    an @ is quoted.
    """
    return _CREDENTIALS.sub(r"\1", url)


def host_of(url: str) -> str:
    try:
        return httpx.URL(url).netloc.decode("ascii", errors="replace")
    except httpx.InvalidURL:
        return shown_url(url)
