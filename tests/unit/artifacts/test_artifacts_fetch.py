"""A fetch that goes well: everything in its place, hashed once, and nothing moved twice."""

import json
import os
import shutil
from pathlib import Path

import anyio
import pytest
from support.artifact_files import CODE_COMMIT, HUB_REPOSITORY, INDEX, PACK_DOCUMENT, SHARDS
from support.artifact_server import HUB_COMMIT, Fault, sha256
from support.artifact_site import Site, Watcher

from runner.artifacts import Artifacts, Group, fetch
from runner.artifacts.claims import Finding
from runner.artifacts.progress import FileProgress, Phase
from runner.errors import InfrastructureError, UserError

pytestmark = pytest.mark.anyio


async def fetched(site: Site, watcher: Watcher | None = None, **options: object) -> Artifacts:
    return await fetch(
        site.manifest,
        site.store(),
        settings=site.settings(),
        listener=watcher,
        **options,  # type: ignore[arg-type]
    )


async def test_all_files_of_both_repositories_are_in_their_places(site: Site) -> None:
    artifacts = await fetched(site)

    for name in (
        *SHARDS,
        INDEX,
        "config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "evaluation_results.json",
    ):
        assert (site.checkpoint / name).read_bytes() == site.report.hub[name]
    assert artifacts.datasets["dapo"].read_bytes() == site.report.code["data/dapo_test.jsonl"]
    assert artifacts.rows == site.data / "eval4.json"
    assert artifacts.pack is not None
    assert json.loads(artifacts.pack.read_text(encoding="utf-8")) == PACK_DOCUMENT
    assert artifacts.revision == HUB_COMMIT
    assert artifacts.sha256[SHARDS[0]] == sha256(site.report.hub[SHARDS[0]])
    assert artifacts.unverified == ()
    assert not list(site.root.rglob("*.part*"))


async def test_what_has_no_published_hash_is_said_to_be_unpinned(site: Site) -> None:
    artifacts = await fetched(site)

    assert set(artifacts.unpinned) >= {
        INDEX,
        "config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "provenance.json",
    }
    assert not set(artifacts.unpinned) & {*SHARDS, "dapo_test.jsonl"}


async def test_only_files_of_the_root_that_belong_to_a_checkpoint_come_along(site: Site) -> None:
    await fetched(site)

    names = {path.name for path in site.checkpoint.iterdir()}
    assert "special_tokens_map.json" in names
    assert not names & {"README.md", ".gitattributes", "images"}


async def test_claims_that_hold_and_that_are_not_found_are_told_apart(site: Site) -> None:
    artifacts = await fetched(site)

    found = {(one.path, one.what): one.finding for one in artifacts.claims}
    assert found["replay_metadata.json", "3 updates"] is Finding.HOLDS
    assert found["replay_metadata.json", "alpha"] is Finding.NOT_FOUND
    assert found["replayed_history.json", "updates of generations 0 to 2"] is Finding.HOLDS
    assert "replay_metadata.json: alpha: not found" in artifacts.notes


async def test_a_second_fetch_asks_the_network_for_nothing_and_reads_no_file(site: Site) -> None:
    first = await fetched(site)
    site.server.asked.clear()
    watcher = Watcher()
    second = await fetched(site, watcher)

    assert site.server.asked == []
    assert not [one for one in watcher.seen if one.phase is Phase.HASHING]
    assert second.sha256 == first.sha256
    assert second.unpinned == first.unpinned


async def test_a_whole_checkpoint_stays_at_its_commit_when_the_branch_moves(site: Site) -> None:
    await fetched(site)
    site.server.commit = "6e" * 20
    artifacts = await fetched(site)

    assert artifacts.revision == HUB_COMMIT


async def test_another_revision_brings_its_own_small_files_and_keeps_the_right_shards(site: Site) -> None:
    await fetched(site)
    site.server.commit = "6e" * 20
    site.report.hub["config.json"] = b'{"model_type": "other"}'
    site.server.asked.clear()
    artifacts = await fetched(site, revision="6e" * 20)

    assert artifacts.revision == "6e" * 20
    assert (site.checkpoint / "config.json").read_bytes() == site.report.hub["config.json"]
    assert site.server.downloads(SHARDS[0]) == []


async def test_a_file_that_changed_since_is_hashed_again_and_a_wrong_one_put_aside(site: Site) -> None:
    await fetched(site)
    shard = site.checkpoint / SHARDS[0]
    content = bytearray(shard.read_bytes())
    content[-1] ^= 1
    shard.write_bytes(bytes(content))
    watcher = Watcher()
    await fetched(site, watcher)

    assert shard.read_bytes() == site.report.hub[SHARDS[0]]
    assert (site.checkpoint / f"{SHARDS[0]}.refused").read_bytes() == bytes(content)
    assert any(SHARDS[0] in note for note in watcher.notes)


async def test_a_touched_file_is_hashed_again_and_not_fetched_again(site: Site) -> None:
    await fetched(site)
    os.utime(site.checkpoint / SHARDS[0], ns=(1, 1))
    site.server.asked.clear()
    watcher = Watcher()
    await fetched(site, watcher)

    assert [one.name for one in watcher.seen if one.phase is Phase.HASHING][:1] == [SHARDS[0]]
    assert site.server.downloads(SHARDS[0]) == []


async def test_groups_fetch_what_they_name_and_nothing_else(site: Site) -> None:
    artifacts = await fetched(site, groups=frozenset({Group.DATASETS}))

    assert list(artifacts.datasets) == ["dapo"]
    assert artifacts.checkpoint is None
    assert artifacts.pack is None
    assert not site.models.exists()
    assert not [one for one in site.server.asked if HUB_REPOSITORY in one.path]


async def test_what_is_missing_is_known_before_and_after(site: Site) -> None:
    everything = frozenset(Group)
    assert "data/dapo_test.jsonl" in site.store().missing(everything)
    await fetched(site, groups=frozenset({Group.DATASETS, Group.CHECKPOINT}))

    assert set(site.store().missing(everything)) == {
        "envs/messages.py",
        "scripts/loop.py",
        "results/eval4.json",
        "results/provenance.json",
    }


async def test_a_revision_with_a_slash_is_one_name(site: Site) -> None:
    with pytest.raises(UserError, match="Invalid rev id: refs/pr/7"):
        await fetched(site, revision="refs/pr/7")


async def test_a_copy_does_not_take_a_cut_download_s_place(site: Site, tmp_path: Path) -> None:
    site.server.faults["dapo_test.jsonl"] += [Fault(cut_after=100)] + [Fault(status=503)] * 2
    with pytest.raises(InfrastructureError):
        await fetched(site, groups=frozenset({Group.DATASETS}))
    right = site.report.code["data/dapo_test.jsonl"]
    site.report.code["data/dapo_test.jsonl"] = b"x" * 50
    brought = site.report.lay_out(tmp_path / "brought")
    with anyio.CancelScope() as scope:

        def cancel(progress: FileProgress) -> None:
            if progress.phase is Phase.COPYING:
                scope.cancel()

        watcher = Watcher(on_progress=cancel)
        await fetched(site, watcher, groups=frozenset({Group.DATASETS}), source=brought)
    assert scope.cancelled_caught
    site.report.code["data/dapo_test.jsonl"] = right
    await fetched(site, groups=frozenset({Group.DATASETS}))

    assert site.server.downloads("dapo_test.jsonl")[-1].start == 0


async def test_the_token_is_sent_to_the_hub_and_to_no_other_host(site: Site) -> None:
    site.server.token = "hf_ours"
    await fetch(site.manifest, site.store(), settings=site.settings(HF_TOKEN="hf_ours"))

    assert {one.headers.get("Authorization") for one in site.server.downloads("config.json")} == {
        "Bearer hf_ours"
    }
    stored = [one for one in site.server.asked if one.path.startswith("/storage/")]
    assert stored
    assert not [one for one in stored if "Authorization" in one.headers]
    assert not [one for one in site.server.asked if "harness" in one.path and "Authorization" in one.headers]


async def test_progress_tells_bytes_and_totals_of_every_file(site: Site) -> None:
    watcher = Watcher()
    await fetched(site, watcher)

    last = [one for one in watcher.seen if one.name == SHARDS[0] and one.phase is Phase.FETCHING][-1]
    assert last.done_bytes == last.total_bytes == len(site.report.hub[SHARDS[0]])
    assert {one.name for one in watcher.finished} >= {*SHARDS, "data/dapo_test.jsonl", "protocol pack"}


async def test_a_cancelled_fetch_keeps_every_byte_it_got_and_asks_for_the_rest(site: Site) -> None:
    half = 5000
    site.server.faults["dapo_test.jsonl"].append(Fault(cut_after=half, hold=True))
    with anyio.CancelScope() as scope:

        def cancel(progress: FileProgress) -> None:
            if progress.done_bytes == half:
                scope.cancel()

        await fetched(site, Watcher(on_progress=cancel), groups=frozenset({Group.DATASETS}))
    site.server.release.set()

    assert scope.cancelled_caught
    assert (site.data / "dapo_test.jsonl.part").stat().st_size == half
    await fetched(site, groups=frozenset({Group.DATASETS}))
    assert [one.start for one in site.server.downloads("dapo_test.jsonl")] == [0, half]


async def test_a_part_that_was_whole_already_is_not_fetched_again(site: Site) -> None:
    site.data.mkdir()
    content = site.report.code["data/dapo_test.jsonl"]
    address = f"{site.server.url}/somebody/harness/{CODE_COMMIT}/data/dapo_test.jsonl"
    (site.data / "dapo_test.jsonl.part").write_bytes(content)
    (site.data / "dapo_test.jsonl.part.json").write_text(json.dumps({"url": address, "etag": None}))
    artifacts = await fetched(site, groups=frozenset({Group.DATASETS}))

    assert artifacts.datasets["dapo"].read_bytes() == content
    assert [one.start for one in site.server.downloads("dapo_test.jsonl")] == [len(content)]


async def test_a_part_longer_than_the_file_is_thrown_away(site: Site) -> None:
    site.data.mkdir()
    content = site.report.code["data/dapo_test.jsonl"]
    address = f"{site.server.url}/somebody/harness/{CODE_COMMIT}/data/dapo_test.jsonl"
    (site.data / "dapo_test.jsonl.part").write_bytes(content + b"more")
    (site.data / "dapo_test.jsonl.part.json").write_text(json.dumps({"url": address, "etag": None}))
    artifacts = await fetched(site, groups=frozenset({Group.DATASETS}))

    assert artifacts.datasets["dapo"].read_bytes() == content


async def test_a_part_of_another_address_is_not_continued(site: Site) -> None:
    site.data.mkdir()
    (site.data / "dapo_test.jsonl.part").write_bytes(b"something else")
    (site.data / "dapo_test.jsonl.part.json").write_text(json.dumps({"url": "http://other", "etag": None}))
    await fetched(site, groups=frozenset({Group.DATASETS}))

    assert [one.start for one in site.server.downloads("dapo_test.jsonl")] == [0]


async def test_a_checkpoint_in_the_hub_s_own_cache_is_copied_from_there(site: Site) -> None:
    snapshot = site.root / "hf" / "hub" / "models--somebody--Tiny-Checkpoint" / "snapshots" / HUB_COMMIT
    snapshot.mkdir(parents=True)
    for name, content in site.report.hub.items():
        if "/" not in name:
            (snapshot / name).write_bytes(content)
    watcher = Watcher()
    await fetched(site, watcher)

    assert watcher.how(SHARDS[0]).startswith("copied from")
    assert site.server.downloads(SHARDS[0]) == []


async def test_offline_with_everything_in_the_cache_needs_no_network(site: Site) -> None:
    cache = site.root / "hf" / "hub" / "models--somebody--Tiny-Checkpoint"
    snapshot = cache / "snapshots" / HUB_COMMIT
    snapshot.mkdir(parents=True)
    (cache / "refs").mkdir()
    (cache / "refs" / "main").write_text(HUB_COMMIT, encoding="utf-8")
    for name, content in site.report.hub.items():
        if "/" not in name:
            (snapshot / name).write_bytes(content)
    artifacts = await fetch(
        site.manifest,
        site.store(),
        groups=frozenset({Group.CHECKPOINT}),
        settings=site.settings(HF_HUB_OFFLINE="1"),
    )

    assert site.server.asked == []
    assert artifacts.revision == HUB_COMMIT
    assert (site.checkpoint / "tokenizer_config.json").is_file()


async def test_offline_says_what_is_missing(site: Site) -> None:
    with pytest.raises(UserError, match="HF_HUB_OFFLINE forbids"):
        await fetch(site.manifest, site.store(), settings=site.settings(HF_HUB_OFFLINE="1"))
    assert site.server.asked == []


async def test_a_directory_takes_the_place_of_the_network(site: Site, tmp_path: Path) -> None:
    brought = site.report.lay_out(tmp_path / "brought")
    artifacts = await fetched(site, source=brought)

    assert site.server.asked == []
    assert artifacts.revision is None
    assert (site.checkpoint / SHARDS[1]).read_bytes() == site.report.hub[SHARDS[1]]
    assert (site.checkpoint / "special_tokens_map.json").is_file()
    assert artifacts.pack is not None
    # And afterwards nothing is needed any more: neither the directory nor a network.
    shutil.rmtree(brought)
    again = await fetched(site)
    assert site.server.asked == []
    assert again.sha256 == artifacts.sha256


async def test_a_directory_may_be_the_two_repositories_in_one(site: Site, tmp_path: Path) -> None:
    both = tmp_path / "both"
    for name, content in (site.report.hub | site.report.code).items():
        (both / name).parent.mkdir(parents=True, exist_ok=True)
        (both / name).write_bytes(content)
    artifacts = await fetched(site, source=both)

    assert artifacts.checkpoint == site.checkpoint
    assert artifacts.rows is not None


async def test_what_was_let_pass_is_marked_until_it_is_right_again(site: Site) -> None:
    right = site.report.code["data/dapo_test.jsonl"]
    site.report.code["data/dapo_test.jsonl"] = right + b"\n"
    artifacts = await fetched(site, allow_unverified=True)

    assert [one.partition(":")[0] for one in artifacts.unverified] == ["dapo_test.jsonl"]
    assert site.store().unverified == artifacts.unverified
    site.report.code["data/dapo_test.jsonl"] = right
    await fetched(site)
    assert site.store().unverified == ()


async def test_a_contradiction_is_refused_unless_it_is_allowed_and_then_marked(site: Site) -> None:
    site.report.hub["replay_metadata.json"] = b'{"updates": 2, "generations": [0, 1]}'
    with pytest.raises(UserError, match=r"3 updates: contradicted \(the file says 2\)"):
        await fetched(site)
    artifacts = await fetched(site, allow_unverified=True)

    assert "what replay_metadata.json says" in artifacts.unverified[0]


async def test_sources_that_say_something_else_give_no_pack(site: Site) -> None:
    source = site.report.code["scripts/loop.py"].replace(b"There is no", b"There was no")
    site.report.code["scripts/loop.py"] = source
    site.rewrite_manifest()
    with pytest.raises(UserError, match="the protocol's pack is another"):
        await fetched(site)
    assert not (site.data / "pack.json").exists()
    artifacts = await fetched(site, allow_unverified=True)
    assert artifacts.pack == site.data / "pack.json"
    assert artifacts.unverified[0].startswith("pack.json")
