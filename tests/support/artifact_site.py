"""One place to fetch a small report to, by function and by command line."""

import contextlib
import io
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

from runner.artifacts import Manifest, Store, load_manifest
from runner.artifacts.progress import FileDone, FileProgress
from runner.artifacts.settings import FetchSettings
from runner.cli import main
from runner.errors import ExitCode
from support.artifact_files import HUB_REPOSITORY, Report
from support.artifact_server import ArtifactServer

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Done:
    """What a command left behind."""

    returncode: int
    stdout: str
    stderr: str


@dataclass
class Watcher:
    """Keeps all that a fetch says."""

    seen: list[FileProgress] = field(default_factory=list)
    finished: list[FileDone] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    on_progress: Callable[[FileProgress], None] | None = None

    def progress(self, progress: FileProgress) -> None:
        self.seen.append(progress)
        if self.on_progress is not None:
            self.on_progress(progress)

    def done(self, done: FileDone) -> None:
        self.finished.append(done)

    def note(self, text: str) -> None:
        self.notes.append(text)

    def how(self, name: str) -> str:
        return next(one.how for one in self.finished if one.name == name)


@dataclass
class Site:
    """A report, its server, and a place to fetch it to."""

    root: Path
    report: Report
    server: ArtifactServer
    manifest_path: Path
    environment: dict[str, str]

    @property
    def manifest(self) -> Manifest:
        return load_manifest(self.manifest_path)

    @property
    def models(self) -> Path:
        return self.root / "models"

    @property
    def data(self) -> Path:
        return self.root / "data"

    @property
    def checkpoint(self) -> Path:
        return self.models / HUB_REPOSITORY.rpartition("/")[2]

    def store(self) -> Store:
        return Store(self.manifest, self.models, self.data)

    def settings(self, **others: str) -> FetchSettings:
        return FetchSettings.from_environment(self.environment | others)

    def rewrite_manifest(self, *, dataset_bytes: int | None = None) -> None:
        """Make the manifest that of the files as they are now, with a size claimed for the data set."""
        sizes = {} if dataset_bytes is None else {"data/dapo_test.jsonl": dataset_bytes}
        self.report.write_manifest(self.manifest_path, sizes=sizes)

    def fetch(self, *arguments: str, **environment: str) -> Done:
        """Run `recount fetch final4`."""
        return self.recount("fetch", "final4", *arguments, **environment)

    def verify(self, *arguments: str) -> Done:
        """Run `recount verify`."""
        return self.recount("verify", *arguments)

    def arguments(self) -> list[str]:
        return [
            "--models",
            str(self.models),
            "--data-dir",
            str(self.data),
            "--manifest",
            str(self.manifest_path),
        ]

    def recount(self, *arguments: str, **environment: str) -> Done:
        """Run the command line as `python -m runner` does, in this process: it is asked for often here."""
        where = self.arguments() if "checkpoint" not in arguments[1:2] else self.arguments()[-2:]
        out, err = io.StringIO(), io.StringIO()
        with (
            mock.patch.dict(os.environ, self.process_environment(**environment), clear=True),
            mock.patch.object(sys, "argv", ["recount", *arguments, *where]),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            try:
                main()
                code: object = ExitCode.OK
            except SystemExit as exit_:
                code = exit_.code or ExitCode.OK
        return Done(int(code) if isinstance(code, int) else -1, out.getvalue(), err.getvalue())

    def process_environment(self, **environment: str) -> dict[str, str]:
        """The variables of a process that has no hub token or cache of whoever runs the tests."""
        ours = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "RECOUNT_"))}
        shown = {"PYTHONPATH": str(ROOT), "COLUMNS": "200", "NO_COLOR": "1", "HOME": str(self.root)}
        return ours | shown | self.environment | environment
