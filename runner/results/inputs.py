"""A run's inputs where they lie on this machine: are they still the files that the journal names by hash?

An input may be elsewhere, or nowhere: then nothing is said against the run. One that is there and is another
file is named, with the problems in which it differs from what the run saw.
"""

from pathlib import Path

from runner.datasets import load_dataset
from runner.errors import UserError
from runner.events import DatasetRecord, RunStarted
from runner.hashing import sha256_file
from runner.paths import is_file
from runner.resources import PROTOCOL_DIR, bundled_dataset
from runner.state import RunState

_BUNDLED = "bundled:"
_MOST_NAMED = 5

Places = list[tuple[str, str]]


def check_inputs(state: RunState, checked: Places, differences: Places, notes: list[str]) -> None:
    """Hash data sets and protocol pack where the profile and its overrides name them."""
    started = state.started
    if started is None:
        return
    written = _written(started)
    for record in started.datasets:
        name = f"data set {record.name}"
        path = _dataset_path(written.get(record.name, ""))
        if path is None:
            notes.append(f"{name} is not where the profile says: its hash was not compared")
        elif (found := _hash(path)) == record.sha256:
            checked.append((name, f"{path.name} SHA-256 {found}"))
        else:
            differences.append((name, f"{path} is another file: SHA-256 {found}, the run's {record.sha256}"))
            differences += _changed_problems(record, path)
    _check_pack(started, checked, differences, notes)


def _check_pack(started: RunStarted, checked: Places, differences: Places, notes: list[str]) -> None:
    written, wanted = str(started.profile.get("pack", "")), started.protocol.get("pack_sha256")
    name = written.removeprefix(_BUNDLED)
    path = PROTOCOL_DIR / f"{name}.json" if written.startswith(_BUNDLED) else Path(written)
    if not is_file(path):
        notes.append("the protocol pack is not where the profile says: its hash was not compared")
    elif (found := _hash(path)) == wanted:
        checked.append(("protocol pack", f"{path.name} SHA-256 {found}"))
    else:
        differences.append(("protocol pack", f"{path} is another file: SHA-256 {found}, the run's {wanted}"))


def _written(started: RunStarted) -> dict[str, str]:
    """Return what profile and overrides say of each data set's file."""
    datasets = started.profile.get("datasets") or ()
    written = {str(one.get("name")): str(one.get("path")) for one in datasets if isinstance(one, dict)}
    for override in started.overrides:
        setting, _, value = override.partition("=")
        if setting.startswith("data."):
            written[setting.removeprefix("data.")] = value
    return written


def _dataset_path(written: str) -> Path | None:
    bundled = written.startswith(_BUNDLED)
    path = bundled_dataset(written.removeprefix(_BUNDLED)) if bundled else Path(written)
    return path if written and is_file(path) else None


def _hash(path: Path) -> str:
    try:
        return sha256_file(path)
    except OSError as error:
        return f"none ({error.strerror or error})"


def _changed_problems(record: DatasetRecord, path: Path) -> Places:
    """Name the problems that the file holds otherwise."""
    try:
        dataset = load_dataset(record.name, path, base_seed=record.base_seed)
    except UserError as error:
        return [(f"data set {record.name}", error.message)]
    there = {problem.row_index: problem for problem in dataset.problems}
    changed = [
        problem
        for problem in record.problems
        if (one := there.get(problem.row_index)) is None
        or (one.id, one.question, one.answer) != (problem.id, problem.question, problem.answer)
    ]
    return [
        (f"data set {record.name}: row {problem.row_index}", f"is not {problem.id} as the run saw it")
        for problem in changed[:_MOST_NAMED]
    ]
