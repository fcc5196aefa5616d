"""A node's checkpoint: found, fetched, the driver's to the last byte, or refused with both hashes."""

import json
import os
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from support.artifact_files import SHARDS, Report
from support.artifact_server import HUB_COMMIT
from support.artifact_site import Site

from runner.artifacts import Group, fetch, load_manifest
from runner.artifacts.progress import FileProgress, Phase
from runner.cluster import checkpoints
from runner.cluster.checkpoints import (
    NodeCheckpoint,
    NodeProgress,
    ProgressKeeper,
    Refused,
    WantedCheckpoint,
    describe_checkpoint,
    ready_checkpoint,
)
from runner.engines.vllm.admission import progress_of
from runner.engines.vllm.versions import version_differences, versions_here

pytestmark = pytest.mark.anyio


def weights(path: Path, value: bytes = b"\0") -> None:
    header = json.dumps({"w": {"dtype": "F32", "shape": [10], "data_offsets": [0, 40]}})
    path.write_bytes(struct.pack("<Q", len(header)) + header.encode() + value * 40)


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A checkpoint that no manifest names."""
    directory = tmp_path / "driver" / "model"
    directory.mkdir(parents=True)
    (directory / "config.json").write_text('{"model_type": "x"}', encoding="utf-8")
    (directory / "README.md").write_text("about", encoding="utf-8")
    (directory / ".hidden.json").write_text("{}", encoding="utf-8")
    weights(directory / "model.safetensors")
    return directory


async def wanted_of(here: Path, there: Path) -> WantedCheckpoint:
    """Return what a node that has the directory elsewhere is asked for."""
    wanted = await describe_checkpoint(here, commit="c" * 40)
    return WantedCheckpoint(str(there), wanted.sha256, wanted.commit, wanted.manifest, wanted.repository)


async def test_the_driver_asks_for_what_an_engine_reads_and_nothing_else(here: Path) -> None:
    wanted = await describe_checkpoint(here)

    assert sorted(wanted.sha256) == ["config.json", "model.safetensors"]
    assert wanted.manifest is None


async def test_a_node_with_the_same_files_is_ready_whatever_else_lies_there(
    here: Path, tmp_path: Path
) -> None:
    there = tmp_path / "node"
    shutil.copytree(here, there)
    (there / "notes.json").write_text("{}", encoding="utf-8")

    assert await ready_checkpoint(await wanted_of(here, there)) == NodeCheckpoint(str(there))


async def test_a_node_with_another_file_is_refused_with_both_hashes(here: Path, tmp_path: Path) -> None:
    there = tmp_path / "node"
    shutil.copytree(here, there)
    weights(there / "model.safetensors", b"\1")
    wanted = await wanted_of(here, there)

    answer = await ready_checkpoint(wanted)

    other = await describe_checkpoint(there)
    assert isinstance(answer, Refused)
    assert answer.reason == (
        f"its checkpoint in {there} is another: model.safetensors has SHA-256"
        f" {other.sha256['model.safetensors']}, the driver's has {wanted.sha256['model.safetensors']}"
    )


async def test_a_node_without_it_and_without_a_way_to_fetch_it_is_told_what_to_do(
    here: Path, tmp_path: Path
) -> None:
    answer = await ready_checkpoint(await wanted_of(here, tmp_path / "gone"))

    assert isinstance(answer, Refused)
    assert "gone lacks config.json; model.safetensors" in answer.reason
    assert "copy the directory to the node, or share it" in answer.reason


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A published checkpoint whose manifest is a bundled one."""
    report = Report()
    path = report.write_manifest(tmp_path / "manifest.toml")
    manifest = load_manifest(path)
    monkeypatch.setattr(checkpoints, "bundled_manifests", lambda: [manifest.name])
    monkeypatch.setattr(checkpoints, "load_manifest", lambda _: manifest)
    monkeypatch.setattr(checkpoints, "check_checkpoint", lambda _: None)  # its weights are made up
    with report.server() as server:
        environment = server.environment() | {"HF_HOME": str(tmp_path / "hf")}
        for name, value in environment.items():
            monkeypatch.setitem(os.environ, name, value)
        yield Site(tmp_path, report, server, path, environment)


async def fetched_here(site: Site) -> Path:
    await fetch(
        site.manifest,
        site.store(),
        groups=frozenset({Group.CHECKPOINT}),
        settings=site.settings(),
    )
    return site.checkpoint


async def test_a_node_without_it_fetches_it_by_the_manifest_at_the_driver_s_commit(
    site: Site, tmp_path: Path
) -> None:
    here = await fetched_here(site)
    there = tmp_path / "node" / here.name
    described = await describe_checkpoint(here, commit=HUB_COMMIT)
    wanted = WantedCheckpoint(str(there), described.sha256, described.commit, described.manifest)
    keeper = ProgressKeeper()

    answer = await ready_checkpoint(wanted, keeper)

    assert answer == NodeCheckpoint(str(there), fetched=True)
    assert (there / SHARDS[0]).read_bytes() == site.report.hub[SHARDS[0]]
    assert keeper.now().total_bytes > 0
    assert await ready_checkpoint(wanted) == NodeCheckpoint(str(there), fetched=False)


async def test_two_nodes_that_share_a_directory_fetch_it_once(site: Site, tmp_path: Path) -> None:
    here = await fetched_here(site)
    there = tmp_path / "shared" / here.name
    described = await describe_checkpoint(here, commit=HUB_COMMIT)
    wanted = WantedCheckpoint(str(there), described.sha256, described.commit, described.manifest)
    answers: list[NodeCheckpoint | Refused] = []
    of_the_driver = asked_for(site)

    async def one() -> None:
        answers.append(await ready_checkpoint(wanted))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(one)
        tasks.start_soon(one)

    assert [type(one) for one in answers] == [NodeCheckpoint] * 2
    assert asked_for(site) == 2 * of_the_driver


def asked_for(site: Site) -> int:
    """Return how often the server was asked for the first shard."""
    return sum(asked.path.endswith(SHARDS[0]) for asked in site.server.asked)


async def test_a_node_that_cannot_fetch_is_refused_with_the_cause(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = await fetched_here(site)
    described = await describe_checkpoint(here, commit=HUB_COMMIT)
    there = tmp_path / "node" / here.name
    monkeypatch.setitem(os.environ, "HF_HUB_OFFLINE", "1")

    answer = await ready_checkpoint(
        WantedCheckpoint(str(there), described.sha256, described.commit, described.manifest)
    )

    assert isinstance(answer, Refused)
    assert answer.reason.startswith("its checkpoint is not ready: ")


def test_progress_of_nodes_is_that_of_all_with_each_one_s_share() -> None:
    keeper = ProgressKeeper()
    keeper.progress(FileProgress("a", Phase.FETCHING, 50, 100, None, None))
    keeper.progress(FileProgress("a", Phase.HASHING, 30, 100, None, None))
    keeper.progress(FileProgress("b", Phase.HASHING, 0, 100, None, None))
    assert keeper.now() == NodeProgress(Phase.HASHING, 30, 200)

    nodes = {f"n{index}": NodeProgress(Phase.HASHING, 10 * index, 100) for index in range(1, 6)}
    shown = progress_of(nodes)

    assert shown.name == "checkpoint on nodes: n1 10 %, n2 20 %, n3 30 % and 2 more"
    assert (shown.done_bytes, shown.total_bytes, shown.phase) == (150, 500, Phase.HASHING)


def test_versions_that_differ_are_told_with_both() -> None:
    here = versions_here()
    there = here | {"vLLM": "0.19.0", "Python": "3.10.1"}
    del there["torch"]

    assert set(here) == {"Recount", "Python", "vLLM", "torch", "transformers", "Ray"}
    assert version_differences(here, here) == []
    assert version_differences({"vLLM": "0.19.1", "torch": "2.10.0"}, {"vLLM": "0.19.0"}) == [
        "vLLM 0.19.0, the driver's is 0.19.1",
        "torch none, the driver's is 2.10.0",
    ]
    assert "vLLM 0.19.0, the driver's is none" in version_differences(here, there)
