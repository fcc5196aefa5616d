"""Fetching what a manifest names: into the store, each file checked by its hash, all of it resumable."""

from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import httpx
from anyio.to_thread import run_sync

from runner.artifacts.claims import Checked, Finding, check_claims
from runner.artifacts.directory import LocalDirectory
from runner.artifacts.errors import MissingFileError, refused
from runner.artifacts.files import (
    check_space,
    discard_part,
    hash_file,
    is_lfs_pointer,
    make_directory,
    part_of,
    put_aside,
    put_in_place,
    size_of,
)
from runner.artifacts.manifest import ArtifactFile, Group, Manifest, Origin, Role
from runner.artifacts.pack import check_pack, read_sources, write_pack
from runner.artifacts.progress import FetchListener, FileDone, SilentListener
from runner.artifacts.settings import FetchSettings
from runner.artifacts.sources import Sources
from runner.artifacts.store import Store
from runner.artifacts.transfer import new_client
from runner.errors import UserError
from runner.groups import first_error_only
from runner.hashing import sha256_file

ALL_GROUPS = frozenset(Group)
PACK_NAME = "protocol pack"


@dataclass(frozen=True)
class Artifacts:
    """What a run finds after a fetch. What was not asked for, or is not published, is None."""

    manifest: str
    checkpoint: Path | None
    revision: str | None
    """The commit that the checkpoint's files are of; None where they came from a directory."""
    datasets: Mapping[str, Path]
    pack: Path | None
    rows: Path | None
    """The report's own rows, a trajectory each."""
    provenance: Path | None
    card_results: Path | None
    sha256: Mapping[str, str]
    """Every file's hash, by its path in its repository (the pack's by `protocol pack`)."""
    unverified: tuple[str, ...]
    """What was let pass although it is not the report's: a run with it is no reproduction."""
    unpinned: tuple[str, ...]
    """Files without a published hash, as they were fetched."""
    claims: tuple[Checked, ...] = field(default=())
    """What the files say about themselves, held against the manifest."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What a result should say about its inputs, a line each."""
        return (
            *(f"unverified: {one}" for one in self.unverified),
            *(f"unpinned: {one}" for one in self.unpinned),
            *(one.line for one in self.claims if one.finding is not Finding.HOLDS),
        )


async def fetch(
    manifest: Manifest,
    store: Store,
    *,
    groups: frozenset[Group] = ALL_GROUPS,
    source: Path | None = None,
    revision: str | None = None,
    allow_unverified: bool = False,
    listener: FetchListener | None = None,
    settings: FetchSettings | None = None,
) -> Artifacts:
    """Bring the groups' files into the store and check them; what is there already is not moved again.

    `source` is a directory to take them from in the place of the network, `revision` one of the model
    repository in the place of the manifest's. Raises `UserError` for what the user can mend and
    `InfrastructureError` for a network or server that stays broken. Cancelled or failed at any moment, it can
    be called again and goes on.
    """
    settings = settings or FetchSettings.from_environment()
    listener = listener or SilentListener()
    async with AsyncExitStack() as stack:
        local: LocalDirectory | None = None
        client: httpx.AsyncClient | None = None
        if source is not None:
            local = await run_sync(LocalDirectory, source, manifest)
        elif not settings.offline:
            client = await stack.enter_async_context(new_client(settings))
        sources = Sources(manifest, store, settings, listener, local=local, client=client)
        job = _Fetch(manifest, store, sources, groups, listener, allow_unverified=allow_unverified)
        return await job.run(revision or manifest.hub.revision, at_once=settings.at_once)


class _Fetch:
    """One call of `fetch`."""

    def __init__(
        self,
        manifest: Manifest,
        store: Store,
        sources: Sources,
        groups: frozenset[Group],
        listener: FetchListener,
        *,
        allow_unverified: bool,
    ) -> None:
        self._manifest, self._store, self._sources = manifest, store, sources
        self._groups, self._listener = groups, listener
        self._allow_unverified = allow_unverified
        self._sha256: dict[str, str] = {}

    async def run(self, requested: str, *, at_once: int) -> Artifacts:
        """Fetch and check everything."""
        files = tuple(one for one in self._manifest.files if one.group in self._groups)
        for directory in {self._store.record_of(one).directory for one in files}:
            await run_sync(make_directory, directory)
        if any(one.origin is Origin.HUB for one in files):
            files += await self._sources.settle(requested, files)
        await run_sync(self._check_space, files)
        slots = anyio.CapacityLimiter(at_once)
        with first_error_only():
            async with anyio.create_task_group() as tasks:
                for file in files:
                    tasks.start_soon(self._bring, file, slots)
        if Group.PROTOCOL in self._groups:
            await run_sync(self._make_pack)
        claims = await run_sync(self._check_claims, files)
        return self._artifacts(claims)

    def _check_space(self, files: tuple[ArtifactFile, ...]) -> None:
        """Refuse before anything is moved where what is known of the sizes does not fit."""
        needed: dict[Path, int] = {}
        for file in files:
            path, size = self._store.path_of(file), self._sources.size(file)
            if size is None or self._sources.copies or path.exists():
                continue
            directory = self._store.record_of(file).directory
            needed[directory] = needed.get(directory, 0) + max(size - size_of(part_of(path)), 0)
        for directory, size in needed.items():
            check_space(directory, size)

    async def _bring(self, file: ArtifactFile, slots: anyio.CapacityLimiter) -> None:
        """Have one file in its place, checked."""
        path, record, name = (
            self._store.path_of(file),
            self._store.record_of(file),
            self._store.name_of(file),
        )
        async with slots:
            found, how = await self._hash_here(file, path), "was here"
            if found is None and record.is_absent(name):
                return
            if found is not None and not _is_right(file, found) and not self._allow_unverified:
                aside = await run_sync(put_aside, path, path)
                self._listener.note(f"{file.path}: not the file of the report any more; now {aside.name}")
                found = None
            if found is None:
                await run_sync(record.forget, name)
                try:
                    found, how = await self._obtain(file, path)
                except MissingFileError:
                    if file.required:
                        raise
                    await run_sync(record.set_absent, name)
                    self._listener.note(f"{file.path}: not published there")
                    return
            await run_sync(record.remember, name, found)
            why = None if _is_right(file, found) else f"SHA-256 {found}, not {file.sha256}"
            await run_sync(record.mark, name, why)
            self._sha256[file.path] = found
            size = await run_sync(size_of, path)
            self._listener.done(FileDone(file.path, found, size, how, pinned=file.sha256 is not None))

    async def _hash_here(self, file: ArtifactFile, path: Path) -> str | None:
        """Return the hash of the file in its place, if there is one that belongs to this revision."""
        known = await run_sync(self._store.record_of(file).known, self._store.name_of(file))
        if known is not None or not await run_sync(path.is_file):
            return known
        if file.sha256 is None and file.origin is Origin.HUB and self._sources.has(file):
            return None  # of another commit, or nobody's: fetched anew
        return await hash_file(path, name=file.path, listener=self._listener)

    async def _obtain(self, file: ArtifactFile, path: Path) -> tuple[str, str]:
        """Get a file, check it and put it in its place; return its hash, and how it came."""
        await run_sync(make_directory, path.parent)
        part, how = await self._sources.obtain(file, path, allow_unverified=self._allow_unverified)
        if await run_sync(is_lfs_pointer, part):
            await run_sync(discard_part, path)
            raise UserError(
                f"{file.path} is a pointer of git-lfs, not the file itself",
                remedy="run `git lfs pull` where it comes from, or fetch it from the network",
            )
        found = await hash_file(part, name=file.path, listener=self._listener)
        if _is_right(file, found) or self._allow_unverified:
            await run_sync(put_in_place, part, path)
            return found, how
        size = await run_sync(size_of, part)
        aside = await run_sync(put_aside, part, path)
        sizes = None if file.size_bytes is None else (file.size_bytes, size)
        raise refused(file.path, aside, expected=str(file.sha256), found=found, size=sizes)

    def _make_pack(self) -> None:
        """Read the pack out of the two sources and check what it says."""
        wanted, path = self._manifest.pack, self._store.pack_path
        messages = self._manifest.of_role(Role.MESSAGES_SOURCE)
        loop = self._manifest.of_role(Role.LOOP_SOURCE)
        if wanted is None or path is None or messages is None or loop is None:
            return
        pack = read_sources(self._store.path_of(messages), self._store.path_of(loop))
        differences = check_pack(pack, wanted)
        if differences and not self._allow_unverified:
            raise UserError(
                differences[0],
                remedy="fetch the sources at the manifest's commit;"
                " --allow-unverified takes the pack as it is, and marks every run with it",
            )
        write_pack(pack, path)
        record, found = self._store.data_record, sha256_file(path)
        record.remember(wanted.place, found)
        record.mark(wanted.place, f"SHA-256 {found}, not {wanted.sha256}" if differences else None)
        self._sha256[PACK_NAME] = found
        self._listener.done(FileDone(PACK_NAME, found, size_of(path), "read out of the sources", pinned=True))

    def _check_claims(self, files: tuple[ArtifactFile, ...]) -> tuple[Checked, ...]:
        """Check what the files say; a contradiction is refused like a wrong hash."""
        there = {one.path: one for one in files if one.path in self._sha256}
        checked = check_claims(
            self._manifest, {path: self._store.path_of(one) for path, one in there.items()}
        )
        wrong: dict[str, list[str]] = {path: [] for path in there}
        for one in checked:
            if one.finding is Finding.CONTRADICTED:
                wrong[one.path].append(one.line)
        lines = [line for found in wrong.values() for line in found]
        if lines and not self._allow_unverified:
            raise UserError(
                "a file contradicts what is published of it\n  " + "\n  ".join(lines),
                remedy="name another revision with --revision; --allow-unverified goes on all the same,"
                " and marks every run with it",
            )
        for path, found in wrong.items():
            self._store.record_of(there[path]).mark(f"what {path} says", "; ".join(found) or None)
        return checked

    def _artifacts(self, claims: tuple[Checked, ...]) -> Artifacts:
        def path_of(role: Role) -> Path | None:
            file = self._manifest.of_role(role)
            return None if file is None or file.path not in self._sha256 else self._store.path_of(file)

        return Artifacts(
            manifest=self._manifest.name,
            checkpoint=self._store.checkpoint if Group.CHECKPOINT in self._groups else None,
            revision=self._store.hub_record.revision,
            datasets={
                one.name: self._store.path_of(one)
                for one in self._manifest.of_group(Group.DATASETS)
                if one.path in self._sha256
            },
            pack=self._store.pack_path if PACK_NAME in self._sha256 else None,
            rows=path_of(Role.ROWS),
            provenance=path_of(Role.PROVENANCE),
            card_results=path_of(Role.CARD_RESULTS),
            sha256=dict(sorted(self._sha256.items())),
            unverified=self._store.unverified,
            unpinned=self._store.unpinned,
            claims=claims,
        )


def _is_right(file: ArtifactFile, found: str) -> bool:
    return file.sha256 is None or file.sha256 == found
