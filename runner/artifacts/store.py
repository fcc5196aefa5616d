"""Where fetched files lie on this machine, and which of them were let pass without being the right ones."""

from functools import cached_property
from pathlib import Path

from runner.artifacts.manifest import ArtifactFile, Group, Manifest, Origin
from runner.artifacts.record import HashRecord


class Store:
    """One manifest's files: the checkpoint below `models_dir`, everything else below `data_dir`."""

    def __init__(
        self, manifest: Manifest, models_dir: Path, data_dir: Path, *, checkpoint: Path | None = None
    ) -> None:
        """`checkpoint` names the checkpoint's own directory, else it has the repository's name."""
        self.manifest = manifest
        self.data_dir = data_dir
        self.checkpoint = checkpoint or models_dir / manifest.hub.repository.rpartition("/")[2]

    @cached_property
    def hub_record(self) -> HashRecord:
        """The record of the checkpoint's directory."""
        return HashRecord(self.checkpoint)

    @cached_property
    def data_record(self) -> HashRecord:
        """The record of the data directory."""
        return HashRecord(self.data_dir)

    @property
    def unverified(self) -> tuple[str, ...]:
        """What was let pass by `--allow-unverified`, a line each: a run with it is no reproduction."""
        return tuple(
            f"{name}: {why}"
            for record in (self.hub_record, self.data_record)
            for name, why in sorted(record.unverified.items())
        )

    def record_of(self, file: ArtifactFile) -> HashRecord:
        """Return the record of the directory that a file lies in."""
        return self.hub_record if file.origin is Origin.HUB else self.data_record

    @staticmethod
    def name_of(file: ArtifactFile) -> str:
        """Return a file's path within its directory."""
        return file.path if file.origin is Origin.HUB else file.place

    def path_of(self, file: ArtifactFile) -> Path:
        """Return where a file lies, or will."""
        return self.record_of(file).directory / self.name_of(file)

    @property
    def pack_path(self) -> Path | None:
        """Where the protocol pack lies, or will."""
        return None if self.manifest.pack is None else self.data_dir / self.manifest.pack.place

    def missing(self, groups: frozenset[Group]) -> tuple[str, ...]:
        """Return what a fetch of these groups would have to bring, by path; hashes nothing, asks nobody."""
        return tuple(
            one.path
            for one in self.manifest.files
            if one.group in groups and one.required and self.record_of(one).known(self.name_of(one)) is None
        )
