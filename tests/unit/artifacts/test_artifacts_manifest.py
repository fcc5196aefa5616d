"""Manifests hold facts, checked when they are read; the bundled one agrees with what is published."""

import json
import re
from pathlib import Path

import pytest
from support.artifact_files import Report

from runner.artifacts import load_manifest, manifest_for
from runner.artifacts.manifest import MANIFEST_DIR, Role, bundled_manifests
from runner.datasets import load_dataset
from runner.engines.vllm.kind import VllmEngineSettings
from runner.errors import UserError
from runner.profile import load_profile

ROOT = Path(__file__).resolve().parents[3]
SHARED = ROOT.parent / "shared"
beside = pytest.mark.skipif(not SHARED.is_dir(), reason="the published figures are not beside the checkout")


@pytest.mark.parametrize("profile", ["interval25", "final4"])
def test_a_profile_names_the_very_files_of_its_manifest(profile: str) -> None:
    manifest, settings = manifest_for(profile), load_profile(profile)

    assert manifest is not None
    assert isinstance(settings.engine, VllmEngineSettings)
    assert settings.engine.model == manifest.hub.repository
    pinned = {one.name: one.sha256 for one in manifest.files if one.role is Role.DATASET}
    assert pinned == {one.name: one.sha256 for one in settings.datasets}
    assert manifest.pack is not None
    assert Path(settings.pack).name == manifest.pack.place


def test_the_demo_needs_nothing() -> None:
    assert manifest_for("demo") is None


@beside
def test_the_bundled_manifest_holds_the_published_hashes_and_figures() -> None:
    published = json.loads((SHARED / "report" / "published.json").read_text(encoding="utf-8"))
    manifest = load_manifest("esopt-math-react")

    assert manifest.hub.repository == published["model"]
    assert [one.sha256 for one in manifest.shards] == published["weights"]["shards_sha256"]
    assert manifest.weights is not None
    assert manifest.weights.parameters == published["weights"]["parameters"]
    assert {one.sha256 for one in manifest.files if one.role is Role.DATASET} == {
        one["sha256"] for one in published["datasets"].values()
    }
    for lineage in manifest.lineage:
        assert [lineage.first_generation, lineage.last_generation] == published["weights"]["generations"]
        assert lineage.updates == published["weights"]["updates"]
    figures = {
        name: {
            published["interval25"]["stored_report"][name]["mean"],
            published["interval25"]["direct_check_2026_08_11"][name]["mean"],
            published["final4"]["stored_report"][name]["mean"],
        }
        for name in ("dapo", "aime")
    }
    for claim in manifest.claims:
        if claim.path == "evaluation_results.json":
            wanted = sorted(figures[claim.within[0]])
            assert sorted(claim.one_of) == pytest.approx(wanted, abs=claim.tolerance)


@beside
@pytest.mark.parametrize(("name", "problems"), [("dapo", 100), ("aime", 30)])
def test_the_published_data_sets_have_the_pinned_hashes_and_sizes(name: str, problems: int) -> None:
    manifest = load_manifest("esopt-math-react")
    file = next(one for one in manifest.files if one.name == name)
    path = SHARED / "datasets" / file.place
    dataset = load_dataset(name, path, base_seed=1, sha256=file.sha256)

    assert len(dataset.problems) == problems
    assert path.stat().st_size == file.size_bytes


def test_the_table_for_people_says_what_the_manifest_says() -> None:
    table = (ROOT / "datasets" / "manifest.md").read_text(encoding="utf-8")
    manifest = load_manifest("esopt-math-react")

    assert set(re.findall(r"[0-9a-f]{64}", table)) == {
        one.sha256 for one in manifest.files if one.sha256 is not None
    } | {manifest.pack.sha256 if manifest.pack is not None else ""}
    for file in manifest.files:
        assert f"`{file.path}`" in table
    assert manifest.github.commit in table


def test_manifests_hold_facts_and_no_sentences() -> None:
    for name in bundled_manifests():
        text = (MANIFEST_DIR / f"{name}.toml").read_text(encoding="utf-8")
        assert "\\n" not in text
        assert '"""' not in text


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ('sha256 = "', 'sha256 = "x', "String should match pattern"),
        ('place = "loop.py"', 'place = "../loop.py"', "relative path without"),
        ('place = "loop.py"', 'place = "messages.py"', "two files have one place"),
        ('role = "loop_source"', 'role = "rows"', "made of two sources"),
        ('name = "dapo"', "", "data sets have a name"),
        ('path = "config.json"', 'path = "config.json"\nplace = "c"', "files of the hub have none"),
        ("[weights]", "[weights]\nheads = 1", "weights.heads: Extra inputs are not permitted"),
        ('what = "mean 0.5"', 'what = "mean 0.5"\nkey = 1', "Extra inputs are not permitted"),
        ("[hub]", "[hub", "not TOML"),
    ],
)
def test_a_broken_manifest_is_refused_with_the_place(
    tmp_path: Path, before: str, after: str, message: str
) -> None:
    path = Report().write_manifest(tmp_path / "manifest.toml")
    text = path.read_text(encoding="utf-8")
    assert before in text
    path.write_text(text.replace(before, after, 1), encoding="utf-8")
    with pytest.raises(UserError, match=re.escape(message)):
        load_manifest(path)


def test_a_claim_about_a_file_that_is_not_named_is_refused(tmp_path: Path) -> None:
    path = Report().write_manifest(
        tmp_path / "manifest.toml", extra='[[claims]]\npath = "x"\nwhat = "y"\nkeys = ["z"]\none_of = [1]'
    )
    with pytest.raises(UserError, match="a claim names x"):
        load_manifest(path)


def test_an_unknown_manifest_is_named_with_those_there_are() -> None:
    with pytest.raises(UserError, match="no manifest other") as raised:
        load_manifest("other")
    assert "esopt-math-react" in str(raised.value)
