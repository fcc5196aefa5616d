"""Graders in processes of their own: one answer at a time each, with limits, started again after a failure.

A grader that hangs, dies or runs out of memory costs its own answer a score, and no other.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from runner.errors import InfrastructureError, UserError
from runner.groups import first_error_only
from runner.rescore.model import Failure, Grade, GradeLimits, failed
from runner.rescore.registry import Scorer
from runner.rescore.scorers import Pair

MOST_GRADERS = 4
_HOME = str(Path(__file__).resolve().parents[2])
_START = f"""
import sys
if {_HOME!r} not in sys.path: sys.path.insert(0, {_HOME!r})
from runner.rescore.child import main
main()
"""
"""Isolated from what environment and working directory would import, and of these very files: a checkout
that is not installed has no other."""
_REPLY_BYTES = 1 << 16
_END_S = 10.0
_GONE = (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError, anyio.IncompleteRead)

Progress = Callable[[int, int], object]
"""Is told how many of how many pairs are graded."""


class _FailedError(Exception):
    def __init__(self, failure: Failure, detail: str = "") -> None:
        super().__init__(failure.value)
        self.grade = failed(failure, detail)


class Grader:
    """One process. It starts with the first answer, and anew after one that it did not get through."""

    def __init__(self, limits: GradeLimits, command: tuple[str, ...]) -> None:
        """`command` gets the limits as its last two arguments."""
        self._limits = limits
        self._command = (*command, str(limits.memory_bytes), str(limits.wall_s))
        self._process: Process | None = None
        self._replies: BufferedByteReceiveStream | None = None
        self.versions: dict[str, str] = {}

    async def start(self) -> None:
        """Start the process and wait for it.

        Raises `UserError` where the grader's library is not installed, `InfrastructureError` where the
        process does not come up.
        """
        self._process = await anyio.open_process(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env={"PATH": os.defpath, "LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "0"},
            start_new_session=True,
        )
        if self._process.stdout is None:
            raise InfrastructureError("the grader has no pipe")
        self._replies = BufferedByteReceiveStream(self._process.stdout)
        try:
            with anyio.fail_after(self._limits.start_s):
                told = await self._reply()
        except (TimeoutError, *_GONE, ValueError) as error:
            await self.close()
            raise InfrastructureError(f"the grader did not start: {type(error).__name__}") from error
        if "missing" in told:
            await self.close()
            extra = told.get("extra")
            remedy = (
                f"pip install '.[{extra}]' where Recount's source is"
                if extra
                else "install what it names beside Recount"
            )
            raise UserError(f"the scorer is not installed: {told['missing']}", remedy=remedy)
        self.versions = {str(name): str(version) for name, version in told["ready"].items()}

    async def grade(self, pair: Pair) -> Grade:
        """Return the grade of one answer; a failure of the grader is one too."""
        if self._process is None:
            await self.start()
        try:
            told = await self._asked(pair)
        except _FailedError as error:
            await self.close()
            return error.grade
        if "failure" in told:
            failure = Failure(told["failure"])
            if failure is Failure.MEMORY:
                await self.close()  # what is left of it cannot be trusted
            return failed(failure, str(told.get("detail", "")))
        return Grade(
            float(told["score"]),
            str(told["method"]),
            read_answer=told.get("read_answer"),
            read_gold=told.get("read_gold"),
        )

    async def close(self) -> None:
        """End the process with all that it started, whatever it is at."""
        process, self._process, self._replies = self._process, None, None
        if process is None:
            return
        with anyio.CancelScope(shield=True), anyio.move_on_after(_END_S):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
            await process.aclose()

    async def _asked(self, pair: Pair) -> dict[str, Any]:
        process = self._process
        if process is None or process.stdin is None:
            raise _FailedError(Failure.CRASH, "the grader is not there")
        request = json.dumps({"answer": pair[0], "gold": pair[1]}) + "\n"
        try:
            with anyio.fail_after(self._limits.wall_s):
                await process.stdin.send(request.encode("ascii"))
                return await self._reply()
        except TimeoutError as error:
            raise _FailedError(Failure.TIMEOUT, f"more than {self._limits.wall_s:g} s") from error
        except (*_GONE, anyio.DelimiterNotFound, ValueError) as error:
            raise _FailedError(Failure.CRASH, await _how_it_ended(process)) from error

    async def _reply(self) -> dict[str, Any]:
        if self._replies is None:
            raise anyio.ClosedResourceError
        told = json.loads(await self._replies.receive_until(b"\n", _REPLY_BYTES))
        if not isinstance(told, dict):
            raise ValueError("not an object")  # noqa: TRY004 - as JSON that cannot be read
        return told


async def _how_it_ended(process: Process) -> str:
    with anyio.move_on_after(_END_S):
        code = await process.wait()
        return f"the grader was killed by signal {-code}" if code < 0 else f"the grader exited with {code}"
    return "the grader said nothing that can be read"


def command_of(scorer: Scorer) -> tuple[str, ...]:
    """Return what starts a scorer's process; the limits are to follow."""
    return (sys.executable, "-I", "-B", "-c", _START, scorer.module)


async def grade_all(
    pairs: Iterable[Pair],
    limits: GradeLimits,
    command: tuple[str, ...],
    *,
    graders: int | None = None,
    progress: Progress = lambda _done, _of: None,
) -> tuple[dict[Pair, Grade], dict[str, str]]:
    """Grade every pair once, several at a time, each in a process that `command` starts (`command_of`).

    Return grades, and the versions of what graded.

    Raises as `Grader.start` does.
    """
    wanted = list(dict.fromkeys(pairs))
    left = iter(wanted)
    grades: dict[Pair, Grade] = {}
    versions: dict[str, str] = {}
    count = max(1, min(graders or _processors(), MOST_GRADERS, len(wanted)))

    async def work() -> None:
        async with _opened(limits, command) as grader:
            versions.update(grader.versions)
            for pair in left:
                grades[pair] = await grader.grade(pair)
                progress(len(grades), len(wanted))

    with first_error_only():
        async with anyio.create_task_group() as group:
            for _ in range(count):
                group.start_soon(work)
    return grades, versions


@asynccontextmanager
async def _opened(limits: GradeLimits, command: tuple[str, ...]) -> AsyncIterator[Grader]:
    grader = Grader(limits, command)
    try:
        await grader.start()
        yield grader
    finally:
        await grader.close()


def _processors() -> int:
    return len(os.sched_getaffinity(0))
