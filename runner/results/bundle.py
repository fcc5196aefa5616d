"""A run as one file: journal, results and summary with a manifest of their hashes, the same bytes every time.

A bundle comes from somebody else: nothing in it is trusted. Only files of the known names are taken out, into
a directory of their own, and no more of each than `MOST_BYTES`.
"""

import hashlib
import json
import os
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from runner.errors import InfrastructureError, UserError
from runner.hashing import sha256_file
from runner.journal import JOURNAL_NAME, is_being_written, read_state
from runner.results.check import RunReport, check_run
from runner.results.files import RESULTS_NAME, SUMMARY_NAME

BUNDLE_SUFFIX = ".bundle.zip"
MANIFEST_NAME = "manifest.json"
FORMAT = "recount-bundle"
VERSION = 1
FILES = (JOURNAL_NAME, RESULTS_NAME, SUMMARY_NAME)
MOST_BYTES = 4 << 30
"""Of one file of a bundle: far more than any run writes, far less than a disk."""

_BLOCK_BYTES = 1 << 20
_METHODS = frozenset({zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED})
_DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, RuntimeError)
"""What `zipfile` raises for a file that is none, or not as it was, or that it cannot read."""


def default_bundle_path(run_dir: Path) -> Path:
    """Return where a run's bundle goes unless told otherwise: beside its directory."""
    run_dir = run_dir.resolve()
    return run_dir.parent / f"{run_dir.name}{BUNDLE_SUFFIX}"


def write_bundle(run_dir: Path, out: Path) -> None:
    """Write a run's bundle; raise `UserError` for a run that is at work or has no results."""
    journal = run_dir / JOURNAL_NAME
    state = read_state(journal)
    if is_being_written(journal):
        raise UserError(f"{run_dir} is at work", remedy="wait for its end")
    for name in FILES:
        if not (run_dir / name).is_file():
            raise UserError(f"{run_dir} has no {name}", remedy="let the run end, then export it")
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        "run_id": "" if state.started is None else state.started.run_id,
        "files": {
            name: {"sha256": sha256_file(run_dir / name), "size_bytes": (run_dir / name).stat().st_size}
            for name in FILES
        },
    }
    try:
        descriptor, aside = tempfile.mkstemp(dir=out.parent, prefix=f".{out.name}.")
    except OSError as error:
        raise UserError(
            f"cannot write {out}: {error.strerror or error}", remedy="name a writable --out"
        ) from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            _pack(file, run_dir, json.dumps(manifest, indent=1) + "\n")
            file.flush()
            os.fsync(file.fileno())
        Path(aside).chmod(0o644)
        Path(aside).replace(out)
    except OSError as error:
        raise InfrastructureError(f"cannot write {out}: {error.strerror or error}") from error
    finally:
        Path(aside).unlink(missing_ok=True)


def check_bundle(path: Path) -> RunReport:
    """Check a bundle offline: its manifest, then everything as in a run's directory."""
    report = RunReport()
    with tempfile.TemporaryDirectory(prefix="recount-bundle-") as name:
        directory = Path(name)
        report.take("bundle", "its files are those of its manifest", _unpack(path, directory))
        if not (directory / JOURNAL_NAME).is_file():
            return report
        report.notes.append("a bundle holds no traces and no inputs: those were not compared")
        return check_run(directory, whole=False, report=report)


def _pack(file: IO[bytes], run_dir: Path, manifest: str) -> None:
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(_member(MANIFEST_NAME, len(manifest)), manifest)
        for name in FILES:
            with (run_dir / name).open("rb") as content:
                member = _member(name, os.fstat(content.fileno()).st_size)
                with archive.open(member, "w") as target:
                    shutil.copyfileobj(content, target, _BLOCK_BYTES)


def _member(name: str, size: int) -> zipfile.ZipInfo:
    """Describe a file without time, owner or system: one run is one sequence of bytes."""
    member = zipfile.ZipInfo(name)
    member.compress_type, member.create_system = zipfile.ZIP_DEFLATED, 3
    member.external_attr = 0o100644 << 16
    member.file_size = size
    return member


def _unpack(path: Path, directory: Path) -> Iterator[tuple[str, str]]:
    """Take the known files out and hold them against the manifest; yield what does not fit."""
    found: dict[str, tuple[str, int]] = {}
    try:
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                name = member.filename
                if name not in {MANIFEST_NAME, *FILES}:
                    yield f"bundle: {name}", "is nothing that belongs into a bundle"
                elif name in found:
                    yield f"bundle: {name}", "is there twice"
                elif member.file_size > MOST_BYTES or member.compress_type not in _METHODS:
                    yield f"bundle: {name}", f"is compressed otherwise, or larger than {MOST_BYTES} bytes"
                else:
                    found[name] = _take_out(archive, member, directory / name)
    except _DAMAGED as error:
        yield "bundle", f"is damaged: {error}"
    yield from _check_manifest(directory / MANIFEST_NAME, found)


def _take_out(archive: zipfile.ZipFile, member: zipfile.ZipInfo, path: Path) -> tuple[str, int]:
    """Write one file, no more of it than it says; return its hash and size."""
    digest, size = hashlib.sha256(), 0
    with archive.open(member) as content, path.open("xb") as out:
        while block := content.read(_BLOCK_BYTES):
            digest.update(block)
            size += len(block)
            out.write(block)
    return digest.hexdigest(), size


def _check_manifest(path: Path, found: dict[str, tuple[str, int]]) -> Iterator[tuple[str, str]]:
    where = f"bundle: {MANIFEST_NAME}"
    try:
        manifest: Any = json.loads(path.read_bytes())
        files = manifest["files"]
        named = {str(name): (str(one["sha256"]), int(one["size_bytes"])) for name, one in files.items()}
        kind = (manifest["format"], manifest["version"])
    except FileNotFoundError:
        yield where, "is missing"
        return
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        yield where, f"cannot be read: {error}"
        return
    if kind != (FORMAT, VERSION):
        yield where, f"is of {kind[0]} {kind[1]}, not {FORMAT} {VERSION}"
    for name in FILES:
        if name not in found:
            yield f"bundle: {name}", "is missing"
        elif named.get(name) != found[name]:
            wanted = named.get(name, ("not named", 0))[0]
            yield f"bundle: {name}", f"SHA-256 {found[name][0]}, in the manifest {wanted}"
