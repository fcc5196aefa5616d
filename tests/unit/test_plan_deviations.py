"""What forbids a run to be called a reproduction: whatever is not the report's own, wherever it came from."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from support import published_site
from support.artifact_files import HUB_REPOSITORY, Report

from runner.artifacts import Artifacts
from runner.cli.doctor import ask_about
from runner.cli.preparation import Fetching, gather
from runner.errors import UserError
from runner.plan import Plan, make_plan
from runner.profile import load_profile
from runner.resources import PROFILE_DIR

BUNDLED = PROFILE_DIR / "final4.toml"


class Site:
    """A published site that was fetched."""

    def __init__(self, root: Path, report: Report) -> None:
        self.root = root
        self.inputs = published_site.write_inputs(root / "inputs", report)
        self.data = root / "data"

    def fetched(self, **overrides: Any) -> Artifacts:
        question = ask_about(
            str(self.inputs.profile),
            overrides=overrides,
            broker=None,
            results_dir=self.root / "results",
            models_dir=self.root / "models",
            data_dir=self.data,
            manifest=str(self.inputs.manifest),
        )
        artifacts = anyio.run(gather, question, Fetching())
        assert artifacts is not None
        return artifacts

    def plan(self, artifacts: Artifacts | None = None) -> Plan:
        return make_plan(str(self.inputs.profile), artifacts=artifacts or self.fetched())


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    report = published_site.report()
    with report.server() as server:
        for name, value in (server.environment() | {"HF_HOME": str(tmp_path / "hf")}).items():
            monkeypatch.setenv(name, value)
        yield Site(tmp_path, report)


def of_a_file(plan: Plan, path: Path) -> Plan:
    """The plan as if it were made from the profile in this file."""
    return replace(plan, profile=load_profile(str(path)), profile_path=path)


def test_a_run_of_what_was_fetched_deviates_in_nothing(site: Site) -> None:
    assert site.plan().deviations == ()


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        (
            "temperature = 1.0",
            "temperature = 0.1",
            "sampling.temperature = 0.1, the bundled profile's is 1.0",
        ),
        ("max_turns = 50", "max_turns = 60", "limits.max_turns = 60"),
        ("base_seed = 20270652", "base_seed = 5", "datasets.dapo.base_seed = 5"),
        ("margin = 0.05", "margin = 0.5", "verdict.margin = 0.5"),
        ("samples = 4", "samples = 8", "samples = 8"),
        ('dtype = "bfloat16"', 'dtype = "float16"', "engine.dtype = float16"),
        ('pack = "datasets/esopt-math-react.json"', 'pack = "mine.json"', "pack = mine.json"),
        (
            'sha256 = "a0e64c93e7801957f0949ab80f5a26233ecd87a02ad5c4628de2da0692b5c4a2"',
            "",
            "datasets.dapo.sha256 = None",
        ),
    ],
)
def test_a_file_that_calls_itself_by_a_bundled_name_is_held_against_the_bundled_one(
    site: Site, tmp_path: Path, old: str, new: str, named: str
) -> None:
    text = BUNDLED.read_text(encoding="utf-8")
    assert old in text
    mine = tmp_path / "mine.toml"
    mine.write_text(text.replace(old, new), encoding="utf-8")

    deviations = of_a_file(site.plan(), mine).deviations

    assert any(one.startswith("the profile's file: ") and named in one for one in deviations), deviations


def test_how_much_runs_at_once_is_no_difference_of_a_file(site: Site, tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    text = BUNDLED.read_text(encoding="utf-8")
    mine.write_text(
        text.replace("tools = 16", "tools = 3").replace("engines = 8", "engines = 2"), encoding="utf-8"
    )

    assert not any("profile's file" in one for one in of_a_file(site.plan(), mine).deviations)


def test_a_profile_of_another_name_cannot_reproduce_the_bundled_figures(site: Site, tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    text = BUNDLED.read_text(encoding="utf-8")
    mine.write_text(text.replace('name = "final4"', 'name = "mine"'), encoding="utf-8")

    assert any("mine is a file of its own" in one for one in of_a_file(site.plan(), mine).deviations)


def test_another_manifest_and_another_pack_cannot_reproduce_the_bundled_figures(site: Site) -> None:
    plan = of_a_file(site.plan(), BUNDLED)
    assert any("manifest tiny is not the bundled one" in one for one in plan.deviations)

    other = replace(plan, pack_sha256="0" * 64)
    assert any("protocol pack is not the one" in one for one in other.deviations)


def test_weights_without_a_published_hash_are_no_reproduction(site: Site) -> None:
    lines = site.inputs.manifest.read_text(encoding="utf-8").splitlines()
    first = next(number for number, line in enumerate(lines) if line == 'role = "shard"')
    assert lines[first + 1].startswith("sha256")
    site.inputs.manifest.write_text("\n".join([*lines[: first + 1], *lines[first + 2 :]]) + "\n")

    artifacts = site.fetched(engine={"kind": "vllm", "model": HUB_REPOSITORY})

    assert any("has no hash in the manifest" in one for one in site.plan(artifacts).deviations)


@pytest.mark.parametrize("name", ["dapo_test.jsonl", "eval4.json"])
def test_bytes_that_changed_behind_the_record_are_found_when_they_are_read(site: Site, name: str) -> None:
    artifacts = site.fetched()
    path = site.data / name
    before = path.stat()
    changed = (
        path.read_bytes().replace(b"How much", b"How many", 1).replace(b'"score": 1.0', b'"score": 0.0', 1)
    )
    path.write_bytes(changed)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    with pytest.raises(UserError, match=rf"{name} is not the file any more") as caught:
        site.plan(artifacts)
    assert "recount verify artifacts" in str(caught.value.remedy)


def test_a_profile_that_names_a_data_set_of_its_own_gets_that_and_not_the_fetched_one(site: Site) -> None:
    mine = site.inputs.profile.parent / "mine.jsonl"
    mine.write_text('{"id": "p0", "question": "?", "answer": "0"}\n', encoding="utf-8")
    text = site.inputs.profile.read_text(encoding="utf-8")
    site.inputs.profile.write_text(text.replace("datasets/dapo_test.jsonl", "mine.jsonl"), encoding="utf-8")

    (dataset,) = site.plan().datasets
    assert dataset.path == mine
