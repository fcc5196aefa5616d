"""Errors whose class says who failed, and with it what the process exits with.

The exit code is part of the interface: scripts tell "you can mend this" (2) from "we failed" (3)
and from "it ended, but not everything is done" (4).
"""

from enum import IntEnum

from typing_extensions import override


class ExitCode(IntEnum):
    """What the `recount` command exits with."""

    OK = 0
    CHECK_FAILED = 1
    """A check that was asked for did not hold (`conformance`, `eval --fail-if-differs`)."""
    BAD_INPUT = 2
    """A file, a setting or a prerequisite of the user's is wrong; the message names the remedy."""
    INFRASTRUCTURE = 3
    """Something of ours failed; nothing that was done is lost."""
    INCOMPLETE = 4
    """The run ended, but some trajectories are unfinished."""
    INTERRUPTED = 130
    """Ctrl-C or SIGTERM, as a shell would say it (128 + SIGINT)."""


class RecountError(Exception):
    """Base of the errors that end a command with one clear message."""

    exit_code = ExitCode.INFRASTRUCTURE

    def __init__(self, message: str, *, remedy: str | None = None) -> None:
        """`message` says what is wrong and where (file, line, setting); `remedy` what to do."""
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    @override
    def __str__(self) -> str:
        return self.message if self.remedy is None else f"{self.message}\n  remedy: {self.remedy}"


class UserError(RecountError):
    """Bad input: the user can mend it."""

    exit_code = ExitCode.BAD_INPUT


class InfrastructureError(RecountError):
    """Our own side failed: engine, sandbox, disk. Never scored, never the model's fault."""


class JournalWriteError(RecountError):
    """The journal cannot be written: nothing may go on, since what is not written did not happen."""


class InterruptedRunError(RecountError):
    """A signal came before the run had begun."""

    exit_code = ExitCode.INTERRUPTED
