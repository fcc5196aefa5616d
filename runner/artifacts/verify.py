"""Verifying what lies on this disk: everything hashed again, every difference named.

What was remembered at the fetch is compared with, never believed.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import anyio
from anyio.to_thread import run_sync

from runner.artifacts.claims import Checked, Finding, check_claims
from runner.artifacts.files import hash_file
from runner.artifacts.manifest import ArtifactFile, Manifest, Origin, Role
from runner.artifacts.progress import FetchListener, SilentListener
from runner.artifacts.record import HashRecord
from runner.artifacts.store import Store
from runner.errors import UserError
from runner.groups import first_error_only
from runner.weights import indexed_files, read_weight_file

AT_ONCE = 4
"""Files that are hashed at once: disks and cores have more, and gain little by it."""


@dataclass(frozen=True)
class VerifyReport:
    """What a verification found; it holds where there are no differences."""

    verified: tuple[str, ...]
    """Files that are what is published, by hash."""
    unpinned: tuple[str, ...]
    """Files without a published hash that are what they were at the fetch, or were never fetched."""
    differences: tuple[str, ...]
    notes: tuple[str, ...]
    sha256: Mapping[str, str]

    @property
    def holds(self) -> bool:
        """Whether everything is as it should be."""
        return not self.differences


async def verify_artifacts(
    manifest: Manifest, store: Store, listener: FetchListener | None = None
) -> VerifyReport:
    """Hash all of a manifest's files and its pack again, and check what they say."""
    check = _Verification(manifest, listener or SilentListener())
    files = {one: store.path_of(one) for one in manifest.files}
    others = {
        name: store.checkpoint / name
        for name in store.hub_record.names
        if name not in {one.path for one in manifest.files}
    }
    await check.hash_files(
        files, {Origin.HUB: store.hub_record, Origin.GITHUB: store.data_record}, store.name_of
    )
    await check.hash_others(others, store.hub_record)
    if manifest.pack is not None and store.pack_path is not None:
        await check.hash_pack(manifest.pack.place, manifest.pack.sha256, store.pack_path)
    await run_sync(check.check_content, store.checkpoint, files)
    check.differences += [f"let pass unverified: {one}" for one in store.unverified]
    return check.report()


async def verify_checkpoint(
    manifest: Manifest, directory: Path, listener: FetchListener | None = None
) -> VerifyReport:
    """Hash the checkpoint in a directory, wherever it came from, and check index, headers and lineage.

    Raises `UserError` where there is no such directory.
    """
    if not await run_sync(directory.is_dir):
        raise UserError(f"no checkpoint at {directory}", remedy="name the directory with its config.json")
    check = _Verification(manifest, listener or SilentListener())
    record = await run_sync(HashRecord, directory)
    files = {one: directory / one.path for one in manifest.files if one.origin is Origin.HUB}
    named = {one.path for one in files}
    await check.hash_files(files, {Origin.HUB: record}, lambda one: one.path)
    await check.hash_others({name: directory / name for name in record.names if name not in named}, record)
    await run_sync(check.check_content, directory, files)
    check.differences += [f"let pass unverified: {name}: {why}" for name, why in record.unverified.items()]
    return check.report()


class _Verification:
    def __init__(self, manifest: Manifest, listener: FetchListener) -> None:
        self._manifest, self._listener = manifest, listener
        self._verified: list[str] = []
        self._unpinned: list[str] = []
        self.differences: list[str] = []
        self._notes: list[str] = []
        self._sha256: dict[str, str] = {}
        self._slots = anyio.CapacityLimiter(AT_ONCE)

    def report(self) -> VerifyReport:
        return VerifyReport(
            tuple(sorted(self._verified)),
            tuple(sorted(self._unpinned)),
            tuple(self.differences),
            tuple(self._notes),
            dict(sorted(self._sha256.items())),
        )

    async def hash_files(
        self,
        files: Mapping[ArtifactFile, Path],
        records: Mapping[Origin, HashRecord],
        name_of: Callable[[ArtifactFile], str],
    ) -> None:
        """Hash the manifest's files and compare each with its pin, else with what it was at the fetch."""
        present: dict[ArtifactFile, Path] = {}
        for file, path in files.items():
            if path.is_file():
                present[file] = path
            elif file.required:
                self.differences.append(f"{file.path} is missing ({path})")
            else:
                self._notes.append(f"{file.path} is not here; not every revision has it")
        await self._hash_all({file.path: path for file, path in present.items()})
        for file in present:
            recorded = records[file.origin].recorded(name_of(file))
            self._compare(file.path, file.sha256, recorded)

    async def hash_others(self, files: Mapping[str, Path], record: HashRecord) -> None:
        """Hash files that came with the checkpoint without being named by the manifest."""
        gone = [name for name, path in files.items() if not path.is_file()]
        self.differences += [f"{name} is missing" for name in gone]
        await self._hash_all({name: path for name, path in files.items() if name not in gone})
        for name in files:
            if name not in gone:
                self._compare(name, None, record.recorded(name))

    async def hash_pack(self, name: str, pinned: str, path: Path) -> None:
        """Hash the protocol pack."""
        if not await run_sync(path.is_file):
            self.differences.append(f"{name}, the protocol pack, is missing ({path})")
            return
        await self._hash_all({name: path})
        self._compare(name, pinned, None)

    def check_content(self, checkpoint: Path, files: Mapping[ArtifactFile, Path]) -> None:
        """Check what the files say: lineage, published figures, index and headers of the weights."""
        there = {one.path: path for one, path in files.items() if one.path in self._sha256}
        for one in check_claims(self._manifest, there):
            self._take(one)
        self._check_weights(checkpoint, files)

    def _take(self, checked: Checked) -> None:
        (self.differences if checked.finding is Finding.CONTRADICTED else self._notes).append(checked.line)

    async def _hash_all(self, files: Mapping[str, Path]) -> None:
        async def hash_one(name: str, path: Path) -> None:
            async with self._slots:
                try:
                    self._sha256[name] = await hash_file(path, name=name, listener=self._listener)
                except OSError as error:
                    self.differences.append(f"{name} cannot be read: {error.strerror or error}")

        with first_error_only():
            async with anyio.create_task_group() as tasks:
                for name, path in files.items():
                    tasks.start_soon(hash_one, name, path)

    def _compare(self, name: str, pinned: str | None, recorded: str | None) -> None:
        found = self._sha256.get(name)
        if found is None:
            return  # said already
        wanted, whose = (pinned, "published") if pinned is not None else (recorded, "at the fetch")
        if wanted is not None and wanted != found:
            self.differences.append(
                f"{name} is another file\n  {whose:<12} SHA-256 {wanted}\n  found        SHA-256 {found}"
            )
        elif pinned is not None:
            self._verified.append(name)
        else:
            self._unpinned.append(name)

    def _check_weights(self, directory: Path, files: Mapping[ArtifactFile, Path]) -> None:
        """Compare headers with index and card: what a model loads is what these say."""
        shards = [path for one, path in files.items() if one.role is Role.SHARD and one.path in self._sha256]
        if len(shards) < len(self._manifest.shards) or not shards:
            return  # said already
        try:
            headers = [read_weight_file(path) for path in shards]
            self._check_index(directory, {one.path.name: one.tensors for one in headers})
        except UserError as error:
            self.differences.append(error.message)
            return
        wanted = self._manifest.weights
        if wanted is None:
            return
        tensors = sum(len(one.tensors) for one in headers)
        parameters = sum(one.parameters for one in headers)
        for what, expected, found in (
            ("parameters", wanted.parameters, parameters),
            ("tensors", wanted.tensors, tensors),
        ):
            if expected is not None and expected != found:
                self.differences.append(f"the weights hold {found:,} {what}, the card tells of {expected:,}")
            else:
                self._notes.append(f"the weights hold {found:,} {what}")

    def _check_index(self, directory: Path, tensors: Mapping[str, frozenset[str]]) -> None:
        index = self._manifest.of_role(Role.INDEX)
        if index is None or index.path not in self._sha256:
            return
        indexed = indexed_files(directory / index.path)
        for name in sorted(indexed.keys() ^ tensors.keys()):
            self.differences.append(f"{index.path} and the manifest do not agree about {name}")
        for name in sorted(indexed.keys() & tensors.keys()):
            if indexed[name] != tensors[name]:
                wrong = sorted(indexed[name] ^ tensors[name])
                self.differences.append(
                    f"{index.path} and {name} do not hold the same tensors: {', '.join(wrong[:3])}"
                )
