"""The plugin in real vLLM processes: dense Qwen3Next loads, and an engine core dies with its actor."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from checkpoints import DENSE, MOE, total_of, write_qwen3next

pytestmark = pytest.mark.timeout(900)

HERE = Path(__file__).parent
OURS = "runner.engines.vllm.qwen3_next:Qwen3NextForCausalLM"
QUIET = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_HOST_IP": "127.0.0.1"}
START_ENGINE = """
import sys
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.v1.engine.async_llm import AsyncLLM

if __name__ == "__main__":
    AsyncLLM.from_engine_args(AsyncEngineArgs(
        model=sys.argv[1], skip_tokenizer_init=True, dtype="bfloat16", max_model_len=128, enforce_eager=True,
    ))
"""
REGISTER_TWICE = """
import sys
from runner.engines.vllm.plugin import register
assert "torch" not in sys.modules
register()
register()
assert "vllm.model_executor.models.qwen3_next" not in sys.modules
from vllm import ModelRegistry
print(ModelRegistry.models["Qwen3NextForCausalLM"])
"""


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Tiny checkpoints: dense with and without a head of its own, and one with experts."""
    root = tmp_path_factory.mktemp("checkpoints")
    return {
        "untied": write_qwen3next(root / "untied", **DENSE),
        "tied": write_qwen3next(root / "tied", tied=True, **DENSE),
        "moe": write_qwen3next(root / "moe", **MOE),
    }


def run(arguments: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        env=os.environ | QUIET | environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def load(paths: list[Path], **environment: str) -> dict[str, dict[str, Any]]:
    done = run([str(HERE / "load_models.py"), *map(str, paths)], **environment)
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    return {Path(directory).name: one for directory, one in found.items()}


def test_without_the_plugin_a_dense_checkpoint_is_refused_and_one_with_experts_is_not(
    checkpoints: dict[str, Path],
) -> None:
    found = load([checkpoints["untied"], checkpoints["moe"]], VLLM_PLUGINS="")

    assert found["untied"]["error"] == "RuntimeError: No Qwen3Next layer found in the model.layers."
    assert found["moe"]["class"] == "vllm.model_executor.models.qwen3_next:Qwen3NextForCausalLM"


def test_with_the_plugin_dense_tied_and_moe_checkpoints_load_all_their_weights(
    checkpoints: dict[str, Path],
) -> None:
    found = load(list(checkpoints.values()))

    for name, one in found.items():
        assert "error" not in one, one
        assert one["class"] == OURS
        assert one["total"] == pytest.approx(total_of(checkpoints[name]))
    assert [(name, one["tied"], one["moe_layers"]) for name, one in found.items()] == [
        ("untied", False, 0),
        ("tied", True, 0),
        ("moe", False, 2),
    ]
    assert found["untied"]["tensors"] == found["tied"]["tensors"] + 1


def test_a_spawned_engine_core_loads_all_weights_and_stops_only_at_the_kernels(
    checkpoints: dict[str, Path], tmp_path: Path
) -> None:
    program = tmp_path / "start_engine.py"
    program.write_text(START_ENGINE, encoding="utf-8")
    done = run([str(program), str(checkpoints["untied"])])
    log = done.stdout + done.stderr

    # Loading, with vLLM's check that no parameter was left out, is over when weights are processed for
    # kernels that a CPU does not have.
    assert done.returncode != 0
    core = "\n".join(line for line in log.splitlines() if "EngineCore" in line)
    assert "Loading weights took" in core
    assert "process_weights_after_loading" in core, core[-3000:]
    assert "were not initialized from" not in log
    assert "No Qwen3Next layer" not in log


def test_the_plugin_may_be_loaded_again_and_imports_no_model() -> None:
    done = run(["-c", REGISTER_TWICE])

    assert done.returncode == 0, done.stderr[-2000:]
    assert re.search(r"module_name='runner\.engines\.vllm\.qwen3_next'", done.stdout)
    assert done.stdout.count("will be overwritten") <= 1
