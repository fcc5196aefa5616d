"""A checkpoint on every node that gets engines: there or fetched, and the same files to the last byte.

The driver says what it has: names and SHA-256 of the files that an engine reads. A node looks for them in the
same directory, fetches what is missing if it can (by the manifest that the checkpoint is named in, or from
the hub at the driver's commit), and answers where they lie, or why it must not serve. Nothing is copied from
node to node: gigabytes through the driver would be slower than each node's own way out.
"""

import fcntl
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio
from anyio.to_thread import run_sync

from runner.artifacts import Group, Manifest, Store, fetch, load_manifest
from runner.artifacts.files import hash_file, make_directory
from runner.artifacts.manifest import bundled_manifests
from runner.artifacts.progress import FetchListener, FileDone, FileProgress, Phase, SilentListener
from runner.artifacts.record import HashRecord
from runner.engines.vllm.checkpoint import check_checkpoint, find_checkpoint
from runner.errors import RecountError
from runner.groups import first_error_only

HASHED_AT_ONCE = 4
LOCK_POLL_S = 1.0
_READ_BY_ENGINES = frozenset({".safetensors", ".json", ".jinja", ".model", ".tiktoken"})
_ALSO_READ = frozenset({"merges.txt", "vocab.txt"})
_MOST_NAMED = 3
"""Differences that a refusal names; of another checkpoint every file differs."""


@dataclass(frozen=True)
class WantedCheckpoint:
    """What every node has to have: the driver's files, by name below `directory`.

    `manifest` names a bundled manifest that the files can be fetched by, `repository` one of the hub.
    """

    directory: str
    sha256: Mapping[str, str]
    commit: str | None = None
    manifest: str | None = None
    repository: str | None = None


@dataclass(frozen=True)
class NodeCheckpoint:
    """Where a node has it. `fetched` if it had to be."""

    directory: str
    fetched: bool = False


@dataclass(frozen=True)
class Refused:
    """Why a node gets no engine; the node's name is added by whoever asked."""

    reason: str


async def describe_checkpoint(
    directory: Path, *, commit: str | None = None, repository: str | None = None
) -> WantedCheckpoint:
    """Return what the nodes are to have, by what lies here; hashes what was not hashed before."""
    names = await run_sync(lambda: sorted(path.name for path in directory.iterdir() if _is_read(path)))
    manifest = manifest_of(directory)
    return WantedCheckpoint(
        directory=str(directory),
        sha256=await _hashes(directory, names, SilentListener()),
        commit=commit,
        manifest=None if manifest is None else manifest.name,
        repository=repository,
    )


def manifest_of(directory: Path) -> Manifest | None:
    """Return the bundled manifest that a checkpoint's directory is named by; None where it is by none."""
    manifests = map(load_manifest, bundled_manifests())
    return next((one for one in manifests if one.hub.repository.rpartition("/")[2] == directory.name), None)


def _is_read(path: Path) -> bool:
    if path.name.startswith(".") or not path.is_file():
        return False
    return path.suffix in _READ_BY_ENGINES or path.name in _ALSO_READ


async def ready_checkpoint(
    wanted: WantedCheckpoint, listener: FetchListener | None = None
) -> NodeCheckpoint | Refused:
    """Make the checkpoint ready on this node, or say why it cannot be; never raises for either."""
    listener = listener or SilentListener()
    directory = Path(wanted.directory)
    fetched = False
    try:
        if not await run_sync(_has_all, directory, wanted.sha256):
            directory, fetched = await _fetch(wanted, listener), True
        found = await _hashes(directory, wanted.sha256, listener)
        differences = differences_of(wanted.sha256, found)
        if differences:
            return Refused(f"its checkpoint in {directory} is another: {_some(differences)}")
        await run_sync(check_checkpoint, directory)
    except (RecountError, OSError) as error:
        return Refused(f"its checkpoint is not ready: {error}")
    return NodeCheckpoint(str(directory), fetched)


def differences_of(wanted: Mapping[str, str], found: Mapping[str, str]) -> list[str]:
    """Say in what a node's files differ, with both hashes."""
    return [
        f"{name} is not there"
        if name not in found
        else f"{name} has SHA-256 {found[name]}, the driver's has {sha256}"
        for name, sha256 in wanted.items()
        if found.get(name) != sha256
    ]


def _some(lines: list[str]) -> str:
    more = len(lines) - _MOST_NAMED
    return "; ".join([*lines[:_MOST_NAMED], *([f"and {more} more"] if more > 0 else [])])


def _has_all(directory: Path, names: Iterable[str]) -> bool:
    return all((directory / name).is_file() for name in names)


async def _fetch(wanted: WantedCheckpoint, listener: FetchListener) -> Path:
    """Fetch what is missing; return where it lies. Raises `RecountError`."""
    directory = Path(wanted.directory)
    if wanted.manifest is not None:
        manifest = load_manifest(wanted.manifest)
        async with _alone_in(directory):
            await fetch(
                manifest,
                Store(manifest, directory.parent, directory.parent, checkpoint=directory),
                groups=frozenset({Group.CHECKPOINT}),
                revision=wanted.commit,
                listener=listener,
            )
        return directory
    if wanted.repository is not None:
        return (await find_checkpoint(wanted.repository, wanted.commit)).directory
    missing = [name for name in wanted.sha256 if not (directory / name).is_file()]
    raise RecountError(
        f"{directory} lacks {_some(missing)}, and nothing says where it could be fetched from",
        remedy="copy the directory to the node, or share it between the nodes",
    )


@asynccontextmanager
async def _alone_in(directory: Path) -> AsyncIterator[None]:
    """Hold a lock beside the directory: of two nodes that share it one fetches, the other finds it there."""
    await run_sync(make_directory, directory)
    with (directory.parent / f".{directory.name}.fetching").open("w", encoding="ascii") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await anyio.sleep(LOCK_POLL_S)
        yield  # closing the file gives the lock back


async def _hashes(directory: Path, names: Collection[str], listener: FetchListener) -> dict[str, str]:
    """Return the SHA-256 of those files that are there, read only where no record of the fetch knows it."""
    record = await run_sync(HashRecord, directory)
    slots = anyio.CapacityLimiter(HASHED_AT_ONCE)
    found: dict[str, str] = {}

    async def one(name: str) -> None:
        async with slots:
            path = directory / name
            known = await run_sync(record.known, name)
            if known is None and await run_sync(path.is_file):
                known = await hash_file(path, name=name, listener=listener)
            if known is not None:
                found[name] = known

    with first_error_only():
        async with anyio.create_task_group() as tasks:
            for name in names:
                tasks.start_soon(one, name)
    return {name: found[name] for name in names if name in found}


@dataclass
class NodeProgress:
    """How far a node is with its checkpoint: what it is at, and bytes of the files it has come to."""

    phase: Phase = Phase.HASHING
    done_bytes: int = 0
    total_bytes: int = 0


@dataclass
class ProgressKeeper:
    """Listens to a node's fetch and remembers where it is, for the driver to ask."""

    _files: dict[tuple[Phase, str], tuple[int, int]] = field(default_factory=dict)
    _phase: Phase = Phase.HASHING

    def progress(self, progress: FileProgress) -> None:
        """Take note of a file's progress."""
        self._phase = progress.phase
        total = progress.total_bytes or progress.done_bytes
        self._files[progress.phase, progress.name] = (progress.done_bytes, total)

    def done(self, done: FileDone) -> None:
        """Nothing: its progress said so."""

    def note(self, text: str) -> None:
        """Nothing: what a person should know is told when it is refused."""

    def now(self) -> NodeProgress:
        """Return how far it is in what it is at."""
        files = [size for (phase, _), size in self._files.items() if phase is self._phase]
        return NodeProgress(self._phase, sum(done for done, _ in files), sum(total for _, total in files))
