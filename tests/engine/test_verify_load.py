"""`recount verify checkpoint --load`: transformers loads a dense Qwen3Next checkpoint, and it is counted."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from checkpoints import DENSE, write_qwen3next

ROOT = Path(__file__).resolve().parents[2]
MANIFEST = """
name = "tiny"
profiles = []
[hub]
repository = "somebody/tiny"
[github]
repository = "somebody/harness"
commit = "{commit}"
[[files]]
origin = "hub"
path = "config.json"
group = "checkpoint"
role = "config"
[[files]]
origin = "hub"
path = "model.safetensors"
group = "checkpoint"
role = "shard"
[weights]
parameters = {parameters}
"""


def verify(directory: Path, manifest: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            *(sys.executable, "-m", "runner", "verify", "checkpoint", str(directory), "--load"),
            *("--manifest", str(manifest)),
        ],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "200", "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        encoding="utf-8",
        timeout=200,
        check=False,
    )


@pytest.mark.parametrize("tied", [False, True])
def test_a_dense_checkpoint_loads_and_has_the_parameters_that_its_header_tells_of(
    tmp_path: Path, tied: bool
) -> None:
    directory = write_qwen3next(tmp_path / "checkpoint", tied=tied, **DENSE)
    header = (directory / "model.safetensors").read_bytes()
    length = int.from_bytes(header[:8], "little")
    tensors = json.loads(header[8 : 8 + length])
    parameters = 0
    for name, one in tensors.items():
        if name != "__metadata__":
            size = 1
            for axis in one["shape"]:
                size *= axis
            parameters += size
    manifest = tmp_path / "manifest.toml"
    manifest.write_text(MANIFEST.format(commit="0" * 40, parameters=parameters), encoding="utf-8")
    done = verify(directory, manifest)

    assert done.returncode == 0, done.stdout + done.stderr
    assert f"Qwen3NextForCausalLM, bfloat16, {parameters:,} parameters" in done.stdout


def test_a_checkpoint_that_transformers_does_not_take_is_named(tmp_path: Path) -> None:
    directory = write_qwen3next(tmp_path / "checkpoint", **DENSE)
    (directory / "config.json").write_text('{"model_type": "none_of_this_name"}', encoding="utf-8")
    manifest = tmp_path / "manifest.toml"
    manifest.write_text(MANIFEST.format(commit="0" * 40, parameters=1), encoding="utf-8")
    done = verify(directory, manifest)

    assert done.returncode == 2
    assert f"transformers does not load {directory}" in done.stderr


def test_a_checkpoint_that_lacks_a_tensor_is_not_taken_for_whole(tmp_path: Path) -> None:
    directory = write_qwen3next(tmp_path / "checkpoint", **DENSE)
    program = (
        "import sys\n"
        "from safetensors.torch import load_file, save_file\n"
        "tensors = load_file(sys.argv[1])\n"
        "del tensors['model.layers.0.mlp.up_proj.weight']\n"
        "save_file(tensors, sys.argv[1], metadata={'format': 'pt'})\n"
    )
    subprocess.run([sys.executable, "-c", program, str(directory / "model.safetensors")], check=True)
    manifest = tmp_path / "manifest.toml"
    manifest.write_text(MANIFEST.format(commit="0" * 40, parameters=1), encoding="utf-8")
    done = verify(directory, manifest)

    assert done.returncode == 1
    assert "DIFFERS    1 tensors are missing: model.layers.0.mlp.up_proj.weight" in done.stdout
    assert "DIFFERS    the card tells of 1 parameters" in done.stdout
