"""Verifying believes nothing: one changed byte anywhere is found and named."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.artifact_files import INDEX, PARAMETERS, SHARDS, safetensors
from support.artifact_server import sha256
from support.artifact_site import Site

from runner.errors import ExitCode


@pytest.fixture
def fetched(site: Site) -> Site:
    """A site whose report is on this disk."""
    assert site.fetch().returncode == ExitCode.OK
    site.server.asked.clear()
    return site


def flip_a_byte(path: Path) -> None:
    """Change one bit, and leave size and times as they were."""
    before = path.stat()
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_what_was_fetched_is_verified_without_a_network(fetched: Site) -> None:
    done = fetched.verify("artifacts")

    assert done.returncode == ExitCode.OK, done.stdout + done.stderr
    assert f"ok         {SHARDS[0]}  {sha256(fetched.report.hub[SHARDS[0]])}" in done.stdout
    assert "ok         pack.json" in done.stdout
    assert "unpinned   tokenizer.json" in done.stdout
    assert f"the weights hold {PARAMETERS:,} parameters" in done.stdout
    assert "0 differences" in done.stdout
    assert fetched.server.asked == []


@pytest.mark.parametrize(
    "find",
    [
        pytest.param(lambda site: site.checkpoint / SHARDS[1], id="a shard"),
        pytest.param(lambda site: site.checkpoint / "tokenizer.json", id="an unpinned file"),
        pytest.param(lambda site: site.checkpoint / "special_tokens_map.json", id="a file that came along"),
        pytest.param(lambda site: site.data / "dapo_test.jsonl", id="a data set"),
        pytest.param(lambda site: site.data / "loop.py", id="a source"),
        pytest.param(lambda site: site.data / "pack.json", id="the pack"),
        pytest.param(lambda site: site.data / "eval4.json", id="the report's rows"),
    ],
)
def test_one_changed_bit_is_found_and_named_with_both_hashes(
    fetched: Site, find: Callable[[Site], Path]
) -> None:
    path = find(fetched)
    before = sha256(path.read_bytes())
    flip_a_byte(path)
    done = fetched.verify("artifacts")

    assert done.returncode == ExitCode.CHECK_FAILED
    difference = done.stdout[done.stdout.index("DIFFERS") :]
    assert path.name in difference.splitlines()[0]
    assert before in difference
    assert sha256(path.read_bytes()) in difference


def test_a_missing_file_is_named(fetched: Site) -> None:
    (fetched.checkpoint / SHARDS[0]).unlink()
    (fetched.checkpoint / "special_tokens_map.json").unlink()
    (fetched.data / "pack.json").unlink()
    done = fetched.verify("artifacts")

    assert done.returncode == ExitCode.CHECK_FAILED
    assert f"DIFFERS    {SHARDS[0]} is missing" in done.stdout
    assert "DIFFERS    special_tokens_map.json is missing" in done.stdout
    assert "DIFFERS    pack.json, the protocol pack, is missing" in done.stdout


def test_what_was_let_pass_never_verifies(site: Site) -> None:
    site.report.code["data/dapo_test.jsonl"] += b"\n"
    assert site.fetch("--allow-unverified").returncode == ExitCode.OK
    done = site.verify("artifacts")

    assert done.returncode == ExitCode.CHECK_FAILED
    assert "let pass unverified: dapo_test.jsonl" in done.stdout


def test_a_checkpoint_from_anywhere_is_verified_by_its_directory(site: Site, tmp_path: Path) -> None:
    brought = site.report.lay_out(tmp_path / "brought") / "somebody" / "Tiny-Checkpoint"
    done = site.verify("checkpoint", str(brought))

    assert done.returncode == ExitCode.OK, done.stdout + done.stderr
    assert "updates of generations 0 to 2: holds" in done.stdout
    assert "generation_config.json is not here" in done.stdout
    flip_a_byte(brought / SHARDS[0])
    done = site.verify("checkpoint", str(brought))
    assert done.returncode == ExitCode.CHECK_FAILED
    assert f"DIFFERS    {SHARDS[0]} is another file" in done.stdout


def test_a_directory_that_is_not_there_is_named(site: Site) -> None:
    done = site.verify("checkpoint", "nowhere")

    assert done.returncode == ExitCode.BAD_INPUT
    assert "no checkpoint at nowhere" in done.stderr


def test_an_index_that_names_other_tensors_than_the_shards_hold_is_found(site: Site, tmp_path: Path) -> None:
    index = json.loads(site.report.hub[INDEX])
    index["weight_map"]["layer.weight"] = SHARDS[0]
    site.report.hub[INDEX] = json.dumps(index).encode()
    brought = site.report.lay_out(tmp_path / "brought") / "somebody" / "Tiny-Checkpoint"
    done = site.verify("checkpoint", str(brought))

    assert done.returncode == ExitCode.CHECK_FAILED
    assert f"{INDEX} and {SHARDS[0]} do not hold the same tensors: layer.weight" in done.stdout


def test_weights_of_another_size_than_the_card_s_are_found(site: Site, tmp_path: Path) -> None:
    site.report.hub[SHARDS[1]] = safetensors({"layer.weight": (300, 101)})
    site.rewrite_manifest()
    brought = site.report.lay_out(tmp_path / "brought") / "somebody" / "Tiny-Checkpoint"
    done = site.verify("checkpoint", str(brought))

    assert done.returncode == ExitCode.CHECK_FAILED
    assert (
        f"the weights hold {PARAMETERS + 300:,} parameters, the card tells of {PARAMETERS:,}" in done.stdout
    )


def test_a_shard_shorter_than_its_header_says_is_found(site: Site, tmp_path: Path) -> None:
    whole = site.report.hub[SHARDS[1]]
    site.report.hub[SHARDS[1]] = whole[:-10]
    site.rewrite_manifest()
    brought = site.report.lay_out(tmp_path / "brought") / "somebody" / "Tiny-Checkpoint"
    done = site.verify("checkpoint", str(brought))

    assert done.returncode == ExitCode.CHECK_FAILED
    assert f"has {len(whole) - 10} bytes, not the {len(whole)} that its header tells of" in done.stdout


def test_lineage_that_contradicts_the_card_is_found(site: Site, tmp_path: Path) -> None:
    site.report.hub["replayed_history.json"] = b'[{"generation": 0, "seeds": [1], "alpha": 0.25}]'
    brought = site.report.lay_out(tmp_path / "brought") / "somebody" / "Tiny-Checkpoint"
    done = site.verify("checkpoint", str(brought))

    assert done.returncode == ExitCode.CHECK_FAILED
    assert "updates of generations 0 to 2: contradicted (the file says 0)" in done.stdout


def test_loading_without_transformers_says_what_to_install(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    brought = site.report.lay_out(tmp_path / "brought") / "somebody" / "Tiny-Checkpoint"
    done = site.verify("checkpoint", str(brought), "--load")

    assert done.returncode == ExitCode.BAD_INPUT
    assert "--load needs transformers, which is not installed" in done.stderr


def test_loading_what_memory_cannot_hold_is_refused_before_anything_is_read(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runner.cli.verify.available_bytes", lambda: 10**6)
    brought = site.report.lay_out(tmp_path / "brought") / "somebody" / "Tiny-Checkpoint"
    done = site.verify("checkpoint", str(brought), "--load")

    assert done.returncode == ExitCode.BAD_INPUT
    assert "takes about 1.0 GiB of memory, 976.6 KiB are free" in done.stderr
    assert "ok " not in done.stdout


def test_a_profile_without_artifacts_cannot_be_verified(site: Site) -> None:
    site.manifest_path.write_text("", encoding="utf-8")
    done = site.verify("artifacts")

    assert done.returncode == ExitCode.BAD_INPUT
    assert "hub: Field required" in done.stderr
