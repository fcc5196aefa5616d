"""A server on the loopback that plays code host, model hub and the hub's storage, with failures to order.

It speaks HTTP as they do where a client can tell: ranges, If-Range, ETags, the hub's headers and error codes,
relative and absolute redirects. Its storage has a port of its own, so it is another host to a client.
"""

import hashlib
import json
import re
import threading
from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any
from urllib.parse import unquote, urlsplit

from typing_extensions import Self, override

HUB_COMMIT = "5f" * 20
LFS_SUFFIXES = (".safetensors", "tokenizer.json", "replayed_history.json")
PAGE = b"<!DOCTYPE html>\n<html><body>Sign in to the network</body></html>"
_RANGE = re.compile(r"bytes=(\d+)-")


@dataclass(frozen=True)
class Fault:
    """What happens once instead of the right answer.

    `cut_after` hangs up after so many bytes of the body, `hold` stops there until the server is released.
    `ignore_range` answers a range with the whole file.
    """

    status: int = 200
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    cut_after: int | None = None
    hold: bool = False
    ignore_range: bool = False


def too_many(retry_after: str = "0") -> Fault:
    """429 as both hosts send it."""
    return Fault(429, b"slow down", {"Retry-After": retry_after})


def hub_error(status: int, code: str, message: str) -> Fault:
    """An error as the hub words it."""
    return Fault(status, b"", {"X-Error-Code": code, "X-Error-Message": message})


@dataclass(frozen=True)
class Asked:
    """One request: `start` is where its range begins."""

    method: str
    path: str
    headers: Mapping[str, str]

    @property
    def start(self) -> int:
        """The first byte asked for."""
        found = _RANGE.match(self.headers.get("Range", ""))
        return int(found[1]) if found else 0


class ArtifactServer:
    """Runs in threads as a context manager. `hub` and `code` are the two repositories' files."""

    def __init__(
        self,
        hub_repository: str,
        hub: dict[str, bytes],
        code_repository: str,
        code_commit: str,
        code: dict[str, bytes],
    ) -> None:
        """Both dictionaries may be changed while it runs."""
        self.hub_repository, self.hub = hub_repository, hub
        self.code_repository, self.code_commit, self.code = code_repository, code_commit, code
        self.commit = HUB_COMMIT
        self.faults: dict[str, deque[Fault]] = defaultdict(deque)
        """Orders by the end of the file's path; each is used up by one GET that sends or refuses the file."""
        self.asked: list[Asked] = []
        self.held = threading.Event()
        self.release = threading.Event()
        self.answers_html = False
        self.token: str | None = None
        """If set, the hub wants it."""
        self._servers = [_Http(self), _Http(self)]
        self._threads = [
            threading.Thread(target=one.serve_forever, kwargs={"poll_interval": 0.02})
            for one in self._servers
        ]

    @property
    def url(self) -> str:
        """The address of hub and code host."""
        return f"http://127.0.0.1:{self._servers[0].server_address[1]}"

    @property
    def storage_url(self) -> str:
        """The address of the hub's storage."""
        return f"http://127.0.0.1:{self._servers[1].server_address[1]}"

    def environment(self) -> dict[str, str]:
        """The variables that make a client use this server, and be quick about it."""
        return {
            "HF_ENDPOINT": self.url,
            "RECOUNT_GITHUB_RAW": self.url,
            "RECOUNT_FETCH_WAIT_S": "0.01",
            "RECOUNT_FETCH_ATTEMPTS": "3",
        }

    def downloads(self, suffix: str) -> list[Asked]:
        """The requests for bytes of a file, in order; the hub's redirects are not among them."""
        return [
            one
            for one in self.asked
            if one.method == "GET" and one.path.endswith(suffix) and "/resolve/" not in one.path
        ]

    def stop(self) -> None:
        """Stop answering: connections are refused from now on."""
        self.release.set()
        for server, thread in zip(self._servers, self._threads, strict=True):
            server.shutdown()
            server.server_close()
            thread.join()

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._threads[0].is_alive():
            self.stop()

    def fault(self, path: str) -> Fault | None:
        """Use up the first order for this path."""
        for suffix, orders in self.faults.items():
            if path.endswith(suffix) and orders:
                return orders.popleft()
        return None

    def listing(self) -> bytes:
        """What the hub's API says of the revision."""
        siblings: list[dict[str, Any]] = []
        for name, content in self.hub.items():
            one: dict[str, Any] = {"rfilename": name, "size": len(content)}
            if is_large(name):
                one["lfs"] = {"sha256": sha256(content), "size": len(content), "pointerSize": 134}
            siblings.append(one)
        document = {"id": self.hub_repository, "sha": self.commit, "siblings": siblings}
        return json.dumps(document).encode()


def is_large(name: str) -> bool:
    """Say whether the hub keeps a file in its storage."""
    return name.endswith(LFS_SUFFIXES)


def sha256(content: bytes) -> str:
    """Return a hash in hex."""
    return hashlib.sha256(content).hexdigest()


class _Http(ThreadingHTTPServer):
    daemon_threads = False
    request_queue_size = 64

    def __init__(self, artifacts: ArtifactServer) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.artifacts = artifacts

    @override
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that hang up are part of the tests."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 10

    def do_GET(self) -> None:
        """Answer with the body."""
        self._serve()

    def do_HEAD(self) -> None:
        """Answer without it."""
        self._serve()

    @property
    def _artifacts(self) -> ArtifactServer:
        if not isinstance(self.server, _Http):
            raise TypeError("this handler belongs to the server of this file")
        return self.server.artifacts

    def _serve(self) -> None:
        artifacts = self._artifacts
        path = unquote(urlsplit(self.path).path)
        artifacts.asked.append(Asked(self.command, path, dict(self.headers)))
        if artifacts.answers_html:
            self._answer(200, PAGE, {"Content-Type": "text/html; charset=utf-8"})
            return
        api = f"/api/models/{artifacts.hub_repository}/revision/"
        cache = f"/api/resolve-cache/models/{artifacts.hub_repository}/{artifacts.commit}/"
        code = f"/{artifacts.code_repository}/{artifacts.code_commit}/"
        resolve = f"/{artifacts.hub_repository}/resolve/"
        if path.startswith(api):
            self._api(path.removeprefix(api))
        elif path.startswith(resolve):
            revision, _, name = path.removeprefix(resolve).partition("/")
            self._resolve(revision, name)
        elif path.startswith(cache):
            self._file(artifacts.hub.get(path.removeprefix(cache)))
        elif path.startswith("/storage/"):
            self._file(artifacts.hub.get(path.removeprefix("/storage/")))
        elif path.startswith(code):
            self._file(artifacts.code.get(path.removeprefix(code)))
        else:
            self._answer(404, b"404: Not Found")

    def _api(self, revision: str) -> None:
        fault = self._artifacts.fault(unquote(urlsplit(self.path).path))
        if fault is not None:
            self._answer(fault.status, fault.body or b"", fault.headers)
        elif not self._may_read():
            self._refuse()
        elif revision not in {"main", self._artifacts.commit}:
            self._answer(
                404,
                b'{"error":"Invalid rev id"}',
                {"X-Error-Code": "RevisionNotFound", "X-Error-Message": f"Invalid rev id: {revision}"},
            )
        else:
            self._answer(200, self._artifacts.listing(), {"Content-Type": "application/json"})

    def _resolve(self, revision: str, name: str) -> None:
        artifacts = self._artifacts
        content = artifacts.hub.get(name)
        headers = {"X-Repo-Commit": artifacts.commit}
        if not self._may_read():
            self._refuse()
        elif revision not in {"main", artifacts.commit} or content is None:
            code = "RevisionNotFound" if content is not None else "EntryNotFound"
            self._answer(404, b"", headers | {"X-Error-Code": code, "X-Error-Message": "no such file"})
        elif is_large(name):
            linked = {
                "Location": f"{artifacts.storage_url}/storage/{name}?signed=1",
                "X-Linked-Size": str(len(content)),
                "X-Linked-ETag": f'"{sha256(content)}"',
            }
            self._answer(302, b"", headers | linked)
        else:
            etag = {"ETag": f'"{hashlib.sha1(content, usedforsecurity=False).hexdigest()}"'}
            place = f"/api/resolve-cache/models/{artifacts.hub_repository}/{artifacts.commit}/{name}"
            self._answer(307, b"", headers | etag | {"Location": place, "X-Linked-Size": str(len(content))})

    def _may_read(self) -> bool:
        token = self._artifacts.token
        return token is None or self.headers.get("Authorization") == f"Bearer {token}"

    def _refuse(self) -> None:
        message = "Invalid username or password."
        self._answer(401, b"", {"X-Error-Code": "RepoNotFound", "X-Error-Message": message})

    def _file(self, content: bytes | None) -> None:
        fault = self._artifacts.fault(unquote(urlsplit(self.path).path)) if self.command == "GET" else None
        if content is None:
            self._answer(404, b"404: Not Found")
            return
        if fault is not None and fault.status != 200:
            self._answer(fault.status, fault.body or b"", fault.headers)
            return
        if fault is not None and fault.body is not None:
            content = fault.body
        etag = f'"{sha256(content)[:40]}"'
        headers = {
            "ETag": etag,
            "Accept-Ranges": "bytes",
            "X-Repo-Commit": self._artifacts.commit,
            "Content-Type": "application/octet-stream",
        }
        if fault is not None:
            headers |= fault.headers
        asked = _RANGE.match(self.headers.get("Range", ""))
        wanted = self.headers.get("If-Range", etag) == etag
        if asked and wanted and not (fault is not None and fault.ignore_range):
            start = int(asked[1])
            if start >= len(content):
                self._answer(416, b"", {"Content-Range": f"bytes */{len(content)}"})
                return
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
            self._answer(206, content[start:], headers, fault)
        else:
            self._answer(200, content, headers, fault)

    def _answer(
        self, status: int, body: bytes, headers: Mapping[str, str] | None = None, fault: Fault | None = None
    ) -> None:
        self.close_connection = True
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        if self.command == "HEAD":
            return
        if fault is None or fault.cut_after is None:
            self.wfile.write(body)
            return
        self.wfile.write(body[: fault.cut_after])
        self.wfile.flush()
        if fault.hold:
            self._artifacts.held.set()
            self._artifacts.release.wait()

    @override
    def log_message(self, format: str, *args: Any) -> None:
        """Tests say what they saw."""
