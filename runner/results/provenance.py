"""Where results come from: hashes, versions, images, machine, seeds, out of the first event. Pure."""

from typing import Any

from runner.events import ArtifactsRecord, ProvenanceRecord, RunStarted

_UNRECORDED = "the journal does not hold it: it was written by an earlier Recount"


def provenance_results(started: RunStarted) -> dict[str, Any]:
    """Return what is told of a run's origin; what is None has its reason in `not_told`."""
    record = started.provenance or ProvenanceRecord(not_told={"versions": _UNRECORDED, "source": _UNRECORDED})
    not_told: dict[str, str] = dict(record.not_told)
    hashes = _hashes(started, record.artifacts, not_told)
    images = _images(started, record, not_told)
    return {
        "versions": dict(record.versions),
        "source": None if record.source is None else record.source.model_dump(mode="json"),
        "images": images,
        "gpus": None if record.gpus is None else [one.model_dump(mode="json") for one in record.gpus],
        "driver": None if record.driver is None else record.driver.model_dump(mode="json"),
        "hashes": hashes,
        "artifacts": None
        if record.artifacts is None
        else record.artifacts.model_dump(mode="json", exclude={"sha256"}),
        "seeds": _seeds(started, not_told),
        "not_told": dict(sorted(not_told.items())),
    }


def _hashes(
    started: RunStarted, artifacts: ArtifactsRecord | None, not_told: dict[str, str]
) -> dict[str, Any]:
    comparison = started.comparison
    rows = None if comparison is None else comparison.rows
    hashes = {
        "data_sets": {one.name: one.sha256 for one in started.datasets},
        "protocol_pack": started.protocol.get("pack_sha256"),
        "sandbox_policy": started.sandbox.get("policy_sha256"),
        "published_figures": None if comparison is None else comparison.sha256,
        "published_rows": None if rows is None else rows.sha256,
        "artifacts": None if artifacts is None else dict(artifacts.sha256),
    }
    no_figures = "the profile names no published figures"
    reasons = {
        "protocol_pack": _UNRECORDED,
        "sandbox_policy": "the sandbox does not tell of a policy",
        "published_figures": no_figures,
        "published_rows": no_figures if comparison is None else comparison.no_rows_because,
        "artifacts": "nothing was fetched for this run",
    }
    _note(hashes, "hashes", reasons, not_told)
    return hashes


def _images(started: RunStarted, record: ProvenanceRecord, not_told: dict[str, str]) -> dict[str, Any]:
    images = {
        "sandbox": started.sandbox.get("image"),
        "sandbox_id": started.sandbox.get("image_id"),
        "sandbox_contents_sha256": started.sandbox.get("image_contents_sha256"),
        "runner_id": record.runner_image,
    }
    why = "the sandbox does not run in an image"
    reasons = dict.fromkeys(("sandbox", "sandbox_id", "sandbox_contents_sha256"), why)
    reasons["runner_id"] = not_told.pop("runner_image", _UNRECORDED)
    _note(images, "images", reasons, not_told)
    return images


def _seeds(started: RunStarted, not_told: dict[str, str]) -> dict[str, Any]:
    seeds = {
        "data_sets": {one.name: one.base_seed for one in started.datasets},
        "engines": started.engine.get("engine_seeds"),
    }
    _note(seeds, "seeds", {"engines": "the engine tells of no seed of its own"}, not_told)
    return seeds


def _note(found: dict[str, Any], section: str, reasons: dict[str, str], not_told: dict[str, str]) -> None:
    for name, value in found.items():
        if value is None:
            not_told[f"{section}.{name}"] = reasons[name]
