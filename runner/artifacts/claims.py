"""What a published file says about itself, held against what is claimed of it.

The layouts of these files are not part of any promise, so they are read by meaning: a value is found
wherever a key of its name stands. What contradicts is refused, what is not there is said to be not found.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from runner.artifacts.manifest import Claim, Lineage, Manifest

_GENERATION_KEYS = frozenset({"generation", "generations"})
_UPDATE_KEYS = frozenset({"seeds", "weights", "rewards", "alpha"})
"""One of these in a record with a generation makes it an update; evaluations have a generation too."""
MAX_FILE_BYTES = 512 * 1024 * 1024
"""A history of 25 updates with all their samples takes some 50 MB; what is far larger is another file."""


class Finding(str, Enum):
    """What became of one claim."""

    HOLDS = "holds"
    NOT_FOUND = "not found"
    CONTRADICTED = "contradicted"


@dataclass(frozen=True)
class Checked:
    """One claim and its finding; `found` is what the file says, in print."""

    path: str
    what: str
    finding: Finding
    found: str = ""

    @property
    def line(self) -> str:
        """The finding in one line."""
        said = f" (the file says {self.found})" if self.found else ""
        return f"{self.path}: {self.what}: {self.finding.value}{said}"


def check_claims(manifest: Manifest, files: Mapping[str, Path]) -> tuple[Checked, ...]:
    """Check every claim about a file that is there; `files` maps paths of the manifest to where they lie."""
    told: list[Claim | Lineage] = [*manifest.lineage, *manifest.claims]
    results: dict[str, list[Checked]] = {}
    for path in dict.fromkeys(one.path for one in told):
        where = files.get(path)
        about = [one for one in told if one.path == path]
        results[path] = [] if where is None else _check_file(where, about)
    return tuple(one for checked in results.values() for one in checked)


def _check_file(where: Path, about: list[Claim | Lineage]) -> list[Checked]:
    path = about[0].path
    try:
        if where.stat().st_size > MAX_FILE_BYTES:
            return [Checked(path, "can be read", Finding.CONTRADICTED, "more than it can hold")]
        document = json.loads(where.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        return [Checked(path, "can be read as JSON", Finding.CONTRADICTED, str(error)[:200])]
    return [
        check_claim(document, one) if isinstance(one, Claim) else check_lineage(document, one)
        for one in about
    ]


def check_claim(document: object, claim: Claim) -> Checked:
    """Hold one document against one claim."""
    found = list(_values(document, claim.keys, claim.within))
    kinds = {isinstance(one, str) for one in claim.one_of}
    found = [one for one in found if isinstance(one, str) in kinds]
    agreeing = [one for one in found if any(_equal(one, right, claim.tolerance) for right in claim.one_of)]
    if not found:
        finding = Finding.NOT_FOUND
    elif len(agreeing) == len(found) or (agreeing and not claim.every):
        return Checked(claim.path, claim.what, Finding.HOLDS)
    else:
        finding = Finding.CONTRADICTED
    others = dict.fromkeys(str(one) for one in found if one not in agreeing)
    return Checked(claim.path, claim.what, finding, ", ".join(list(others)[:6]))


def check_lineage(document: object, lineage: Lineage) -> Checked:
    """Check that the document tells of each generation's update once, and of no other."""
    what = f"updates of generations {lineage.first_generation} to {lineage.last_generation}"
    wanted = list(range(lineage.first_generation, lineage.last_generation + 1))
    generations = sorted(_update_generations(document))
    if not generations:
        return Checked(lineage.path, what, Finding.NOT_FOUND)
    if generations == wanted:
        return Checked(lineage.path, what, Finding.HOLDS)
    return Checked(lineage.path, what, Finding.CONTRADICTED, _ranges(generations))


def _update_generations(document: object) -> list[int]:
    """Return the generations of records that are updates, else those of a list named so."""
    records = [
        generation
        for one in _objects(document)
        if isinstance(generation := one.get("generation"), int)
        and not isinstance(generation, bool)
        and not _UPDATE_KEYS.isdisjoint(one)
    ]
    if records:
        return records
    for one in _objects(document):
        for key in _GENERATION_KEYS:
            named = one.get(key)
            if isinstance(named, list) and named and all(type(item) is int for item in named):
                first_to_last = len(named) == 2 and named[1] - named[0] > 1
                return list(range(named[0], named[1] + 1)) if first_to_last else named
    return []


def _objects(document: object) -> Iterator[Mapping[str, object]]:
    """Yield every object, outer ones first; without recursion, since files may nest as they like."""
    waiting: list[object] = [document]
    while waiting:
        one = waiting.pop()
        if isinstance(one, Mapping):
            yield one
            waiting.extend(reversed(list(one.values())))
        elif isinstance(one, list):
            waiting.extend(reversed(one))


def _values(document: object, keys: tuple[str, ...], within: tuple[str, ...]) -> Iterator[float | str]:
    """Yield numbers and texts under `keys`, in any case, wherever they stand below all words of `within`."""
    names = {key.lower() for key in keys}
    waiting: list[tuple[object, tuple[str, ...]]] = [(document, tuple(word.lower() for word in within))]
    while waiting:
        one, missing = waiting.pop()
        if isinstance(one, list):
            waiting.extend((item, missing) for item in reversed(one))
            continue
        if not isinstance(one, Mapping):
            continue
        # What a record says of itself counts as a place as well: {"dataset": "dapo", "mean": …}.
        own = " ".join(value.lower() for value in one.values() if isinstance(value, str) and len(value) < 80)
        missing = tuple(word for word in missing if word not in own)
        for key, value in one.items():
            if not missing and key.lower() in names and _is_value(value):
                yield value
        for key, value in reversed(list(one.items())):
            waiting.append((value, tuple(word for word in missing if word not in key.lower())))


def _is_value(value: object) -> bool:
    return isinstance(value, int | float | str) and not isinstance(value, bool)


def _equal(found: float | str, right: float | str, tolerance: float) -> bool:
    if isinstance(found, str) or isinstance(right, str):
        return found == right
    return abs(found - right) <= tolerance


def _ranges(numbers: list[int]) -> str:
    """Print sorted integers shortly: 0-23, 25."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ", ".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts[:8])
