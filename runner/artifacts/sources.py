"""Where a fetch gets its files: a directory somebody brought, the hub's cache here, or the network."""

from collections.abc import Iterable
from pathlib import Path

import httpx
from anyio.to_thread import run_sync

from runner.artifacts.directory import LocalDirectory
from runner.artifacts.errors import MissingFileError
from runner.artifacts.files import copy
from runner.artifacts.hub import (
    HubFile,
    Revision,
    also_wanted,
    cached_revision,
    github_remote,
    hub_remote,
    resolve_revision,
)
from runner.artifacts.manifest import ArtifactFile, Group, Manifest, Origin
from runner.artifacts.progress import FetchListener
from runner.artifacts.settings import FetchSettings
from runner.artifacts.store import Store
from runner.artifacts.transfer import download
from runner.errors import UserError
from runner.paths import is_file


class Sources:
    """Gets the manifest's files; with neither directory nor client only what is on this machine."""

    def __init__(
        self,
        manifest: Manifest,
        store: Store,
        settings: FetchSettings,
        listener: FetchListener,
        *,
        local: LocalDirectory | None,
        client: httpx.AsyncClient | None,
    ) -> None:
        """`local` is taken in the place of the network, never beside it."""
        self._manifest, self._store = manifest, store
        self._settings, self._listener = settings, listener
        self._local, self._client = local, client
        self._revision: Revision | None = None
        self._snapshot: Path | None = None

    async def settle(self, requested: str, files: tuple[ArtifactFile, ...]) -> tuple[ArtifactFile, ...]:
        """Find out which commit is meant, and return the checkpoint's files beside the named ones.

        A branch may have moved since the last fetch; a checkpoint that is whole stays the one it is, and no
        network is needed for it.
        """
        record = self._store.hub_record
        whole = await run_sync(self._is_whole, files)
        if whole and record.requested_revision == requested:
            return self._others(record.listing or (), files)
        if self._local is not None:
            listing = await run_sync(self._local.hub_listing)
            await run_sync(self._note_revision, None, requested, listing)
            return self._others(listing, files)
        if self._client is not None:
            self._revision = await resolve_revision(
                self._client, self._manifest.hub, self._meant(requested), self._settings, self._listener
            )
            commit = self._revision.commit
            cached = await run_sync(cached_revision, self._manifest.hub, commit, self._settings)
            self._snapshot = None if cached is None else cached.directory
            await run_sync(self._note_revision, commit, requested, self._revision.files)
            return self._others(self._revision.files, files)
        cached = await run_sync(cached_revision, self._manifest.hub, requested, self._settings)
        if cached is None:
            return self.recorded_others(files)
        self._snapshot = cached.directory
        listing = await run_sync(cached.listing)
        await run_sync(self._note_revision, cached.commit, requested, listing)
        return self._others(listing, files)

    def recorded_others(self, files: tuple[ArtifactFile, ...]) -> tuple[ArtifactFile, ...]:
        """Return the checkpoint's files beside the named ones as the last fetch knew them; asks nobody."""
        record = self._store.hub_record
        return self._others(record.names if record.listing is None else record.listing, files)

    def _meant(self, requested: str) -> str:
        """Return what to ask the hub for: a checkpoint whose record has no listing yet keeps its commit."""
        record = self._store.hub_record
        same = record.requested_revision == requested and record.listing is None
        return record.revision if same and record.revision is not None else requested

    def _is_whole(self, files: tuple[ArtifactFile, ...]) -> bool:
        """Say whether all of the hub's files are here: the named ones, and those of the listing.

        One that looks changed is hashed later, and fetched at the recorded commit if it is; without a commit
        it would have to be looked up first.
        """
        record = self._store.hub_record

        def is_here(name: str) -> bool:
            return record.is_here(name) if record.revision is not None else record.known(name) is not None

        if _wants_checkpoint(files) and record.listing is None:
            return False
        wanted = (*files, *self._others(record.listing or (), files))
        return all(
            is_here(one.path) or (not one.required and record.is_absent(one.path))
            for one in wanted
            if one.origin is Origin.HUB
        )

    def _others(self, listed: Iterable[str], files: tuple[ArtifactFile, ...]) -> tuple[ArtifactFile, ...]:
        """Return what is listed and belongs to the checkpoint, where that is asked for."""
        if not _wants_checkpoint(files):
            return ()
        return also_wanted(self._manifest.hub, dict.fromkeys(listed), self._manifest.files)

    def _note_revision(self, commit: str | None, requested: str, listed: Iterable[str]) -> None:
        """Note the commit; unpinned files of another one are not the ones that are meant any more."""
        record = self._store.hub_record
        others = also_wanted(self._manifest.hub, dict.fromkeys(listed), self._manifest.files)
        if record.revision != commit or commit is None:
            pinned = {one.path for one in self._manifest.files if one.sha256 is not None}
            for name in record.names:
                if name not in pinned:
                    record.forget(name)
        record.set_revision(commit, requested, listing=tuple(one.path for one in others))

    def note_commit(self) -> None:
        """Note the commit of the code host's files; unpinned ones of another are not meant any more."""
        record, commit = self._store.data_record, self._manifest.github.commit
        if record.revision not in {None, commit}:
            for one in self._manifest.files:
                if one.origin is Origin.GITHUB and one.sha256 is None:
                    record.forget(self._store.name_of(one))
        record.set_commit(commit)

    def size(self, file: ArtifactFile) -> int | None:
        """Return what is known of a file's size before it is fetched."""
        if file.size_bytes is not None or self._revision is None or file.origin is Origin.GITHUB:
            return file.size_bytes
        return self._revision.files.get(file.path, HubFile()).size_bytes

    @property
    def copies(self) -> bool:
        """Whether files come from a directory."""
        return self._local is not None

    def has(self, file: ArtifactFile) -> bool:
        """Say whether a file might be got at all."""
        return self._client is not None or self._find_here(file) is not None

    async def obtain(self, file: ArtifactFile, path: Path, *, allow_unverified: bool) -> tuple[Path, str]:
        """Bring a file's bytes into `path`'s part, from where it is nearest; return that, and how it came."""
        here = await run_sync(self._find_here, file)
        if here is not None:
            part = await copy(here, path, name=file.path, listener=self._listener)
            return part, f"copied from {here.parent}"
        if self._client is None:
            raise self._nowhere(file)
        if file.origin is Origin.GITHUB:
            remote = github_remote(self._manifest.github, file, self._settings)
        else:
            revision = self._hub_revision(file)
            if not allow_unverified:
                _check_announced(file, revision)
            remote = hub_remote(self._manifest.hub, file, revision, self._settings)
        part = await download(self._client, remote, path, settings=self._settings, listener=self._listener)
        return part, "fetched"

    def _find_here(self, file: ArtifactFile) -> Path | None:
        if self._local is not None:
            return self._local.find(file)
        if self._snapshot is not None and file.origin is Origin.HUB:
            path = self._snapshot / file.path
            return path if is_file(path) else None
        return None

    def _hub_revision(self, file: ArtifactFile) -> Revision:
        """Return the commit to fetch from: the recorded one where a whole checkpoint lost a file."""
        if self._revision is not None:
            if self._revision.files and file.path not in self._revision.files and not file.required:
                raise MissingFileError(f"{file.path} is not in the repository")
            return self._revision
        commit = self._store.hub_record.revision
        if commit is None:
            raise self._nowhere(file)
        return Revision(commit)

    def _nowhere(self, file: ArtifactFile) -> UserError:
        missing = (
            self._local.missing(file)
            if self._local is not None
            else UserError(
                f"{file.path} is not here, and HF_HUB_OFFLINE forbids to fetch it",
                remedy="unset HF_HUB_OFFLINE, or bring the files: --from DIR",
            )
        )
        return missing if file.required else MissingFileError(missing.message, remedy=missing.remedy)


def _wants_checkpoint(files: tuple[ArtifactFile, ...]) -> bool:
    return any(one.origin is Origin.HUB and one.group is Group.CHECKPOINT for one in files)


def _check_announced(file: ArtifactFile, revision: Revision) -> None:
    """Do not move gigabytes of which the hub itself says that they are others."""
    found = revision.files.get(file.path, HubFile()).sha256
    if found is None or file.sha256 in {None, found}:
        return
    raise UserError(
        f"{file.path}: the hub holds another file than the report's, and it was not fetched\n"
        f"  expected SHA-256 {file.sha256}\n  the hub's SHA-256 {found}",
        remedy="name the revision that has it: --revision COMMIT; --allow-unverified takes it as it is,"
        " and marks every run with it",
    )
