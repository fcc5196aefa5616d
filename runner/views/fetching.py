"""A fetch as phases of a run's display."""

from typing import Protocol

from runner.artifacts.progress import FileDone, FileProgress
from runner.artifacts.progress import Phase as FilePhase
from runner.views.phases import Phase


class Shows(Protocol):
    """What is needed of a display."""

    def note(self, text: str) -> None:
        """Say something a person should know."""

    def phase(
        self,
        phase: Phase,
        detail: str = "",
        *,
        done: float | None = None,
        total: float | None = None,
        in_bytes: bool = False,
    ) -> None:
        """Say what the run as a whole is at."""


class FetchPhases:
    """Listens to a fetch (`FetchListener`): the file that moved last is the one that is shown."""

    def __init__(self, display: Shows) -> None:
        """`display` is a run's."""
        self._display = display

    def progress(self, progress: FileProgress) -> None:
        """Show how far the file is; hashing what is there already is verifying."""
        phase = Phase.VERIFYING if progress.phase is FilePhase.HASHING else Phase.FETCHING
        total = progress.total_bytes
        self._display.phase(phase, progress.name, done=progress.done_bytes, total=total, in_bytes=True)

    def done(self, done: FileDone) -> None:
        """Show nothing: the next file's progress follows, or the next phase."""

    def note(self, text: str) -> None:
        """Show it."""
        self._display.note(text)
