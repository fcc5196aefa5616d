"""A small OpenAI-compatible server on the loopback whose failures can be programmed.

It behaves as vLLM does where that matters: `/tokenize` stands beside `/v1`, errors are nested objects.
"""

import json
import socket
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

from typing_extensions import Self, override

MODEL = "test-model"
Body = dict[str, Any]


@dataclass(frozen=True)
class Reply:
    """One HTTP answer. `cut` hangs up in the middle of it, `hold` waits for the server's `release`."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    cut: bool = False
    hold: bool = False
    drip: bool = False


def json_reply(document: object, status: int = 200, **headers: str) -> Reply:
    """An answer of JSON."""
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(status, json.dumps(document).encode(), {"Content-Type": "application/json"} | names)


def completion(text: str | None, *, prompt_tokens: int = 11, completion_tokens: int = 7) -> Reply:
    """A chat completion."""
    return json_reply(
        {
            "choices": [
                {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
            ],
            "usage": {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens},
        }
    )


def error(status: int, message: str, kind: str = "BadRequestError", **headers: str) -> Reply:
    """An error in OpenAI's nested form."""
    return json_reply({"error": {"message": message, "type": kind, "code": status}}, status, **headers)


@dataclass(frozen=True)
class Request:
    """What the server was sent."""

    path: str
    body: Any
    headers: Mapping[str, str]
    raw: bytes


class OpenAIServer:
    """Runs in a thread as a context manager. `planned` answers are given first, then `respond`'s."""

    def __init__(
        self,
        respond: Callable[[Body], Reply] | None = None,
        *,
        tokenizes: bool = False,
        models: Reply | None = None,
        context_tokens: int | None = None,
    ) -> None:
        """`respond` maps the body of a chat completion to the answer."""
        self.respond = respond or (lambda _: completion("Final answer: 1"))
        self.planned: deque[Reply] = deque()
        self.planned_tokenize: deque[Reply] = deque()
        self.requests: list[Request] = []
        self.hung_up = threading.Event()
        self.held = threading.Event()
        self.release = threading.Event()
        self._tokenizes = tokenizes
        self._context_tokens = context_tokens
        self._models = models or json_reply({"data": [{"id": MODEL}]})
        self._http = _Http(self)
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02})

    @property
    def url(self) -> str:
        """The address as OpenAI clients are given it."""
        return f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    @property
    def chats(self) -> list[Request]:
        """The chat completions asked for, the engine's own check at its start left out."""
        return [one for one in self.requests if one.path == "/v1/chat/completions" and not is_probe(one.body)]

    @property
    def probes(self) -> list[Request]:
        """The engine's checks at its start."""
        return [one for one in self.requests if one.path == "/v1/chat/completions" and is_probe(one.body)]

    def stop(self) -> None:
        """Stop answering: connections are refused from now on."""
        self.release.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._thread.is_alive():
            self.stop()

    def answer(self, request: Request) -> Reply:
        """Return what this request is answered with."""
        if request.path == "/v1/models":
            return self._models
        if request.path == "/tokenize":
            return self._count(request.body)
        if request.path != "/v1/chat/completions":
            return json_reply({"detail": "Not Found"}, 404)
        if is_probe(request.body):
            return self.respond(request.body)
        return self.planned.popleft() if self.planned else self.respond(request.body)

    def _count(self, body: Body) -> Reply:
        if not self._tokenizes:
            return json_reply({"detail": "Not Found"}, 404)
        if self.planned_tokenize:
            return self.planned_tokenize.popleft()
        count = sum(len(message["content"]) for message in body["messages"])
        return json_reply({"count": count, "max_model_len": self._context_tokens or 1_000_000})


def is_probe(body: object) -> bool:
    """Say whether this is the engine's own check that a server takes all fields."""
    return isinstance(body, dict) and body.get("max_tokens") == 1


class _Http(ThreadingHTTPServer):
    daemon_threads = False
    request_queue_size = 128

    def __init__(self, server: OpenAIServer) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.model_server = server

    @override
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that hang up are part of the tests."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 10

    def do_GET(self) -> None:
        """Answer a request without a body."""
        self._serve(None)

    def do_POST(self) -> None:
        """Answer a request with a body."""
        self._serve(self.rfile.read(int(self.headers["Content-Length"])))

    @property
    def _model_server(self) -> OpenAIServer:
        if not isinstance(self.server, _Http):
            raise TypeError("this handler belongs to the server of this file")
        return self.server.model_server

    def _serve(self, raw: bytes | None) -> None:
        server = self._model_server
        self.close_connection = True
        request = Request(
            self.path, json.loads(raw) if raw is not None else None, dict(self.headers), raw or b""
        )
        server.requests.append(request)
        reply = server.answer(request)
        if reply.hold:
            self._hold(server)
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.send_header("Connection", "close")
        self.send_header("Content-Length", str(len(reply.body) + (100 if reply.cut or reply.drip else 0)))
        self.end_headers()
        self.wfile.write(reply.body)
        while reply.drip and not server.release.wait(0.02):
            self.wfile.write(b" ")

    def _hold(self, server: OpenAIServer) -> None:
        """Answer nothing until released; note if the client hangs up meanwhile."""
        server.held.set()
        self.connection.settimeout(0.02)
        while not server.release.is_set():
            try:
                if self.connection.recv(1, socket.MSG_PEEK) == b"":
                    server.hung_up.set()
                    break
            except TimeoutError:
                continue
        self.connection.settimeout(self.timeout)

    @override
    def log_message(self, format: str, *args: Any) -> None:
        """Tests say what they saw."""
