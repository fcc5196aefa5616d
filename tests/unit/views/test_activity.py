"""A watched sandbox tells what runs, and is otherwise the sandbox it watches."""

import pytest
from support.fake_sandbox import FakeSandbox, result

from runner.views.activity import SHOWN_CHARS, WatchedSandbox
from sandbox import ActionResult, SandboxError

pytestmark = pytest.mark.anyio


async def test_a_command_is_told_of_when_it_begins_and_when_it_ends() -> None:
    told: list[tuple[str, str | None]] = []

    def run(command: str) -> ActionResult:
        assert told == [("w", command)]
        return result(stdout="done")

    async with WatchedSandbox(FakeSandbox(run), lambda name, script: told.append((name, script))) as sandbox:
        workspace = await sandbox.open("w")
        found = await workspace.run("echo x", 1.0)
        await workspace.close()

    assert found.stdout.head == b"done"
    assert told == [("w", "echo x"), ("w", None)]


async def test_an_end_by_an_error_is_told_of_and_the_error_stays() -> None:
    told: list[str | None] = []

    def run(command: str) -> ActionResult:
        raise SandboxError("gone")

    async with WatchedSandbox(FakeSandbox(run), lambda _, script: told.append(script)) as sandbox:
        with pytest.raises(SandboxError, match="gone"):
            await (await sandbox.open("w")).run("x", 1.0)

    assert told == ["x", None]


async def test_of_a_long_script_the_begin_is_told() -> None:
    told: list[str | None] = []

    async with WatchedSandbox(FakeSandbox(), lambda _, script: told.append(script)) as sandbox:
        await (await sandbox.open("w")).run("y" * 100_000, 1.0)

    assert told == ["y" * SHOWN_CHARS, None]


async def test_everything_else_is_the_sandbox_s_own() -> None:
    inner = FakeSandbox()
    async with WatchedSandbox(inner, lambda *_: None) as sandbox:
        assert sandbox.capture_bytes == inner.capture_bytes
        assert await sandbox.identity() == await inner.identity()
        assert await sandbox.capacity() == await inner.capacity()
        assert inner.entered == 1

    assert inner.left == 1
