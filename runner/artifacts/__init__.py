"""Fetching and verifying what a published report needs and this package does not ship.

Checkpoint, data sets, protocol sources and the report's own rows come from two public repositories. Every
file is hashed; what has a published hash must match it, what has none is recorded and said to be unpinned.
"""

from runner.artifacts.fetch import fetch
from runner.artifacts.manifest import Group, Manifest, load_manifest, manifest_for
from runner.artifacts.outcome import Artifacts
from runner.artifacts.store import Store
from runner.artifacts.verify import VerifyReport, verify_artifacts, verify_checkpoint

__all__ = [
    "Artifacts",
    "Group",
    "Manifest",
    "Store",
    "VerifyReport",
    "fetch",
    "load_manifest",
    "manifest_for",
    "verify_artifacts",
    "verify_checkpoint",
]
