"""A small report of our own, served on the loopback."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.artifact_files import Report
from support.artifact_site import Site


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A report that can be fetched."""
    report = Report()
    manifest = report.write_manifest(tmp_path / "manifest.toml")
    with report.server() as server:
        environment = server.environment() | {"HF_HOME": str(tmp_path / "hf")}
        yield Site(tmp_path, report, server, manifest, environment)
