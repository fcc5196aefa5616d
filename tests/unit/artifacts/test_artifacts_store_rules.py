"""What a store that is here already is believed, what is never written to it, and what is never printed."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.artifact_files import SHARDS
from support.artifact_server import Fault, sha256
from support.artifact_site import Site

import runner.atomic
from runner.artifacts import Artifacts, Group, fetch, load_manifest
from runner.artifacts.answers import Remote, shown_url, transport_problem
from runner.artifacts.hub import also_wanted
from runner.artifacts.manifest import Hub, bundled_manifest_sha256, bundled_manifests
from runner.artifacts.record import RECORD_NAME, HashRecord
from runner.artifacts.settings import FetchSettings
from runner.errors import ExitCode, InfrastructureError, UserError

TOKENIZER = "special_tokens_map.json"
pytestmark = pytest.mark.anyio

BUSY = Fault(503, b"busy")
SECRET = "hunter2"


async def fetched(site: Site, **options: Any) -> Artifacts:
    """Fetch everything, with a store that knows only what is on disk."""
    options.setdefault("settings", site.settings())
    return await fetch(site.manifest, site.store(), **options)


def everything(site: Site) -> dict[Path, tuple[bytes, int]]:
    """Return all files of the store with their contents and inodes: writing anew changes the inode."""
    return {
        path: (path.read_bytes(), path.stat().st_ino)
        for root in (site.models, site.data)
        for path in root.rglob("*")
        if path.is_file()
    }


@pytest.fixture
def read_only(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Make every small write fail as on a read-only disk, also for a user that may write anywhere."""

    def refuse(**named: object) -> tuple[int, str]:
        raise OSError(30, "Read-only file system", str(named.get("dir")))

    return lambda: monkeypatch.setattr(runner.atomic.tempfile, "mkstemp", refuse)


async def test_a_file_beside_the_named_ones_that_failed_is_fetched_the_next_time(site: Site) -> None:
    site.server.faults[TOKENIZER].extend([BUSY] * 3)
    with pytest.raises(InfrastructureError):
        await fetched(site)
    artifacts = await fetched(site)

    assert (site.checkpoint / TOKENIZER).read_bytes() == site.report.hub[TOKENIZER]
    assert TOKENIZER in artifacts.sha256


async def test_a_file_beside_the_named_ones_that_was_lost_is_fetched_again(site: Site) -> None:
    await fetched(site)
    (site.checkpoint / TOKENIZER).unlink()
    await fetched(site)

    assert (site.checkpoint / TOKENIZER).is_file()


async def test_what_a_directory_had_beside_the_named_files_is_wanted_ever_after(site: Site) -> None:
    brought = site.report.lay_out(site.root / "brought")
    await fetched(site, source=brought)
    (site.checkpoint / TOKENIZER).unlink()
    await fetched(site, source=brought)

    assert (site.checkpoint / TOKENIZER).is_file()


async def test_a_checkpoint_recorded_without_its_listing_is_looked_up_at_its_own_commit(site: Site) -> None:
    await fetched(site)
    path = site.checkpoint / RECORD_NAME
    document = json.loads(path.read_text(encoding="utf-8"))
    del document["listing"]
    del document["files"][TOKENIZER]
    path.write_text(json.dumps(document), encoding="utf-8")
    (site.checkpoint / TOKENIZER).unlink()
    artifacts = await fetched(site)

    assert TOKENIZER in artifacts.sha256
    assert site.server.asked[-1].path.endswith(TOKENIZER)
    assert any(f"revision/{site.server.commit}" in one.path for one in site.server.asked)


async def test_looking_only_leaves_a_wrong_file_and_names_both_hashes(site: Site) -> None:
    await fetched(site)
    shard = site.checkpoint / SHARDS[0]
    shard.write_bytes(b"another")
    before = everything(site)
    site.server.asked.clear()
    with pytest.raises(UserError) as refused:
        await fetched(site, touch=False)

    assert everything(site) == before
    assert site.server.asked == []
    for said in (SHARDS[0], sha256(b"another"), sha256(site.report.hub[SHARDS[0]])):
        assert said in refused.value.message
    assert "recount fetch" in str(refused.value.remedy)
    assert "--allow-unverified" in str(refused.value.remedy)


async def test_looking_only_at_a_wrong_file_that_is_let_pass_says_so_and_records_nothing(site: Site) -> None:
    await fetched(site)
    (site.checkpoint / SHARDS[0]).write_bytes(b"another")
    before = everything(site)
    artifacts = await fetched(site, touch=False, allow_unverified=True)

    assert any(SHARDS[0] in one for one in artifacts.unverified)
    assert everything(site) == before
    assert site.store().unverified == ()


async def test_looking_only_finds_what_a_fetch_left(site: Site) -> None:
    first = await fetched(site)
    before = everything(site)
    assert await fetched(site, touch=False) == first
    assert everything(site) == before


async def test_looking_only_where_nothing_is_makes_no_directory(site: Site) -> None:
    with pytest.raises(UserError, match="is not here") as missing:
        await fetched(site, touch=False)

    assert "recount fetch" in str(missing.value.remedy)
    assert not site.models.exists()
    assert not site.data.exists()


async def test_looking_only_writes_no_pack(site: Site) -> None:
    await fetched(site)
    (site.data / "pack.json").unlink()
    with pytest.raises(UserError, match="protocol pack"):
        await fetched(site, touch=False)
    assert not (site.data / "pack.json").exists()


async def test_looking_only_does_not_take_one_revision_for_another(site: Site) -> None:
    await fetched(site)
    with pytest.raises(UserError, match="holds revision main, not other"):
        await fetched(site, touch=False, revision="other")


async def test_a_whole_store_on_a_read_only_disk_is_taken(site: Site, read_only: Callable[[], None]) -> None:
    first = await fetched(site)
    before = everything(site)
    read_only()

    assert await fetched(site) == first
    assert everything(site) == before


async def test_a_store_that_was_copied_to_a_read_only_disk_is_hashed_and_taken(
    site: Site, read_only: Callable[[], None]
) -> None:
    first = await fetched(site)
    for path in everything(site):
        os.utime(path, ns=(1, 1))
    read_only()
    site.server.asked.clear()

    assert (await fetched(site)).sha256 == first.sha256
    assert site.server.asked == []


async def test_a_checkpoint_that_changed_is_mended_at_its_own_commit_and_the_branch_not_asked_for(
    site: Site,
) -> None:
    first = await fetched(site)
    (site.checkpoint / "config.json").write_bytes(b"{}")
    (site.checkpoint / SHARDS[0]).write_bytes(b"another")
    site.server.asked.clear()
    artifacts = await fetched(site)

    assert artifacts.sha256 == first.sha256
    assert site.server.asked
    assert not [one for one in site.server.asked if "/revision/" in one.path]


def test_a_write_that_is_needed_and_refused_names_the_options(
    site: Site, read_only: Callable[[], None]
) -> None:
    read_only()
    done = site.fetch("--only", "datasets")

    assert done.returncode == ExitCode.BAD_INPUT, done.stderr
    assert "Read-only file system" in done.stderr
    assert "--models or --data-dir" in done.stderr


def test_a_file_whose_time_was_set_back_is_not_believed(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("one", encoding="utf-8")
    HashRecord(tmp_path).remember("file", "aa")
    before = file.stat()
    while file.stat().st_ctime_ns == before.st_ctime_ns:
        file.write_text("two", encoding="utf-8")
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))

    assert file.stat().st_mtime_ns == before.st_mtime_ns
    assert HashRecord(tmp_path).known("file") is None


def test_a_record_without_the_inode_s_time_is_not_believed(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("one", encoding="utf-8")
    HashRecord(tmp_path).remember("file", "aa")
    document = json.loads((tmp_path / RECORD_NAME).read_text(encoding="utf-8"))
    del document["files"]["file"]["ctime_ns"]
    (tmp_path / RECORD_NAME).write_text(json.dumps(document), encoding="utf-8")

    assert HashRecord(tmp_path).known("file") is None
    assert HashRecord(tmp_path).recorded("file") == "aa"


async def test_an_unpinned_file_that_changed_since_is_refused_where_none_can_be_fetched(site: Site) -> None:
    await fetched(site)
    changed = site.checkpoint / "tokenizer_config.json"
    changed.write_bytes(b'{"chat_template": "mine"}')
    offline = site.settings(HF_HUB_OFFLINE="1")
    with pytest.raises(UserError) as refused:
        await fetched(site, settings=offline)

    assert sha256(changed.read_bytes()) in refused.value.message
    assert sha256(site.report.hub["tokenizer_config.json"]) in refused.value.message
    for _ in range(2):
        artifacts = await fetched(site, settings=offline, allow_unverified=True)
        assert any("tokenizer_config.json" in one for one in artifacts.unverified)
    with pytest.raises(UserError, match=r"tokenizer_config\.json is not the file that was fetched"):
        await fetched(site, settings=offline)


async def test_an_unpinned_file_of_the_code_host_that_changed_is_put_aside_and_fetched(site: Site) -> None:
    await fetched(site)
    changed = site.data / "provenance.json"
    changed.write_bytes(b"{}")
    artifacts = await fetched(site)

    assert changed.read_bytes() == site.report.code["results/provenance.json"]
    assert (site.data / "provenance.json.refused").read_bytes() == b"{}"
    assert artifacts.unverified == ()


async def test_an_unpinned_file_that_comes_otherwise_than_the_first_time_is_refused(site: Site) -> None:
    await fetched(site)
    (site.data / "provenance.json").unlink()
    first = site.report.code["results/provenance.json"]
    site.report.code["results/provenance.json"] = first + b"\n"
    for _ in range(2):
        with pytest.raises(UserError, match="was refused") as refused:
            await fetched(site)
        assert sha256(first) in refused.value.message
    assert (await fetched(site, allow_unverified=True)).unverified
    assert (await fetched(site, allow_unverified=True)).unverified


@pytest.mark.parametrize(
    "name",
    [
        "a\0.json",
        "a\ud800.json",
        "/a.json",
        "../a.json",
        "..json",
        "a/b.json",
        "a\\b.json",
        "a\x1b[0m.json",
        "é" * 130 + ".json",
    ],
)
def test_names_of_the_hub_that_are_none_of_a_file_here_are_left_out(name: str) -> None:
    hub = Hub(repository="some/body", also=("*.json",))
    wanted = also_wanted(hub, {name: None, "vocab.json": None}, ())
    assert [one.path for one in wanted] == ["vocab.json"]


def test_a_directory_that_cannot_be_read_is_said(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    brought = site.report.lay_out(site.root / "brought")

    def refuse(_: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", refuse)
    done = site.fetch("--from", str(brought))

    assert done.returncode == ExitCode.BAD_INPUT, done.stderr
    assert f"--from {brought}" in done.stderr
    assert "Permission denied" in done.stderr


def test_a_directory_of_a_name_that_no_disk_takes_is_said(site: Site) -> None:
    done = site.fetch("--from", "x" * 300)

    assert done.returncode == ExitCode.BAD_INPUT, done.stderr
    assert "no such directory" in done.stderr


@pytest.mark.parametrize("option", ["--data-dir", "--models"])
def test_a_file_in_a_directory_s_place_is_said_with_the_options(site: Site, option: str) -> None:
    (site.data if option == "--data-dir" else site.models).write_text("in the way", encoding="utf-8")
    done = site.fetch()

    assert done.returncode == ExitCode.BAD_INPUT, done.stderr
    assert "no directory" in done.stderr
    assert option in done.stderr


def test_white_space_around_a_token_is_none_of_it(site: Site) -> None:
    assert site.settings(HF_TOKEN=f" {SECRET}\r\n").token == SECRET


@pytest.mark.parametrize("wrong", [f"{SECRET}é", f"{SECRET}\x01x", f"{SECRET}\nx", f"“{SECRET}”"])
def test_a_token_that_cannot_be_sent_is_refused_and_not_printed(site: Site, wrong: str) -> None:
    done = site.fetch(HF_TOKEN=wrong)

    assert done.returncode == ExitCode.BAD_INPUT
    assert "HF_TOKEN" in done.stderr
    assert SECRET not in done.stdout + done.stderr


def test_a_request_that_cannot_be_sent_is_not_tried_again_and_quotes_no_header() -> None:
    error = httpx.LocalProtocolError(f"Illegal header value b'Bearer {SECRET}'")
    problem = transport_problem(error, Remote("a file", "http://127.0.0.1/"))

    assert isinstance(problem, UserError)
    assert SECRET not in str(problem)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://user:pw@host/a", "http://host/a"),
        ("https://user:p@w@host:8/a", "https://host:8/a"),
        ("http://user:p/w@host/a", "http://host/a"),
        ("user:pw@host/a", "host/a"),
        ("https://host/a%40b", "https://host/a%40b"),
    ],
)
def test_an_address_is_shown_without_its_credentials(url: str, shown: str) -> None:
    assert shown_url(url) == shown


@pytest.mark.parametrize(
    "fault", [Fault(404), Fault(401), Fault(400), BUSY, Fault(200, b"{}"), Fault(200, b"<")]
)
def test_credentials_in_an_address_are_in_no_message(site: Site, fault: Fault) -> None:
    with_secret = site.server.url.replace("http://", f"http://user:{SECRET}@")
    site.server.faults["revision/main"].extend([fault] * 3)
    site.server.faults["dapo_test.jsonl"].extend([fault] * 3)
    for arguments in ((), ("--only", "datasets")):
        done = site.fetch(*arguments, HF_ENDPOINT=with_secret, RECOUNT_GITHUB_RAW=with_secret)
        assert done.returncode != ExitCode.OK
        assert SECRET not in done.stdout + done.stderr


@pytest.mark.parametrize(
    "address", ["ftp://user:{}@host", "http://user:{}/x@host", "http://user:{}@host:port"]
)
def test_credentials_in_an_address_that_is_none_are_in_no_message(site: Site, address: str) -> None:
    wrong = address.format(SECRET)
    done = site.fetch(HF_ENDPOINT=wrong, RECOUNT_GITHUB_RAW=wrong)

    assert done.returncode == ExitCode.BAD_INPUT, done.stderr
    assert SECRET not in done.stdout + done.stderr


async def test_credentials_in_an_address_are_not_left_beside_a_part(site: Site) -> None:
    with_secret = site.server.url.replace("http://", f"http://user:{SECRET}@")
    settings: FetchSettings = site.settings(RECOUNT_GITHUB_RAW=with_secret)
    site.server.faults["dapo_test.jsonl"] += [Fault(cut_after=100)] + [Fault(cut_after=0)] * 2
    with pytest.raises(InfrastructureError):
        await fetched(site, groups=frozenset({Group.DATASETS}), settings=settings)

    (tag,) = site.data.glob("*.part.json")
    assert SECRET not in tag.read_text(encoding="utf-8")


async def test_artifacts_say_which_manifest_they_are_of_and_which_deciding_inputs_it_does_not_pin(
    site: Site,
) -> None:
    artifacts = await fetched(site)
    assert artifacts.manifest_sha256 == sha256(site.manifest_path.read_bytes())
    assert artifacts.unpinned_inputs == ()

    written = site.manifest_path.read_text(encoding="utf-8")
    shard = sha256(site.report.hub[SHARDS[0]])
    before, _, after = written.replace(f'sha256 = "{shard}"\n', "").partition("[pack]\n")
    site.manifest_path.write_text(before + after[after.index("[weights]") :], encoding="utf-8")
    artifacts = await fetched(site)
    assert artifacts.unpinned_inputs == (SHARDS[0], "protocol pack")


@pytest.mark.parametrize("name", bundled_manifests())
def test_a_bundled_manifest_s_hash_is_that_of_its_file(name: str) -> None:
    assert bundled_manifest_sha256(name) == load_manifest(name).file_sha256
    assert bundled_manifest_sha256("../" + name) is None


async def test_the_report_alone_brings_no_checkpoint_and_tells_of_none(site: Site) -> None:
    artifacts = await fetched(site, groups=frozenset({Group.REPORT}))
    assert {path.name for path in site.checkpoint.iterdir()} == {"evaluation_results.json", RECORD_NAME}
    assert set(artifacts.unpinned) == {"evaluation_results.json", "provenance.json"}

    await fetched(site)
    artifacts = await fetched(site, groups=frozenset({Group.REPORT}))
    assert set(artifacts.unpinned) == {"evaluation_results.json", "provenance.json"}
