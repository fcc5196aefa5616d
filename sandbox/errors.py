"""Failures of the sandbox itself. A command that fails is a result, never one of these."""

from __future__ import annotations

from typing_extensions import override


class SandboxError(Exception):
    """Something of ours failed; `remedy` says what a person can do about it."""

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message, remedy)
        self.message = message
        self.remedy = remedy

    @override
    def __str__(self) -> str:
        return f"{self.message} ({self.remedy})" if self.remedy else self.message


class SandboxPrerequisiteError(SandboxError):
    """What the user can mend before a run: no engine, no permission, no image, a policy that cannot work."""


class SandboxInfrastructureError(SandboxError):
    """The daemon, a container or the agent failed while a run was under way.

    `command_started` says whether the command may have run: then its files may have changed, and running it
    again is not the same as running it once.
    """

    def __init__(self, message: str, remedy: str = "", *, command_started: bool = False) -> None:
        super().__init__(message, remedy)
        self.command_started = command_started
