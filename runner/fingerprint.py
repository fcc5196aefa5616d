"""Is a run that goes on still the same run? What it is made of, held against its first event. Pure.

A difference that changes what a trajectory would say, see or score refuses; how much runs at once, where
files lie and on which machine does not, and is recorded. What is not known to be harmless refuses.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from typing_extensions import override

from runner.clean import clean_text
from runner.engines.kind import EngineKind
from runner.engines.registry import KINDS
from runner.events import ArtifactsRecord, ComparisonRecord, DatasetRecord, RunStarted
from sandbox.types import HARMLESS_IDENTITY

_SHOWN_CHARS = 120
_ABSENT = "nothing"

_HARMLESS_SETTINGS = frozenset({"description", "concurrency", "retry", "pack", "sandbox.policy"})
"""Settings and sections of a profile, beside those of its kind of engine. Files are compared by their hashes,
the policy by its digest."""
_HARMLESS_SANDBOX = HARMLESS_IDENTITY | {"nodes"}


_NAMED_FILES = frozenset({"pack", "engine.script"})
"""A run that goes on compares files by their hashes; a profile beside the bundled one only names them."""


@dataclass(frozen=True)
class Difference:
    """One thing that is otherwise than when the run began."""

    what: str
    then: str
    now: str

    @override
    def __str__(self) -> str:
        """Say it in a line, clean."""
        return f"{_shown(self.what)}: then {_shown(self.then)}, now {_shown(self.now)}"


@dataclass
class Differences:
    """Those that make it another run, and those that do not."""

    refused: list[Difference] = field(default_factory=list)
    harmless: list[Difference] = field(default_factory=list)

    def __add__(self, other: "Differences") -> "Differences":
        """Return both."""
        return Differences([*self.refused, *other.refused], [*self.harmless, *other.harmless])


def compare_plans(
    then: RunStarted,
    *,
    profile: Mapping[str, object],
    datasets: Iterable[DatasetRecord],
    protocol: Mapping[str, object],
    comparison: ComparisonRecord | None,
) -> Differences:
    """Hold what is known before anything starts against a run's first event."""
    found = Differences()
    same = _harmless_settings(then.profile, profile)
    for what, one, other in _changed(_settings(then.profile), _settings(profile)):
        # A setting that the earlier Recount did not know had no other value than today's default.
        _take(found, what, one, other, harmless=_is_below(what, same) or one is _Absent)
    for what, one, other in _changed(_datasets(then.datasets), _datasets(datasets)):
        _take(found, what, one, other, harmless=what.endswith(" file"))
    for what, one, other in _changed(_flat(then.protocol), _flat(protocol)):
        _take(found, f"protocol {what}", one, other, harmless=what == "pack")
    for what, one, other in _changed(_comparison(then.comparison), _comparison(comparison)):
        # The verdict is made of what stands in the first event.
        _take(found, what, one, other, harmless=what == "published rows SHA-256")
    return found


def changed_settings(bundled: Mapping[str, object], own: Mapping[str, object]) -> list[str]:
    """Return in what a profile differs from the bundled one of its name, without what changes no result."""
    found = []
    same = _harmless_settings(bundled, own) - _NAMED_FILES
    for what, one, other in _changed(_with_datasets(bundled), _with_datasets(own)):
        if not _is_below(what, same) and not what.endswith(".path"):
            shown = [_ABSENT if value is _Absent else str(value) for value in (other, one)]
            found.append(f"{_shown(what)} = {_shown(shown[0])}, the bundled profile's is {_shown(shown[1])}")
    return found


def compare_sandboxes(then: Mapping[str, str], now: Mapping[str, str]) -> Differences:
    """Hold what commands run in against what they ran in."""
    found = Differences()
    for what, one, other in _changed(dict(then), dict(now)):
        _take(found, f"sandbox {what}", one, other, harmless=what in _HARMLESS_SANDBOX)
    return found


def compare_engines(
    then: Mapping[str, object],
    now: Mapping[str, object],
    artifacts_then: ArtifactsRecord | None = None,
    artifacts_now: ArtifactsRecord | None = None,
) -> Differences:
    """Hold what an engine tells of itself, and the files that were hashed for it, against what they were."""
    found = Differences()
    hashes_then = {} if artifacts_then is None else artifacts_then.sha256
    hashes_now = {} if artifacts_now is None else artifacts_now.sha256
    both = [name for name in hashes_then if name in hashes_now]
    for name in both:
        if hashes_then[name] != hashes_now[name]:
            _take(found, f"SHA-256 of {name}", hashes_then[name], hashes_now[name], harmless=False)
    same = {name for kind in _kinds(then, now) for name in kind.harmless_identity}
    for what, one, other in _changed(_flat(then), _flat(now)):
        _take(found, f"engine {what}", one, other, harmless=_is_below(what, same))
    return found


def _kinds(*engines: object) -> list[EngineKind[Any]]:
    """Return the kinds of engines, by their sections or by what they tell of themselves."""
    named = {str(one.get("kind")) for one in engines if isinstance(one, Mapping)}
    return [KINDS[name] for name in named if name in KINDS]


def _harmless_settings(*profiles: Mapping[str, object]) -> frozenset[str]:
    kinds = _kinds(*(one.get("engine") for one in profiles))
    return _HARMLESS_SETTINGS | {f"engine.{name}" for kind in kinds for name in kind.harmless_settings}


class _Absent:
    """In the place of what one side does not have."""


def _take(found: Differences, what: str, then: object, now: object, *, harmless: bool) -> None:
    shown = [_ABSENT if one is _Absent else str(one) for one in (then, now)]
    (found.harmless if harmless else found.refused).append(Difference(what, shown[0], shown[1]))


def _changed(then: Mapping[str, object], now: Mapping[str, object]) -> Iterator[tuple[str, object, object]]:
    for what in (*then, *(one for one in now if one not in then)):
        one, other = then.get(what, _Absent), now.get(what, _Absent)
        if one != other:
            yield what, one, other


def _flat(document: Mapping[str, object], before: str = "") -> dict[str, object]:
    """Return the values of nested mappings by dotted name; a sequence is a value."""
    found: dict[str, object] = {}
    for name, value in document.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{before}{name}.")
        else:
            found[f"{before}{name}"] = list(value) if isinstance(value, tuple) else value
    return found


def _settings(profile: Mapping[str, object]) -> dict[str, object]:
    """Return a profile's settings; its data sets are compared as they were read."""
    return _flat({name: value for name, value in profile.items() if name != "datasets"})


def _with_datasets(profile: Mapping[str, object]) -> dict[str, object]:
    datasets = profile.get("datasets")
    named = {str(one["name"]): one for one in datasets} if isinstance(datasets, list | tuple) else {}
    return _flat({**profile, "datasets": named})


def _datasets(records: Iterable[DatasetRecord]) -> dict[str, object]:
    found: dict[str, object] = {}
    order: list[str] = []
    for one in records:
        name = f"data set {one.name}"
        order.append(one.name)
        found |= {
            f"{name} SHA-256": one.sha256,
            f"{name} base seed": one.base_seed,
            f"{name} problems": len(one.problems),
            f"{name} file": one.path,
        }
        found |= {
            f"{name} row {problem.row_index}": (problem.id, problem.question, problem.answer)
            for problem in one.problems
        }
    return {"data sets": order, **found}


def _comparison(record: ComparisonRecord | None) -> dict[str, object]:
    if record is None:
        return {}
    return {
        "published figures SHA-256": record.sha256,
        "verdict margin": record.margin,
        "published rows SHA-256": None if record.rows is None else record.rows.sha256,
    }


def _is_below(what: str, names: Iterable[str]) -> bool:
    return any(what == name or what.startswith(f"{name}.") for name in names)


def _shown(text: str) -> str:
    return clean_text(text, keep_lines=False, limit_chars=_SHOWN_CHARS)
