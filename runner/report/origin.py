"""Where a run's figures come from, as rows of a table: hashes, versions, machine, seeds. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

Row = tuple[str, str]


def origin(results: Mapping[str, Any]) -> list[tuple[str, list[Row]]]:
    """Return the tables of a run's provenance by their headings; empty ones are left out."""
    provenance = results["provenance"]
    not_told = provenance["not_told"]
    found = [
        ("Versions", _flat(provenance["versions"])),
        ("Source", _flat(provenance["source"] or {})),
        ("Machine", _machine(provenance)),
        ("Images", _flat(provenance["images"])),
        ("SHA-256", _flat(provenance["hashes"])),
        ("Seeds", _flat(provenance["seeds"])),
        ("Artifacts", _flat(provenance["artifacts"] or {})),
        ("Protocol", _flat(results["protocol"])),
        ("Engine", _flat(results["engine"])),
        ("Sandbox", _flat(results["sandbox"])),
        (
            "Concurrency",
            _flat({key: value for key, value in results["concurrency"].items() if key != "notes"}),
        ),
        ("Not told", sorted((name, str(why)) for name, why in not_told.items())),
    ]
    tables = [(heading, list(rows)) for heading, rows in found]
    return [(heading, rows) for heading, rows in tables if rows]


def _machine(provenance: Mapping[str, Any]) -> Iterator[Row]:
    for index, gpu in enumerate(provenance["gpus"] or ()):
        yield f"GPU {index}", f"{gpu['name']}, {gpu['memory_bytes'] / 2**30:.1f} GiB"
    yield from _flat({"driver": provenance["driver"]})


def _flat(value: object, before: str = "") -> Iterator[Row]:
    """Yield what is told as dotted names with values."""
    if isinstance(value, Mapping):
        for key, one in value.items():
            yield from _flat(one, f"{before}.{key}" if before else str(key))
    elif isinstance(value, list | tuple) and not all(isinstance(one, str | int | float) for one in value):
        for index, one in enumerate(value):
            yield from _flat(one, f"{before}.{index}")
    elif isinstance(value, list | tuple):
        if value:
            yield before, ", ".join(map(str, value))
    elif value is not None:
        yield before, str(value)
