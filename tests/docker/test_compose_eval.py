"""`docker compose up eval` from nothing to the verdict: examined, fetched, run and held against the rows.

The GPUs and the checkpoint are what it lacks: a script writes the turns, a server on the loopback plays hub
and code host. The rest is the service as it stands in `docker-compose.yml`.
"""

import json
import os
import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from support import published_site
from support.artifact_files import Report
from support.artifact_server import ArtifactServer, Fault

ROOT = Path(__file__).parents[2]
SCHEMA = ROOT / "runner" / "data" / "schemas" / "evaluation_results.schema.json"

pytestmark = [pytest.mark.compose, pytest.mark.timeout(600)]

OVERRIDE = """
services:
  eval-broker:
    command: ["--policy", "demo", "--idle-exit", "5", "--first-client", "600"]
  eval:
    image: recount:latest
    build: !reset null
    deploy: !reset null
    # The server of these tests listens on this machine's loopback.
    network_mode: host
    command: !override {command}
    environment: {environment}
    volumes: !override
      - eval-broker:/run/recount
      - {root}/results:/results
      - {root}/datasets:/recount/datasets
      - {root}/models:/models
      - {root}/inputs:/inputs:ro
"""


@dataclass
class Service:
    """One Compose project of the service `eval`, and the server that it fetches from."""

    root: Path
    name: str
    report: Report
    server: ArtifactServer

    def up(self, *arguments: str, solved: bool = True) -> subprocess.CompletedProcess[str]:
        """Run `docker compose up eval` to its end; unless `solved` the model answers everything wrong."""
        published_site.write_inputs(self.root / "inputs", self.report, solved=solved)
        environment = self.server.environment() | {
            "RECOUNT_MANIFEST": "/inputs/manifest.toml",
            "EVAL_UI": "lines",
        }
        command = ["eval", "/inputs/final4.toml", *arguments]
        override = self.root / "override.yml"
        override.write_text(
            OVERRIDE.format(command=json.dumps(command), environment=json.dumps(environment), root=self.root),
            encoding="utf-8",
        )
        return self.compose("up", "--no-build", "--exit-code-from", "eval", "eval", override=override)

    def compose(self, *arguments: str, override: Path | None = None) -> subprocess.CompletedProcess[str]:
        files = ["-f", str(ROOT / "docker-compose.yml"), "-f", str(override or self.root / "override.yml")]
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("RECOUNT_", "HF_"))}
        return subprocess.run(
            ["docker", "compose", "-p", self.name, "--profile", "engines", *files, *arguments],
            capture_output=True, text=True, timeout=300, check=False, env=kept,
        )  # fmt: skip

    @property
    def results(self) -> Any:
        """What the newest run left."""
        newest = max(
            (self.root / "results").glob("*/evaluation_results.json"), key=lambda one: one.stat().st_mtime
        )
        return json.loads(newest.read_bytes())


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    built = subprocess.run(
        ["docker", "compose", "-f", str(ROOT / "docker-compose.yml"), "build", "--quiet"],
        capture_output=True, text=True, timeout=550, check=False,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    report = published_site.report()
    for name in ("results", "datasets", "models"):
        (tmp_path / name).mkdir()
    tmp_path.chmod(0o755)
    with report.server() as server:
        one = Service(tmp_path, f"recount-test-{uuid.uuid4().hex[:8]}", report, server)
        try:
            yield one
        finally:
            one.compose("down", "--volumes", "--timeout", "20")


def test_the_whole_way_from_nothing_to_the_numbers_and_once_more_without_a_network(service: Service) -> None:
    done = service.up("--fail-if-differs")

    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    for phase in ("phase=checking", "phase=verifying", "phase=starting", "phase=running"):
        assert phase in said, said
    results = service.results
    jsonschema.validate(results, json.loads(SCHEMA.read_bytes()))
    assert results["complete"] is True
    assert results["verdict"]["differs"] is False
    assert "the model is a script" in said
    assert (service.root / "datasets" / "pack.json").is_file()

    service.server.stop()
    again = service.up("--fail-if-differs", solved=False)

    assert again.returncode == 1, again.stdout + again.stderr
    assert service.results["verdict"]["differs"] is True


def test_a_file_that_is_not_the_published_one_stops_it_before_it_runs(service: Service) -> None:
    wrong = service.report.code["data/dapo_test.jsonl"].replace(b"0 + 0", b"0 - 0")
    service.server.faults["dapo_test.jsonl"].append(Fault(body=wrong))

    done = service.up()

    assert done.returncode == 2, done.stdout + done.stderr
    assert "SHA-256" in done.stdout + done.stderr
    assert list((service.root / "results").iterdir()) == []
