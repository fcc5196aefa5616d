"""What a client says of a broker that answers nothing, or falls silent: never nothing."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import anyio
import pytest

from sandbox import BrokerSandbox, SandboxPrerequisiteError, client

pytestmark = pytest.mark.anyio


@pytest.fixture
def mute(tmp_path: Path) -> Iterator[Path]:
    """A socket whose server takes what comes and says nothing."""
    path = tmp_path / "mute.sock"
    held: list[socket.socket] = []
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()

        def accept() -> None:
            with suppress(OSError):
                while True:
                    held.append(server.accept()[0])

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield path
        server.shutdown(socket.SHUT_RDWR)
        thread.join(10)
        for one in held:
            one.close()


async def test_a_broker_that_grants_nothing_in_time_is_named_with_what_was_waited_for(
    mute: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "GRANT_TIMEOUT_S", 0.1)
    with (
        anyio.fail_after(30),
        pytest.raises(
            SandboxPrerequisiteError, match=r"mute.sock: it does not answer in time \(ReadTimeout\)"
        ),
    ):
        async with BrokerSandbox(mute, "run", wait_s=1.0):
            raise AssertionError("not reached")


async def test_a_broker_that_is_not_there_is_named(tmp_path: Path) -> None:
    with (
        anyio.fail_after(30),
        pytest.raises(SandboxPrerequisiteError, match=r"no sandbox broker serves us on .*absent.sock: .+"),
    ):
        async with BrokerSandbox(tmp_path / "absent.sock", "run", wait_s=0.5):
            raise AssertionError("not reached")
