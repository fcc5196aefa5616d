"""What peers that misbehave get from the broker's HTTP interface. No engine is needed for it."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox import ActionResult, CapturedStream, Limit, Policy, SandboxPrerequisiteError, Usage, http_server
from sandbox.admission import Admission
from sandbox.broker import create_app
from sandbox.leases import Broker
from sandbox.listening import listening
from sandbox.wire import MAX_MESSAGE_BYTES, WIRE_VERSION, Failure, FailureKind, ResultMessage

pytestmark = pytest.mark.anyio

HEAD_TIMEOUT_S = 0.5


@pytest.fixture
async def address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Path]:
    monkeypatch.setattr(http_server, "HEAD_TIMEOUT_S", HEAD_TIMEOUT_S)
    monkeypatch.setattr("sandbox.broker.BODY_TIMEOUT_S", HEAD_TIMEOUT_S)
    path = tmp_path / "b.sock"
    broker = Broker(Policy(), Admission(1, 1, ()), base_url=f"unix://{tmp_path}/no-engine.sock")
    server = http_server.http_server(create_app(broker))
    with listening(path) as listener:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.serve, [listener])
            while not server.started:  # noqa: ASYNC110 - uvicorn has no event for us
                await anyio.sleep(0.01)
            yield path
            server.should_exit = True


@pytest.fixture
async def http(address: Path) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.AsyncHTTPTransport(uds=str(address))
    async with httpx.AsyncClient(transport=transport, base_url="http://broker", timeout=20) as client:
        yield client


RUN = "/v1/leases/none/workspaces/none/run?timeout_s="


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/", b"", 404),
        ("GET", "/v1/leases", b"", 405),
        ("PUT", "/v1/leases/x/workspaces/y", b"", 405),
        ("POST", "/v1/leases", b"", 400),
        ("POST", "/v1/leases", b"{", 400),
        ("POST", "/v1/leases", b"[]", 400),
        ("POST", "/v1/leases", b"\xff\x00", 400),
        ("POST", "/v1/leases", b'{"version": 1}', 400),
        ("POST", "/v1/leases", b'{"version": 1, "run_id": ""}', 400),
        ("POST", "/v1/leases", b'{"version": 1, "run_id": "../x"}', 400),
        ("POST", "/v1/leases", b'{"version": 1, "run_id": "a\\nb"}', 400),
        ("POST", "/v1/leases", b'{"version": 1, "run_id": "x", "image": "mine"}', 400),
        ("POST", "/v1/leases", b'{"version": 999, "run_id": "x"}', 400),
        ("POST", "/v1/leases", b"x" * (MAX_MESSAGE_BYTES + 1), 413),
        ("POST", "/v1/leases/none/workspaces", b'{"workspace_id": "w"}', 404),
        ("POST", "/v1/leases/none/workspaces", b'{"workspace_id": "%s"}' % (b"w" * 257), 400),
        ("POST", "/v1/leases/none/workspaces", b'{"workspace_id": "w", "privileged": true}', 400),
        ("DELETE", "/v1/leases/none/workspaces/none", b"", 404),
        ("DELETE", "/v1/leases/none", b"", 204),
        ("POST", RUN + "1", b"true", 404),
        ("POST", RUN + "1", b"x" * (20 << 20), 404),
        ("POST", RUN + "0", b"true", 400),
        ("POST", RUN + "-1", b"true", 400),
        ("POST", RUN + "nan", b"true", 400),
        ("POST", RUN + "inf", b"true", 400),
        ("POST", RUN + "3601", b"true", 400),
        ("POST", RUN + "soon", b"true", 400),
        ("POST", "/v1/leases/none/workspaces/none/run", b"true", 400),
    ],
)
async def test_a_wrong_request_is_refused_and_harms_nothing(
    http: httpx.AsyncClient, method: str, path: str, body: bytes, status: int
) -> None:
    try:
        assert (await http.request(method, path, content=body)).status_code == status
    except httpx.WriteError:
        # Refused and hung up on before all of it was sent.
        assert len(body) > MAX_MESSAGE_BYTES
    assert (await http.get("/v1/health")).json()["version"] == WIRE_VERSION


async def test_a_broker_without_an_engine_says_what_to_mend(http: httpx.AsyncClient) -> None:
    answer = await http.post("/v1/leases", json={"version": WIRE_VERSION, "run_id": "x"})
    failure = Failure.model_validate_json(answer.content)
    assert (answer.status_code, failure.kind) == (424, FailureKind.PREREQUISITE)
    assert "does not answer" in failure.message
    assert failure.remedy
    assert (await http.get("/v1/statistics")).json()["leases"] == 0


async def hung_up_within(stream: anyio.abc.ByteStream, seconds: float) -> bool:
    with anyio.move_on_after(seconds):
        try:
            while True:
                await stream.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            return True
    return False


@pytest.mark.parametrize("begun", [b"", b"GET /v1/health HT", b"GET /v1/health HTTP/1.1\r\nx: "])
async def test_a_peer_that_does_not_finish_its_head_is_hung_up_on(
    address: Path, http: httpx.AsyncClient, begun: bytes
) -> None:
    async with await anyio.connect_unix(str(address)) as stream:
        if begun:
            await stream.send(begun)
        assert (await http.get("/v1/health")).is_success
        assert await hung_up_within(stream, 3 * HEAD_TIMEOUT_S)


async def test_trickling_the_head_buys_no_time(address: Path) -> None:
    async with await anyio.connect_unix(str(address)) as stream, anyio.create_task_group() as tasks:

        async def trickle() -> None:
            await stream.send(b"GET /v1/health HTTP/1.1\r\n")
            while True:
                await anyio.sleep(0.05)
                try:
                    await stream.send(b"x: y\r\n")
                except anyio.BrokenResourceError:
                    return

        tasks.start_soon(trickle)
        assert await hung_up_within(stream, 3 * HEAD_TIMEOUT_S)
        tasks.cancel_scope.cancel()


async def test_a_second_request_has_to_finish_its_head_too(address: Path) -> None:
    async with await anyio.connect_unix(str(address)) as stream:
        await stream.send(b"GET /v1/health HTTP/1.1\r\nhost: b\r\n\r\n")
        assert b"200 OK" in await stream.receive()
        await anyio.sleep(2 * HEAD_TIMEOUT_S)
        await stream.send(b"GET /v1/hea")
        assert await hung_up_within(stream, 3 * HEAD_TIMEOUT_S)


async def test_a_body_that_does_not_come_is_given_up(address: Path) -> None:
    async with await anyio.connect_unix(str(address)) as stream:
        await stream.send(b"POST /v1/leases HTTP/1.1\r\nhost: b\r\ncontent-length: 100\r\n\r\n{")
        with anyio.fail_after(3 * HEAD_TIMEOUT_S):
            assert b" 408 " in await stream.receive()


async def test_an_endless_head_is_refused(address: Path) -> None:
    async with await anyio.connect_unix(str(address)) as stream:
        with anyio.move_on_after(5), contextlib.suppress(anyio.BrokenResourceError):
            await stream.send(b"GET / HTTP/1.1\r\nx: " + b"y" * (1 << 20))
        assert await hung_up_within(stream, 3)


async def test_what_is_no_http_is_refused(address: Path, http: httpx.AsyncClient) -> None:
    async with await anyio.connect_unix(str(address)) as stream:
        await stream.send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n")
        assert await hung_up_within(stream, 3)
    assert (await http.get("/v1/health")).is_success


async def test_many_idle_connections_keep_nobody_out(address: Path, http: httpx.AsyncClient) -> None:
    idle = [socket.socket(socket.AF_UNIX) for _ in range(200)]
    try:
        for one in idle:
            one.setblocking(False)
            one.connect_ex(str(address))
        with anyio.fail_after(10):
            assert (await http.get("/v1/health")).is_success
    finally:
        for one in idle:
            one.close()


def test_the_socket_is_for_owner_and_group_alone(tmp_path: Path) -> None:
    path = tmp_path / "made" / "b.sock"
    with listening(path):
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o750
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
        assert path.stat().st_gid == os.getegid()
    assert not path.exists()


def test_a_directory_that_exists_stays_as_it_is(tmp_path: Path) -> None:
    tmp_path.chmod(0o711)
    with listening(tmp_path / "b.sock"):
        assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o711


def test_a_socket_that_a_killed_broker_left_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "b.sock"
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(path))
    left.close()
    with listening(path) as server:
        server.listen()
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))


def test_a_second_broker_on_a_socket_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "b.sock"
    with listening(path):
        with pytest.raises(SandboxPrerequisiteError, match="another broker"), listening(path):
            pass
        assert path.is_socket()


def test_a_file_of_somebody_s_is_not_taken_for_a_socket(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("mine")
    with pytest.raises(SandboxPrerequisiteError, match="is no socket"), listening(path):
        pass
    assert path.read_text() == "mine"


def test_a_path_that_is_too_long_says_so(tmp_path: Path) -> None:
    with pytest.raises(SandboxPrerequisiteError, match="too long"), listening(tmp_path / ("x" * 120)):
        pass


@pytest.mark.parametrize(
    ("options", "environment", "said"),
    [
        (["--policy", "nowhere.toml"], {}, "no sandbox policy"),
        ([], {"DOCKER_HOST": "unix:///nowhere/docker.sock"}, "does not answer"),
        (["--socket", "/proc/nowhere/b.sock"], {}, "cannot listen"),
    ],
)
def test_what_the_user_can_mend_is_one_message_and_exit_code_2(
    tmp_path: Path, options: list[str], environment: dict[str, str], said: str
) -> None:
    command = [sys.executable, "-m", "runner", "broker", "--socket", str(tmp_path / "b.sock"), *options]
    ended = subprocess.run(
        command,
        cwd=Path(__file__).parents[2],
        env={"PATH": "/usr/bin:/bin", "TERM": "dumb"} | environment,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert ended.returncode == 2
    assert said in ended.stderr
    assert "remedy:" in ended.stderr
    assert "Traceback" not in ended.stderr


streams = st.builds(
    CapturedStream,
    head=st.binary(max_size=300),
    tail=st.binary(max_size=300),
    total_bytes=st.integers(0, 2**63),
    decode_error=st.none() | st.text(max_size=50),
)
seconds = st.floats(0, 1e6)
results = st.builds(
    ActionResult,
    stdout=streams,
    stderr=streams,
    exit_code=st.none() | st.integers(-64, 255),
    timed_out=st.booleans(),
    limits=st.lists(st.sampled_from(Limit), max_size=4).map(tuple),
    usage=st.builds(
        Usage,
        wall_s=seconds,
        cpu_s=st.none() | seconds,
        throttled_s=st.none() | seconds,
        peak_memory_bytes=st.none() | st.integers(0, 2**50),
    ),
)


@given(result=results)
def test_a_result_comes_out_of_the_wire_as_it_went_in(result: ActionResult) -> None:
    wired = ResultMessage.model_validate(result).model_dump_json()
    assert ResultMessage.model_validate_json(wired).result() == result
