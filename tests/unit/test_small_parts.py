"""Atomic files, errors that leave task groups, and the hash that names our code."""

import stat
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from runner.atomic import write_text
from runner.errors import InfrastructureError, UserError
from runner.groups import first_error_only, first_of
from runner.hashing import code_sha256


def test_a_file_is_replaced_whole_and_readable_for_all(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("before")

    write_text(path, "après \ud800")

    assert path.read_bytes() == "après ?".encode()
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("durable", [True, False])
def test_a_file_that_cannot_be_written_is_ours_and_leaves_no_rest(tmp_path: Path, durable: bool) -> None:
    (tmp_path / "directory").mkdir()

    with pytest.raises(InfrastructureError, match="cannot write"):
        write_text(tmp_path / "directory", "x", durable=durable)
    with pytest.raises(InfrastructureError, match="cannot write"):
        write_text(tmp_path / "gone" / "file", "x", durable=durable)

    assert [path.name for path in tmp_path.iterdir()] == ["directory"]


@pytest.mark.anyio
async def test_an_error_leaves_nested_task_groups_as_itself() -> None:
    async def fail() -> None:
        raise UserError("first") from OSError("cause")

    async def work() -> None:
        with first_error_only():
            async with anyio.create_task_group() as outer, anyio.create_task_group() as inner:
                inner.start_soon(fail)
                outer.start_soon(anyio.sleep_forever)

    with pytest.raises(UserError, match="first") as raised:
        await work()

    assert isinstance(raised.value.__cause__, OSError)
    assert raised.value.__suppress_context__


def test_an_error_s_remedy_stands_below_it() -> None:
    assert str(UserError("wrong", remedy="mend it")) == "wrong\n  remedy: mend it"
    assert str(UserError("wrong")) == "wrong"


def test_our_code_is_named_by_its_paths_and_contents_and_by_nothing_beside_them(tmp_path: Path) -> None:
    def laid_out(name: str, *, agent: str = "sandbox/agent/agent.c", code: str = "1\n") -> Path:
        root = tmp_path / name
        for path, text in (("runner/a.py", code), (agent, "int main;"), ("sandbox/b.py", "")):
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
        return root

    here = code_sha256(laid_out("here"))
    installed = laid_out("installed")
    for beside in ("runner/__pycache__/a.cpython-310.pyc", "runner/data/demo.jsonl", "tests/a.py"):
        (installed / beside).parent.mkdir(parents=True, exist_ok=True)
        (installed / beside).write_text("x")

    assert code_sha256(installed) == here
    assert code_sha256(laid_out("changed", code="2\n")) != here
    assert code_sha256(laid_out("moved", agent="sandbox/agent.c")) != here


@pytest.mark.anyio
async def test_the_first_to_end_is_what_counts_and_the_others_are_cancelled() -> None:
    cancelled: list[str] = []

    async def never() -> str:
        try:
            await anyio.sleep_forever()
        finally:
            cancelled.append("never")
        raise AssertionError("not reached")

    async def soon() -> str:
        await anyio.lowlevel.checkpoint()
        return "soon"

    async def fails() -> str:
        await anyio.lowlevel.checkpoint()
        raise KeyError("itself, not a group")

    assert await first_of(never, soon) == "soon"
    with pytest.raises(KeyError):
        await first_of(never, fails)
    assert cancelled == ["never", "never"]
