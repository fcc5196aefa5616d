"""A directory's memory of its files' hashes: computed once, believed as long as the file is the same one.

"The same" is size, time of change and inode; `recount verify` believes none of it and hashes again.
"""

import json
import threading
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from runner.atomic import write_text
from runner.errors import UserError

RECORD_NAME = ".recount-artifacts.json"


class FileRecord(BaseModel):
    """One file as it was when it was hashed."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    sha256: str
    size_bytes: int
    mtime_ns: int
    inode: int


class RecordDocument(BaseModel):
    """What the record's file holds. `unverified` maps what was let pass to why it would not have been."""

    model_config = ConfigDict(extra="ignore")

    format: int = 1
    revision: str | None = None
    """The commit that the hub's files are of."""
    requested_revision: str | None = None
    files: dict[str, FileRecord] = Field(default_factory=dict)
    unverified: dict[str, str] = Field(default_factory=dict)
    absent: list[str] = Field(default_factory=list)
    """Optional files that the source turned out not to have."""


class HashRecord:
    """The record of one directory. What it is told is on disk when the call returns, from any thread."""

    def __init__(self, directory: Path) -> None:
        """Read the directory's record, if it has one."""
        self.directory = directory
        self.path = directory / RECORD_NAME
        self._lock = threading.Lock()  # the document in memory is the one on disk
        self._document = self._read()

    @property
    def revision(self) -> str | None:
        """The commit that the directory's files are of, where they have one."""
        return self._document.revision

    @property
    def requested_revision(self) -> str | None:
        """The branch, tag or commit by which it was asked for."""
        return self._document.requested_revision

    @property
    def unverified(self) -> dict[str, str]:
        """What was let pass although it is not what the manifest says, and why."""
        return dict(self._document.unverified)

    @property
    def names(self) -> tuple[str, ...]:
        """The files that were hashed."""
        return tuple(self._document.files)

    def recorded(self, name: str) -> str | None:
        """Return the hash that a file had when it was fetched, whatever it is now."""
        file = self._document.files.get(name)
        return None if file is None else file.sha256

    def known(self, name: str) -> str | None:
        """Return a file's hash without reading it, or None where it was never hashed or has changed."""
        file = self._document.files.get(name)
        if file is None:
            return None
        try:
            now = (self.directory / name).stat()
        except OSError:
            return None
        same = (file.size_bytes, file.mtime_ns, file.inode) == (now.st_size, now.st_mtime_ns, now.st_ino)
        return file.sha256 if same else None

    def is_absent(self, name: str) -> bool:
        """Say whether the source was asked for an optional file and did not have it."""
        return name in self._document.absent

    def remember(self, name: str, sha256: str) -> None:
        """Record a file's hash as of now."""
        now = (self.directory / name).stat()
        with self._lock:
            self._document.files[name] = FileRecord(
                sha256=sha256, size_bytes=now.st_size, mtime_ns=now.st_mtime_ns, inode=now.st_ino
            )
            if name in self._document.absent:
                self._document.absent.remove(name)
            self._write()

    def forget(self, name: str) -> None:
        """Drop what is known of a file."""
        with self._lock:
            if self._document.files.pop(name, None) is not None:
                self._write()

    def set_absent(self, name: str) -> None:
        """Record that the source does not have an optional file."""
        with self._lock:
            if name not in self._document.absent:
                self._document.absent.append(name)
                self._write()

    def set_revision(self, revision: str | None, requested: str | None) -> None:
        """Record which commit the hub's files are of."""
        with self._lock:
            self._document.revision, self._document.requested_revision = revision, requested
            self._document.absent.clear()
            self._write()

    def mark(self, name: str, why: str | None) -> None:
        """Mark something as unverified, for every later run to read; `None` takes the mark away."""
        with self._lock:
            if why == self._document.unverified.get(name):
                return
            if why is None:
                del self._document.unverified[name]
            else:
                self._document.unverified[name] = why
            self._write()

    def _write(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        write_text(self.path, self._document.model_dump_json(indent=1) + "\n")

    def _read(self) -> RecordDocument:
        try:
            document: Any = json.loads(self.path.read_text(encoding="utf-8"))
            return RecordDocument.model_validate(document)
        except (FileNotFoundError, NotADirectoryError):
            return RecordDocument()
        except (OSError, ValueError, ValidationError) as error:
            # Not taken for empty: it may hold the mark that something is unverified.
            raise UserError(
                f"{self.path} cannot be read: {error}",
                remedy="remove it together with the files beside it, and fetch them again",
            ) from error
