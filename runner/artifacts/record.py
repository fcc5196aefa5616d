"""A directory's memory of its files' hashes: computed once, believed as long as the file is the same one.

"The same" is size, inode, and both times of change: the one of the content, which `touch -d` can set back,
and the one of the inode, which nobody can. A record without the latter is not believed; `recount verify`
believes none of it and hashes again.
"""

import json
import os
import threading
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from runner.artifacts.files import write_here
from runner.errors import UserError
from runner.paths import is_file

RECORD_NAME = ".recount-artifacts.json"


class FileRecord(BaseModel):
    """One file as it was when it was hashed."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    sha256: str
    size_bytes: int
    mtime_ns: int
    inode: int
    ctime_ns: int | None = None
    """None in records of earlier versions, whose files are hashed again."""
    fetched_sha256: str | None = None
    """The hash that an unpinned file had when it was fetched, where it is another now and was let pass."""

    def is_of(self, now: os.stat_result) -> bool:
        """Say whether a file is still the one that was hashed."""
        then = (self.size_bytes, self.mtime_ns, self.inode, self.ctime_ns)
        return then == (now.st_size, now.st_mtime_ns, now.st_ino, now.st_ctime_ns)


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
    listing: list[str] | None = None
    """The files that belong to the checkpoint beside the manifest's, whether they have come or not.

    None where nobody asked, as in records of earlier versions.
    """


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
    def listing(self) -> tuple[str, ...] | None:
        """The files that come with the manifest's at this commit; None where that is not known."""
        return None if self._document.listing is None else tuple(self._document.listing)

    @property
    def names(self) -> tuple[str, ...]:
        """The files that were hashed."""
        return tuple(self._document.files)

    def recorded(self, name: str) -> str | None:
        """Return the hash that a file had when it was fetched, whatever it is now."""
        file = self._document.files.get(name)
        return None if file is None else file.fetched_sha256 or file.sha256

    def known(self, name: str) -> str | None:
        """Return a file's hash without reading it, or None where it was never hashed or has changed."""
        file = self._document.files.get(name)
        if file is None:
            return None
        try:
            now = (self.directory / name).stat()
        except OSError:
            return None
        return file.sha256 if file.is_of(now) else None

    def is_here(self, name: str) -> bool:
        """Say whether a file that was hashed is there, changed or not."""
        return name in self._document.files and is_file(self.directory / name)

    def is_absent(self, name: str) -> bool:
        """Say whether the source was asked for an optional file and did not have it."""
        return name in self._document.absent

    def remember(self, name: str, sha256: str, *, fetched_sha256: str | None = None) -> None:
        """Record a file's hash as of now; `fetched_sha256` where it was another at the fetch.

        Where the record cannot be written, that is an error only if it would say something new of the file:
        one copied to a read-only disk has other times, and is hashed again each time.
        """
        now = (self.directory / name).stat()
        file = FileRecord(
            sha256=sha256,
            size_bytes=now.st_size,
            mtime_ns=now.st_mtime_ns,
            inode=now.st_ino,
            ctime_ns=now.st_ctime_ns,
            fetched_sha256=None if fetched_sha256 == sha256 else fetched_sha256,
        )
        with self._lock:
            before = self._document.files.get(name)
            if before == file and name not in self._document.absent:
                return
            same_content = before is not None and (before.sha256, before.fetched_sha256) == (
                file.sha256,
                file.fetched_sha256,
            )
            self._document.files[name] = file
            if name in self._document.absent:
                self._document.absent.remove(name)
                same_content = False
            self._write(needed=not same_content)

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

    def set_revision(
        self, revision: str | None, requested: str | None, *, listing: tuple[str, ...] | None = None
    ) -> None:
        """Record which commit the files are of, and which come with the manifest's at that commit."""
        listed = None if listing is None else list(listing)
        with self._lock:
            document = self._document
            before = (document.revision, document.requested_revision, document.listing)
            if before == (revision, requested, listed) and (revision is not None or not document.absent):
                return  # what a commit does not have it never will; a directory may have got it
            document.revision, document.requested_revision, document.listing = revision, requested, listed
            document.absent.clear()
            self._write()

    def set_commit(self, commit: str) -> None:
        """Record the commit of files that have no other; a directory of before this was recorded may stay."""
        with self._lock:
            before = self._document.revision
            if before == commit:
                return
            self._document.revision = commit
            self._write(needed=before is not None)

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

    def _write(self, *, needed: bool = True) -> None:
        try:
            write_here(self.path, self._document.model_dump_json(indent=1) + "\n")
        except UserError:
            if needed:
                raise

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
