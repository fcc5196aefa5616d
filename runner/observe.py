"""From a command to what the model sees of it: the sandbox's result in the protocol's words."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from runner.events import ToolRecord
from runner.protocol.observation import (
    exec_error_of,
    format_exec_error,
    format_result,
    format_timeout,
    script_for,
    truncate_observation,
    universal_newlines,
)
from sandbox import ActionResult, CapturedStream

MOST_BYTES_A_CHAR = 4
"""In UTF-8; with `\\r\\n`, which becomes one character, it is two."""


@dataclass(frozen=True)
class Observed:
    """The observation, and how the command went; `tool` is None where it was never run."""

    text: str
    tool: ToolRecord | None


async def observe(
    run: Callable[[str, float], Awaitable[ActionResult]], command: str, *, timeout_s: float, limit_chars: int
) -> Observed:
    """Run `command` and word its result as the report's harness does.

    `limit_chars` truncates what the command printed; time-out and error lines are never truncated there.
    """
    refused = exec_error_of(command)
    if refused is not None:
        return Observed(format_exec_error(refused), None)
    result = await run(script_for(command), timeout_s)
    return Observed(word_result(result, timeout_s=timeout_s, limit_chars=limit_chars), _record(result))


def word_result(result: ActionResult, *, timeout_s: float, limit_chars: int) -> str:
    """Word a result. A command without an exit code was ended by us: that reads as the time-out.

    The standard streams are decoded one after the other, so the first that is not UTF-8 gives the error.
    """
    if result.exit_code is None:
        return format_timeout(timeout_s)
    for stream in (result.stdout, result.stderr):
        if stream.decode_error is not None:
            return format_exec_error(stream.decode_error)
    text = format_result(_decode(result.stdout), _decode(result.stderr), result.exit_code)
    return truncate_observation(text, limit_chars)


def _decode(stream: CapturedStream) -> str:
    """Decode a stream known to be UTF-8. Where the middle was dropped, the ends are joined.

    Both ends are longer than the observation limit, so truncation cuts the seam out; a character cut
    in two at the seam is ignored there.
    """
    if stream.dropped_bytes == 0:
        return universal_newlines((stream.head + stream.tail).decode("utf-8"))
    head = stream.head.decode("utf-8", errors="ignore")
    tail = stream.tail.decode("utf-8", errors="ignore")
    return universal_newlines(head) + universal_newlines(tail)


def _record(result: ActionResult) -> ToolRecord:
    usage = result.usage
    return ToolRecord(
        exit_code=result.exit_code,
        timed_out=result.timed_out,
        limits=tuple(limit.value for limit in result.limits),
        wall_s=usage.wall_s,
        cpu_s=usage.cpu_s,
        throttled_s=usage.throttled_s,
        peak_memory_bytes=usage.peak_memory_bytes,
        stdout_bytes=result.stdout.total_bytes,
        stderr_bytes=result.stderr.total_bytes,
        node=result.node,
    )
