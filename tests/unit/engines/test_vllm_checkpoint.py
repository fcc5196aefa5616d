"""A checkpoint is looked at before anything starts, and what is wrong with it is named."""

import json
import struct
from pathlib import Path

import pytest

from runner.engines.vllm.checkpoint import Checkpoint, check_checkpoint, find_checkpoint, is_hub_id
from runner.errors import UserError


def weights(path: Path, *, missing_bytes: int = 0) -> None:
    header = json.dumps(
        {"__metadata__": {"format": "pt"}, "w": {"dtype": "F32", "shape": [10], "data_offsets": [0, 40]}}
    )
    body = struct.pack("<Q", len(header)) + header.encode() + b"\0" * 40
    path.write_bytes(body[: len(body) - missing_bytes])


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    directory = tmp_path / "model"
    directory.mkdir()
    (directory / "config.json").write_text('{"model_type": "x"}', encoding="utf-8")
    weights(directory / "model.safetensors")
    return directory


def index(directory: Path, *files: str) -> None:
    document = {"weight_map": {f"w{number}": name for number, name in enumerate(files)}}
    (directory / "model.safetensors.index.json").write_text(json.dumps(document), encoding="utf-8")


def test_a_whole_checkpoint_passes(checkpoint: Path) -> None:
    check_checkpoint(checkpoint)


def test_a_directory_that_is_not_there_is_named_with_how_to_name_another(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no checkpoint at .*gone\n.*--model or RECOUNT_MODEL"):
        check_checkpoint(tmp_path / "gone")


def test_a_missing_configuration_is_named(checkpoint: Path) -> None:
    (checkpoint / "config.json").unlink()

    with pytest.raises(UserError, match=r"incomplete: config\.json is missing"):
        check_checkpoint(checkpoint)


def test_missing_weights_are_named(checkpoint: Path) -> None:
    (checkpoint / "model.safetensors").unlink()

    with pytest.raises(UserError, match=r"incomplete: it holds no \*\.safetensors"):
        check_checkpoint(checkpoint)


def test_a_shard_that_the_index_names_and_nobody_has_is_named(checkpoint: Path) -> None:
    index(checkpoint, "model.safetensors", "second.safetensors")

    with pytest.raises(UserError, match=r"second\.safetensors is missing"):
        check_checkpoint(checkpoint)


@pytest.mark.parametrize("content", ["{", "[]", '{"weight_map": 3}', "{}"])
def test_an_index_that_cannot_be_read_is_named(checkpoint: Path, content: str) -> None:
    (checkpoint / "model.safetensors.index.json").write_text(content, encoding="utf-8")

    with pytest.raises(UserError, match=r"model\.safetensors\.index\.json is no index of weights"):
        check_checkpoint(checkpoint)


def test_a_download_that_broke_off_is_told_by_its_size(checkpoint: Path) -> None:
    weights(checkpoint / "model.safetensors", missing_bytes=3)

    with pytest.raises(UserError, match=r"model\.safetensors has \d+ bytes, not the \d+ that"):
        check_checkpoint(checkpoint)


@pytest.mark.parametrize(
    "content", [b"", b"\xff" * 64, b"version https://git-lfs", struct.pack("<Q", 2) + b"[]"]
)
def test_what_is_no_weights_file_is_named(checkpoint: Path, content: bytes) -> None:
    (checkpoint / "model.safetensors").write_bytes(content)

    with pytest.raises(UserError, match=r"model\.safetensors is no safetensors file"):
        check_checkpoint(checkpoint)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("owner/name", True),
        ("zz1358m/Qwen3.5-4B_x", True),
        ("/models/x", False),
        ("./models/x", False),
        ("a/b/c", False),
        ("name", False),
    ],
)
def test_a_hub_id_is_told_from_a_directory(model: str, expected: bool) -> None:
    assert is_hub_id(model) is expected


def test_a_directory_that_looks_like_a_hub_id_is_a_directory(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(checkpoint.parents[1])

    assert not is_hub_id(f"{checkpoint.parent.name}/model")


@pytest.mark.anyio
async def test_a_relative_directory_is_made_absolute(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(checkpoint.parent)

    assert await find_checkpoint("model", None) == Checkpoint(checkpoint, None)
