"""Fetching what a manifest names: into the store, each file checked by its hash, all of it resumable."""

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

import anyio
import httpx
from anyio.to_thread import run_sync

from runner.artifacts.claims import Checked, Finding, check_claims
from runner.artifacts.directory import LocalDirectory
from runner.artifacts.errors import MissingFileError, RefusedFileError, changed, refused
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
from runner.artifacts.outcome import PACK_NAME, Artifacts
from runner.artifacts.pack import check_pack, is_written, read_sources, render_pack, write_pack
from runner.artifacts.progress import FetchListener, FileDone, SilentListener
from runner.artifacts.record import HashRecord
from runner.artifacts.settings import FetchSettings
from runner.artifacts.sources import Sources
from runner.artifacts.store import Store
from runner.artifacts.transfer import new_client
from runner.errors import UserError
from runner.groups import first_error_only
from runner.hashing import sha256_text
from runner.paths import is_file

__all__ = ["ALL_GROUPS", "PACK_NAME", "Artifacts", "fetch"]

ALL_GROUPS = frozenset(Group)


async def fetch(  # noqa: PLR0913 - each is another choice of whoever fetches
    manifest: Manifest,
    store: Store,
    *,
    groups: frozenset[Group] = ALL_GROUPS,
    source: Path | None = None,
    revision: str | None = None,
    allow_unverified: bool = False,
    touch: bool = True,
    listener: FetchListener | None = None,
    settings: FetchSettings | None = None,
) -> Artifacts:
    """Bring the groups' files into the store and check them; what is there already is not moved again.

    `source` is a directory to take them from in the place of the network, `revision` one of the model
    repository in the place of the manifest's. Raises `UserError` for what the user can mend and
    `InfrastructureError` for a network or server that stays broken. Cancelled or failed at any moment, it can
    be called again and goes on.

    Without `touch` it only looks: nothing is fetched, put aside, written or recorded, and `source` is not
    looked at. What is not here, or is another file than it should be, is a `UserError`.
    """
    settings = settings or FetchSettings.from_environment()
    listener = listener or SilentListener()
    async with AsyncExitStack() as stack:
        local: LocalDirectory | None = None
        client: httpx.AsyncClient | None = None
        if not touch:
            settings = replace(settings, offline=True, hub_cache=None)
        elif source is not None:
            local = await run_sync(LocalDirectory, source, manifest)
        if touch and local is None and not settings.offline:
            client = await stack.enter_async_context(new_client(settings))
        sources = Sources(manifest, store, settings, listener, local=local, client=client)
        job = _Fetch(manifest, store, sources, groups, listener, allow_unverified=allow_unverified)
        if not touch:
            return await job.look(revision or manifest.hub.revision, at_once=settings.at_once)
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
        self._brought: list[ArtifactFile] = []
        self._unverified: dict[tuple[Origin, str], str | None] = {}
        """What only looking found to mark, in the place of marks in the records."""
        self._touch = True

    async def run(self, requested: str, *, at_once: int) -> Artifacts:
        """Fetch and check everything."""
        files = self._asked()
        for directory in {self._store.record_of(one).directory for one in files}:
            await run_sync(make_directory, directory)
        if any(one.origin is Origin.HUB for one in files):
            files += await self._sources.settle(requested, files)
        if any(one.origin is Origin.GITHUB for one in files):
            await run_sync(self._sources.note_commit)
        await run_sync(self._check_space, files)
        return await self._each(files, self._bring, at_once)

    async def look(self, requested: str, *, at_once: int) -> Artifacts:
        """Check everything that is here, and change nothing."""
        self._touch = False
        files, record = self._asked(), self._store.hub_record
        if any(one.origin is Origin.HUB for one in files):
            files += self._sources.recorded_others(files)
            if record.requested_revision not in {None, requested} and record.revision != requested:
                raise UserError(
                    f"{self._store.checkpoint} holds revision {record.requested_revision}, not {requested}",
                    remedy=f"recount fetch --revision {requested}",
                )
        return await self._each(files, self._look_at, at_once)

    def _asked(self) -> tuple[ArtifactFile, ...]:
        return tuple(one for one in self._manifest.files if one.group in self._groups)

    async def _each(
        self,
        files: tuple[ArtifactFile, ...],
        work: Callable[[ArtifactFile], Awaitable[None]],
        at_once: int,
    ) -> Artifacts:
        """Have each file worked on, some at once, then check what they say together."""
        slots = anyio.CapacityLimiter(at_once)

        async def work_on(file: ArtifactFile) -> None:
            async with slots:
                await work(file)

        with first_error_only():
            async with anyio.create_task_group() as tasks:
                for file in files:
                    tasks.start_soon(work_on, file)
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

    async def _bring(self, file: ArtifactFile) -> None:
        """Have one file in its place, checked."""
        path, record, name = (
            self._store.path_of(file),
            self._store.record_of(file),
            self._store.name_of(file),
        )
        expected = self._expected(file)
        found, how = await self._hash_here(file, path), "was here"
        if found is None and record.is_absent(name):
            return
        if found not in {None, expected} and expected is not None and not self._allow_unverified:
            if not self._sources.has(file):
                raise self._changed(file, str(found), expected)
            aside = await run_sync(put_aside, path, path)
            self._listener.note(f"{file.path}: not the file of the report any more; now {aside.name}")
            found = None
        if found is None:
            try:
                found, how = await self._obtain(file, path, expected)
            except MissingFileError:
                if file.required:
                    raise
                await run_sync(record.forget, name)
                await run_sync(record.set_absent, name)
                self._listener.note(f"{file.path}: not published there")
                return
        fetched = None if file.sha256 is not None else expected
        await run_sync(partial(record.remember, name, found, fetched_sha256=fetched))
        await run_sync(self._take, file, found, how, expected)

    async def _look_at(self, file: ArtifactFile) -> None:
        """Check one file where it is."""
        path, expected = self._store.path_of(file), self._expected(file)
        found = await self._hash_here(file, path)
        if found is None:
            if not file.required:
                return
            raise UserError(f"{file.path} is not here ({path})", remedy="recount fetch brings it")
        if expected not in {None, found} and not self._allow_unverified:
            raise self._changed(file, found, str(expected))
        await run_sync(self._take, file, found, "was here", expected)

    def _expected(self, file: ArtifactFile) -> str | None:
        """Return the hash that a file must have: the published one, else the one it was fetched with."""
        return file.sha256 or self._store.record_of(file).recorded(self._store.name_of(file))

    def _changed(self, file: ArtifactFile, found: str, expected: str) -> RefusedFileError:
        path, pinned = self._store.path_of(file), file.sha256 is not None
        return changed(file.path, path, expected=expected, found=found, pinned=pinned)

    def _take(self, file: ArtifactFile, found: str, how: str, expected: str | None) -> None:
        """Take a file for what it is: one that is not what it should be is marked."""
        why = None if expected in {None, found} else f"SHA-256 {found}, not {expected}"
        self._mark(file.origin, self._store.name_of(file), why)
        self._sha256[file.path] = found
        self._brought.append(file)
        size = size_of(self._store.path_of(file))
        self._listener.done(FileDone(file.path, found, size, how, pinned=file.sha256 is not None))

    def _mark(self, origin: Origin, name: str, why: str | None) -> None:
        if self._touch:
            self._record(origin).mark(name, why)
        else:
            self._unverified[origin, name] = why

    def _record(self, origin: Origin) -> HashRecord:
        return self._store.hub_record if origin is Origin.HUB else self._store.data_record

    async def _hash_here(self, file: ArtifactFile, path: Path) -> str | None:
        """Return the hash of the file in its place, if there is one that belongs to this revision."""
        known = await run_sync(self._store.record_of(file).known, self._store.name_of(file))
        if known is not None or not await run_sync(is_file, path):
            return known
        if self._expected(file) is None and file.origin is Origin.HUB and self._sources.has(file):
            return None  # of another commit, or nobody's: fetched anew
        try:
            return await hash_file(path, name=file.path, listener=self._listener)
        except OSError as error:
            raise UserError(
                f"{path} cannot be read: {error.strerror or error}", remedy="make the file readable"
            ) from error

    async def _obtain(self, file: ArtifactFile, path: Path, expected: str | None) -> tuple[str, str]:
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
        if expected in {None, found} or self._allow_unverified:
            await run_sync(put_in_place, part, path)
            return found, how
        size = await run_sync(size_of, part)
        aside = await run_sync(put_aside, part, path)
        sizes = None if file.size_bytes is None else (file.size_bytes, size)
        raise refused(file.path, aside, expected=str(expected), found=found, size=sizes)

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
        found = sha256_text(render_pack(pack))
        if self._touch:
            write_pack(pack, path)
            self._store.data_record.remember(wanted.place, found)
        elif not is_written(pack, path):
            raise UserError(
                f"the protocol pack {path} is not here, or not what the sources say",
                remedy="recount fetch writes it",
            )
        why = f"SHA-256 {found}, not {wanted.sha256}" if differences else None
        self._mark(Origin.GITHUB, wanted.place, why)
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
            self._mark(there[path].origin, f"what {path} says", "; ".join(found) or None)
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
            sha256=dict(sorted(self._sha256.items())),
            unverified=self._marked(),
            unpinned=self._unpinned(),
            claims=claims,
            manifest_sha256=self._manifest.file_sha256,
            unpinned_inputs=self._unpinned_inputs(),
        )

    def _marked(self) -> tuple[str, ...]:
        """Return what is marked in the records, and what was found to mark by only looking."""
        marks: dict[tuple[Origin, str], str | None] = {
            (origin, name): why
            for origin in Origin
            for name, why in sorted(self._record(origin).unverified.items())
        }
        return tuple(f"{name}: {why}" for (_, name), why in (marks | self._unverified).items() if why)

    def _unpinned(self) -> tuple[str, ...]:
        """Return the files of this fetch that have no published hash."""
        return tuple(sorted(self._store.name_of(one) for one in self._brought if one.sha256 is None))

    def _unpinned_inputs(self) -> tuple[str, ...]:
        """Return which of the deciding inputs that were asked for the manifest does not pin."""
        shards = self._manifest.shards if Group.CHECKPOINT in self._groups else ()
        no_pack = Group.PROTOCOL in self._groups and self._manifest.pack is None
        return (*(one.path for one in shards if one.sha256 is None), *((PACK_NAME,) if no_pack else ()))
