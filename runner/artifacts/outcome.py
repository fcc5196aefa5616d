"""What a fetch hands to a run: where everything is, what it is, and what has to be said about it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from runner.artifacts.claims import Checked, Finding

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
    sha256: Mapping[str, str]
    """Every file's hash, by its path in its repository (the pack's by `protocol pack`)."""
    unverified: tuple[str, ...]
    """What was let pass although it is not the report's: a run with it is no reproduction."""
    unpinned: tuple[str, ...]
    """Files without a published hash, as they were fetched."""
    claims: tuple[Checked, ...] = field(default=())
    """What the files say about themselves, held against the manifest."""
    manifest_sha256: str | None = None
    """The hash of the manifest's file: what its name stands for."""
    unpinned_inputs: tuple[str, ...] = ()
    """What decides a result and for which the manifest gives no hash: shards, `protocol pack`."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What a result should say about its inputs, a line each."""
        return (
            *(f"unverified: {one}" for one in self.unverified),
            *(f"unpinned: {one}" for one in self.unpinned),
            *(one.line for one in self.claims if one.finding is not Finding.HOLDS),
        )
