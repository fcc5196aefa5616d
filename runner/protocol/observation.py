"""The wire format of a tool result: what the model reads after its action.

The format is the original's, down to line ends that look redundant: a model that was trained on these
observations answers to them.
"""

import errno
import os

MEMORY_LIMIT_KIB = 8 * 1024 * 1024
"""Address space of a command, in the unit of `ulimit -v` (8 GiB)."""

SCRIPT_PREFIX = f"ulimit -v {MEMORY_LIMIT_KIB}; "
"""What stands before every command. Error messages count positions from its start."""

MAX_SCRIPT_BYTES = 128 * 1024 - 1
"""Longest single argument that Linux passes to a program on 4 KiB pages, its final NUL aside."""

SHELL = "/bin/bash"

TRUNCATION_MARKER = "\n...[truncated]...\n"


def script_for(command: str) -> str:
    """Return the script that `bash -c` is given for `command`."""
    return SCRIPT_PREFIX + command


def exec_error_of(command: str) -> str | None:
    """Return why the original could not even start `command`, in Python's words; None if it could.

    Its harness handed the script to `subprocess` in a UTF-8 locale. That refuses a surrogate which does
    not stand for a byte (`surrogateescape`), then a NUL; the kernel then refuses a script that is too
    long. JSON escapes and runaway repetition bring all three about. The caller renders the error with
    `format_exec_error` instead of running the command.
    """
    try:
        script = script_for(command).encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        return str(error)
    if b"\0" in script:
        return "embedded null byte"
    if len(script) > MAX_SCRIPT_BYTES:
        return str(OSError(errno.E2BIG, os.strerror(errno.E2BIG), SHELL))
    return None


def universal_newlines(text: str) -> str:
    r"""Turn `\r\n` and then every other `\r` into `\n`, as Python's text streams do."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def format_result(stdout: str, stderr: str, exit_code: int) -> str:
    """Word the result of a command that ended; `exit_code` is negative for a signal's number.

    The line end before `[stderr]` and `[exit_code]` comes on top of one that the output ends with.
    """
    if not stdout and not stderr:
        return f"Bash exited with code {exit_code} and no output."
    if stderr:
        stderr = ("\n[stderr]\n" if stdout else "[stderr]\n") + stderr
    return f"{stdout}{stderr}\n[exit_code] {exit_code}"


def format_timeout(seconds: float) -> str:
    """Word a time-out. It stands alone: what the command had printed is dropped."""
    return f"Bash timed out after {seconds:.1f}s."


def format_exec_error(message: str) -> str:
    """Word a command that could not be run, or output that is not UTF-8; `message` is Python's."""
    return f"[ERROR] Failed to execute command: {message}"


def truncate_observation(text: str, limit: int) -> str:
    """Keep the first and the last half of `limit` characters where `text` is longer than that.

    At least one of either end stays, and the marker comes on top of the limit.
    """
    if len(text) <= limit:
        return text
    half = max(limit // 2, 1)
    return text[:half] + TRUNCATION_MARKER + text[-half:]
