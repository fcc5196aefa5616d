"""A fetch that meets the world as it is: each failure is one message with a remedy, and is gone on from."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.artifact_files import INDEX, SHARDS
from support.artifact_server import Fault, hub_error, sha256, too_many
from support.artifact_site import Done, Site

from runner.errors import ExitCode

DATASET = "dapo_test.jsonl"
ONLY_DATA = ("--only", "datasets")
HALF = 5000


def said(done: Done, code: ExitCode) -> str:
    """Return the one message of a command that failed as it should."""
    assert done.returncode == code, done.stdout + done.stderr
    assert done.stderr.count("error: ") == 1
    assert "remedy: " in done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


def test_everything_is_fetched_verified_and_said_in_plain_lines(site: Site) -> None:
    done = site.fetch()

    assert done.returncode == ExitCode.OK, done.stderr
    shard = sha256(site.report.hub[SHARDS[0]])
    assert f"{SHARDS[0]}: fetched, 125.4 KiB, SHA-256 {shard}\n" in done.stdout
    assert re.search(r"config\.json: fetched, .* \(no published hash\)", done.stdout)
    assert "unpinned: tokenizer.json" in done.stdout
    assert "\x1b" not in done.stdout
    assert (site.data / "pack.json").is_file()


def test_a_cut_connection_is_continued_where_it_was_cut(site: Site) -> None:
    site.server.faults[SHARDS[0]].append(Fault(cut_after=HALF))
    site.server.faults[DATASET].append(Fault(cut_after=HALF))
    done = site.fetch()

    assert done.returncode == ExitCode.OK, done.stderr
    for name in (SHARDS[0], DATASET):
        first, second = site.server.downloads(name)
        assert (first.start, second.start) == (0, HALF)
        assert second.headers["If-Range"].startswith('"')
    assert f"{SHARDS[0]}: the connection was cut; again in" in done.stdout


def test_a_server_that_knows_no_ranges_sends_the_whole_file_again(site: Site) -> None:
    site.server.faults[DATASET] += [Fault(cut_after=HALF), Fault(ignore_range=True)]
    done = site.fetch(*ONLY_DATA)

    assert done.returncode == ExitCode.OK, done.stderr
    assert (site.data / DATASET).read_bytes() == site.report.code["data/dapo_test.jsonl"]


def test_a_file_that_changed_while_it_was_fetched_is_not_spliced(site: Site) -> None:
    right = site.report.code["data/dapo_test.jsonl"]
    site.report.code["data/dapo_test.jsonl"] = right.replace(b"1", b"2")
    site.server.faults[DATASET] += [Fault(cut_after=HALF)] + [Fault(status=503)] * 2
    assert site.fetch(*ONLY_DATA).returncode == ExitCode.INFRASTRUCTURE
    site.report.code["data/dapo_test.jsonl"] = right
    done = site.fetch(*ONLY_DATA)

    assert done.returncode == ExitCode.OK, done.stderr
    assert site.server.downloads(DATASET)[-1].start == HALF
    assert (site.data / DATASET).read_bytes() == right


def test_a_connection_that_gets_on_is_followed_however_often_it_is_cut(site: Site) -> None:
    site.server.faults[SHARDS[0]] += [Fault(cut_after=1000)] * 12
    done = site.fetch("--only", "checkpoint")

    assert done.returncode == ExitCode.OK, done.stderr
    assert [one.start for one in site.server.downloads(SHARDS[0])] == [1000 * one for one in range(13)]


def test_a_connection_that_is_always_cut_is_given_up_on_and_continued_later(site: Site) -> None:
    site.server.faults[DATASET] += [Fault(cut_after=HALF)] + [Fault(cut_after=0)] * 2
    message = said(site.fetch(*ONLY_DATA), ExitCode.INFRASTRUCTURE)

    assert "the connection was cut (3 tries, 127.0.0.1:" in message
    assert "run the same command again" in message
    assert (site.data / f"{DATASET}.part").stat().st_size == HALF
    done = site.fetch(*ONLY_DATA)
    assert done.returncode == ExitCode.OK, done.stderr
    assert site.server.downloads(DATASET)[-1].start == HALF


def test_a_server_that_wants_patience_gets_it(site: Site) -> None:
    site.server.faults[DATASET] += [too_many("0"), too_many("Mon, 01 Jan 2024 00:00:00 GMT")]
    site.server.faults["revision/main"].append(too_many())
    done = site.fetch()

    assert done.returncode == ExitCode.OK, done.stderr
    assert "the server answers HTTP 429; again in 0.0 s" in done.stdout


def test_a_server_that_wants_too_much_patience_is_left(site: Site) -> None:
    site.server.faults[DATASET].append(too_many("86400"))
    message = said(site.fetch(*ONLY_DATA), ExitCode.INFRASTRUCTURE)

    assert "HTTP 429, and asks for a wait of 86400 s" in message


def test_a_server_that_stays_broken_is_no_fault_of_the_user(site: Site) -> None:
    site.server.faults[DATASET] += [Fault(status=502)] * 3
    message = said(site.fetch(*ONLY_DATA), ExitCode.INFRASTRUCTURE)

    assert "HTTP 502 (3 tries" in message


def test_no_network_is_said_in_one_sentence(site: Site) -> None:
    site.server.stop()
    message = said(site.fetch(*ONLY_DATA), ExitCode.INFRASTRUCTURE)

    assert "no connection (3 tries, 127.0.0.1:" in message
    assert "--from DIR" in message


def test_a_stalled_connection_ends_and_is_continued(site: Site) -> None:
    site.server.faults[DATASET].append(Fault(cut_after=HALF, hold=True))
    done = site.fetch(*ONLY_DATA, RECOUNT_FETCH_TIMEOUT_S="0.5")

    assert done.returncode == ExitCode.OK, done.stderr
    assert "the connection stalled; again in" in done.stdout
    assert [one.start for one in site.server.downloads(DATASET)] == [0, HALF]


def test_a_page_instead_of_a_file_is_recognised(site: Site) -> None:
    site.server.answers_html = True
    message = said(site.fetch(*ONLY_DATA), ExitCode.BAD_INPUT)

    assert "an HTML page came instead of the file" in message
    assert not list(site.data.glob("dapo*"))


def test_a_page_that_calls_itself_a_file_is_recognised_too(site: Site) -> None:
    site.server.faults[DATASET].append(Fault(body=b"\n<!doctype HTML><title>Sign in</title>"))
    message = said(site.fetch(*ONLY_DATA), ExitCode.BAD_INPUT)

    assert "an HTML page came instead of the file" in message
    assert site.fetch(*ONLY_DATA).returncode == ExitCode.OK


def test_a_page_in_the_place_of_the_hub_s_answer_is_recognised(site: Site) -> None:
    site.server.answers_html = True
    message = said(site.fetch("--only", "checkpoint"), ExitCode.BAD_INPUT)

    assert "somebody/Tiny-Checkpoint at main: an HTML page came" in message


def test_a_missing_file_is_named_with_its_address(site: Site) -> None:
    del site.report.code["data/dapo_test.jsonl"]
    message = said(site.fetch(*ONLY_DATA), ExitCode.BAD_INPUT)

    assert f"{site.server.url}/somebody/harness/" in message
    assert "(HTTP 404)" in message


def test_a_required_file_missing_at_the_hub_is_named(site: Site) -> None:
    del site.report.hub[INDEX]
    message = said(site.fetch("--only", "checkpoint"), ExitCode.BAD_INPUT)

    assert f"{INDEX} is not at" in message


def test_a_missing_revision_is_named(site: Site) -> None:
    message = said(site.fetch("--only", "checkpoint", "--revision", "v9"), ExitCode.BAD_INPUT)

    assert "somebody/Tiny-Checkpoint at v9 is not at" in message
    assert "Invalid rev id: v9" in message


def test_a_private_repository_wants_a_token(site: Site) -> None:
    site.server.token = "hf_ours"
    message = said(site.fetch("--only", "checkpoint"), ExitCode.BAD_INPUT)

    assert "is not open to us (HTTP 401" in message
    assert "set HF_TOKEN" in message
    wrong = said(site.fetch("--only", "checkpoint", HF_TOKEN="hf_other"), ExitCode.BAD_INPUT)
    assert "the token (HF_TOKEN) may not read it" in wrong
    assert "hf_other" not in wrong
    assert site.fetch("--only", "checkpoint", HF_TOKEN="hf_ours").returncode == ExitCode.OK


def test_a_gated_repository_wants_its_terms_accepted(site: Site) -> None:
    site.server.faults["revision/main"].append(hub_error(403, "GatedRepo", "Access is restricted."))
    message = said(site.fetch("--only", "checkpoint"), ExitCode.BAD_INPUT)

    assert "is gated: its terms have to be accepted" in message
    assert "Access is restricted." in message


def test_a_wrong_file_is_refused_with_both_hashes_and_kept_for_a_look(site: Site) -> None:
    right = sha256(site.report.code["data/dapo_test.jsonl"])
    wrong = site.report.code["data/dapo_test.jsonl"].replace(b"2", b"3")
    site.server.faults[DATASET].append(Fault(body=wrong))
    message = said(site.fetch(*ONLY_DATA), ExitCode.BAD_INPUT)

    assert f"expected SHA-256 {right}\n" in message
    assert f"found    SHA-256 {sha256(wrong)}\n" in message
    assert (site.data / f"{DATASET}.refused").read_bytes() == wrong
    assert not (site.data / DATASET).exists()
    assert site.fetch(*ONLY_DATA).returncode == ExitCode.OK


def test_a_file_cut_short_by_its_own_account_is_refused_with_both_sizes(site: Site) -> None:
    content = site.report.code["data/dapo_test.jsonl"]
    site.rewrite_manifest(dataset_bytes=len(content))
    site.server.faults[DATASET].append(Fault(body=content[:-100]))
    message = said(site.fetch(*ONLY_DATA), ExitCode.BAD_INPUT)

    assert f"expected {len(content)} bytes, found {len(content) - 100}" in message


def test_a_shard_that_the_hub_itself_says_is_another_is_not_even_fetched(site: Site) -> None:
    site.report.hub[SHARDS[1]] += b"more"
    message = said(site.fetch("--only", "checkpoint"), ExitCode.BAD_INPUT)

    assert "the hub holds another file than the report's" in message
    assert site.server.downloads(SHARDS[1]) == []


def test_wrong_bytes_of_a_shard_are_refused(site: Site) -> None:
    content = bytearray(site.report.hub[SHARDS[1]])
    content[-1] ^= 1
    site.server.faults[SHARDS[1]].append(Fault(body=bytes(content)))
    message = said(site.fetch("--only", "checkpoint"), ExitCode.BAD_INPUT)

    assert f"{SHARDS[1]} is not the file of the report" in message
    assert sha256(bytes(content)) in message
    assert (site.checkpoint / f"{SHARDS[1]}.refused").is_file()


def test_what_is_allowed_all_the_same_is_marked_for_later_runs(site: Site) -> None:
    site.report.code["data/dapo_test.jsonl"] += b"\n"
    done = site.fetch(*ONLY_DATA, "--allow-unverified")

    assert done.returncode == ExitCode.OK, done.stderr
    assert "unverified: dapo_test.jsonl: SHA-256" in done.stdout
    assert site.store().unverified
    # A later fetch that allows nothing does not take it for right because it is here.
    assert "was refused" in said(site.fetch(*ONLY_DATA), ExitCode.BAD_INPUT)


def test_a_pointer_of_git_lfs_is_no_file(site: Site, tmp_path: Path) -> None:
    site.report.hub[SHARDS[0]] = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n"
    brought = site.report.lay_out(tmp_path / "brought")
    message = said(site.fetch("--from", str(brought)), ExitCode.BAD_INPUT)

    assert f"{SHARDS[0]} is a pointer of git-lfs" in message
    assert "git lfs pull" in message


def test_a_directory_without_the_files_says_where_they_were_looked_for(site: Site, tmp_path: Path) -> None:
    brought = site.report.lay_out(tmp_path / "brought")
    (brought / "harness" / "data" / DATASET).unlink()
    message = said(site.fetch(*ONLY_DATA, "--from", str(brought)), ExitCode.BAD_INPUT)

    assert f"{brought}/harness/data/{DATASET}" in message
    assert "no such directory" in said(site.fetch("--from", "nowhere"), ExitCode.BAD_INPUT)


def test_a_disk_that_is_too_small_is_seen_before_anything_is_moved(site: Site) -> None:
    site.rewrite_manifest(dataset_bytes=10**15)
    message = said(site.fetch(*ONLY_DATA), ExitCode.BAD_INPUT)

    assert "not enough space in" in message
    assert "909.5 TiB are needed" in message
    assert site.server.asked == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
def test_a_disk_that_fills_up_is_said_and_gone_on_from(site: Site) -> None:
    site.data.mkdir()
    part = site.data / f"{DATASET}.part"
    part.symlink_to("/dev/full")
    message = said(site.fetch(*ONLY_DATA), ExitCode.BAD_INPUT)

    assert f"the disk is full: {part}" in message
    part.unlink()
    assert site.fetch(*ONLY_DATA).returncode == ExitCode.OK


def test_a_place_that_cannot_be_written_to_is_said(site: Site) -> None:
    site.data.write_text("a file in the way", encoding="utf-8")
    done = site.fetch(*ONLY_DATA)

    assert done.returncode == ExitCode.BAD_INPUT
    assert f"cannot write {site.data}" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_fetch_leaves_what_it_has_and_goes_on_from_there(
    site: Site, number: signal.Signals
) -> None:
    site.server.faults[DATASET].append(Fault(cut_after=HALF, hold=True))
    process = subprocess.Popen(
        [sys.executable, "-m", "runner", "fetch", "final4", *ONLY_DATA, *site.arguments()],
        cwd=site.root,
        env=site.process_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )
    with process:
        assert site.server.held.wait(30)
        part = site.data / f"{DATASET}.part"
        while not part.exists():
            os.sched_yield()
        process.send_signal(number)
        _, errors = process.communicate(timeout=30)
    site.server.release.set()

    assert process.returncode == ExitCode.INTERRUPTED
    assert "run the same command again" in errors
    kept = part.stat().st_size
    done = site.fetch(*ONLY_DATA)
    assert done.returncode == ExitCode.OK, done.stderr
    assert site.server.downloads(DATASET)[-1].start == kept


def test_a_setting_that_is_no_number_is_named(site: Site) -> None:
    message = said(site.fetch(RECOUNT_FETCH_ATTEMPTS="many"), ExitCode.BAD_INPUT)

    assert "RECOUNT_FETCH_ATTEMPTS=many" in message


def test_an_address_that_is_none_is_named(site: Site) -> None:
    message = said(site.fetch(*ONLY_DATA, RECOUNT_GITHUB_RAW="ftp://files"), ExitCode.BAD_INPUT)

    assert "ftp://files/somebody" in message


def test_a_profile_that_brings_all_it_needs_has_nothing_to_fetch(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "runner", "fetch", "demo"], capture_output=True, encoding="utf-8", check=False
    )

    assert done.returncode == ExitCode.OK
    assert "nothing to fetch" in done.stdout
