"""What the doctor is asked about: a profile, and where its run would have its files and its sandbox."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from runner.artifacts import Group, Manifest, Store
from runner.artifacts.settings import FetchSettings
from runner.engines.vllm.checkpoint import is_hub_id
from runner.engines.vllm.kind import VllmEngineSettings
from runner.profile import Profile
from sandbox import Policy


@dataclass(frozen=True)
class Question:
    """What would run. `overrides` are the settings that were chosen in the place of the profile's.

    `policy` is what commands would run under without a broker; `data` names other files for data sets.
    """

    profile: Profile
    profile_path: Path
    policy: Policy
    fetching: FetchSettings
    broker: Path | None = None
    results_dir: Path = Path("results")
    models_dir: Path = Path("models")
    data_dir: Path = Path("datasets")
    manifest: Manifest | None = None
    source: Path | None = None
    """A directory that missing files are taken from in the place of the network."""
    overrides: Mapping[str, Any] = field(default_factory=dict)
    data: Mapping[str, Path] = field(default_factory=dict)

    @property
    def vllm(self) -> VllmEngineSettings | None:
        """The engine's settings where the checkpoint is served here."""
        return self.profile.engine if isinstance(self.profile.engine, VllmEngineSettings) else None

    @property
    def serves_on_gpus(self) -> bool:
        """Whether the run needs GPUs of this machine."""
        return self.vllm is not None and self.vllm.device == "cuda"

    @cached_property
    def store(self) -> Store | None:
        """Where the manifest's files lie; None where there is nothing to fetch."""
        return None if self.manifest is None else Store(self.manifest, self.models_dir, self.data_dir)

    @property
    def fetches_checkpoint(self) -> bool:
        """Whether the checkpoint is the manifest's, and not one that was named."""
        return (
            self.manifest is not None
            and self.vllm is not None
            and self.vllm.model == self.manifest.hub.repository
        )

    @property
    def groups(self) -> frozenset[Group]:
        """Which of the manifest's files this run needs."""
        wanted = {Group.REPORT}
        if any(one.name not in self.data for one in self.profile.datasets):
            wanted.add(Group.DATASETS)
        if self.fetches_checkpoint:
            wanted.add(Group.CHECKPOINT)
        if "pack" not in self.overrides:
            wanted.add(Group.PROTOCOL)
        return frozenset(wanted)

    @property
    def checkpoint(self) -> Path | None:
        """Where the checkpoint lies, or will; None where that is the hub's cache, or nowhere."""
        if self.vllm is None:
            return None
        if not is_hub_id(self.vllm.model):
            return Path(self.vllm.model)
        return self.store.checkpoint if self.store is not None and self.fetches_checkpoint else None
