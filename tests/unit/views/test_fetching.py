"""A fetch moves a run's display through its first phases."""

from typing import Any

from runner.artifacts.progress import FetchListener, FileDone, FileProgress
from runner.artifacts.progress import Phase as FilePhase
from runner.views.fetching import FetchPhases
from runner.views.phases import Phase


class Told:
    def __init__(self) -> None:
        self.phases: list[tuple[Any, ...]] = []
        self.notes: list[str] = []
        self.note = self.notes.append

    def phase(self, phase: Phase, detail: str = "", **how: Any) -> None:
        self.phases.append((phase, detail, how["done"], how["total"], how["in_bytes"]))


def test_files_are_fetched_then_verified() -> None:
    told = Told()
    listener: FetchListener = FetchPhases(told)
    for phase in (FilePhase.FETCHING, FilePhase.COPYING, FilePhase.HASHING):
        listener.progress(FileProgress("model.safetensors", phase, 3, 8, 1.0, 5.0))
    listener.done(FileDone("model.safetensors", "0" * 64, 8, "fetched", pinned=True))
    listener.note("tried again")

    assert told.phases == [
        (phase, "model.safetensors", 3, 8, True)
        for phase in (Phase.FETCHING, Phase.FETCHING, Phase.VERIFYING)
    ]
    assert told.notes == ["tried again"]
