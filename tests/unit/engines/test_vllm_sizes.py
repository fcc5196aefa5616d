"""What a checkpoint takes of a GPU: read off its configuration, measured, or assumed."""

import json
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

from support.gpus import MODEL, PARAMETERS, known

from runner.engines.vllm.sizes import ModelSize, measure, model_size

HYBRID: dict[str, Any] = {
    "model_type": "qwen3_next",
    "num_hidden_layers": 32,
    "layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 8,
    "hidden_size": 2560,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "torch_dtype": "bfloat16",
}
STATE = 8192 * 3 * 2 + 32 * 128 * 128 * 2
"""One GDN layer's, in bytes, as vLLM has it (tests/engine): 1,097,728, in pages of 272 tokens."""


def test_what_is_assumed_is_what_such_a_configuration_says() -> None:
    assert model_size(HYBRID, 2 * PARAMETERS) == replace(known(), assumed=False)
    assert known().page_tokens == 272
    assert 0 <= known().state_bytes - 24 * STATE < 24 * 16 * 4096


def test_the_assumed_configuration_has_the_published_number_of_parameters() -> None:
    hidden, vocabulary, feed_forward = 2560, 248_320, 9216
    full = hidden * 16 * 256 * 2 + 2 * hidden * 4 * 256 + 16 * 256 * hidden + 2 * 256
    linear = hidden * 12_288 + hidden * 64 + 8192 * 4 + 32 + 32 + 128 + 4096 * hidden
    every = 3 * hidden * feed_forward + 2 * hidden

    assert vocabulary * hidden + 8 * full + 24 * linear + 32 * every + hidden == PARAMETERS
    assert known().weights_bytes == 2 * PARAMETERS


def test_an_interval_says_the_same_as_a_list_of_layers() -> None:
    interval = {name: value for name, value in HYBRID.items() if name != "layer_types"}

    assert model_size(interval | {"full_attention_interval": 4}, 1) == model_size(HYBRID, 1)


def test_the_states_of_a_qwen3_5_are_in_the_format_that_it_names() -> None:
    nested = {"model_type": "qwen3_5", "text_config": HYBRID | {"mamba_ssm_dtype": "float32"}}

    # 32 heads of 128 x 128 in four bytes, the convolution in two: 2,146,304, or 524 tokens.
    assert model_size(nested, 1).page_tokens == 528
    assert model_size(HYBRID | {"mamba_ssm_dtype": "float32"}, 1).page_tokens == 272


def test_a_plain_model_has_no_states() -> None:
    config = {"num_hidden_layers": 30, "hidden_size": 576, "num_attention_heads": 9, "num_key_value_heads": 3}

    size = model_size(config, 100)

    assert (size.kv_bytes_a_token, size.state_bytes, size.page_tokens) == (30 * 2 * 3 * 64 * 2, 0, 16)


def test_four_bytes_a_value_double_everything() -> None:
    half, whole = model_size(HYBRID, 100), model_size(HYBRID, 100, dtype="float32")

    assert (whole.weights_bytes, whole.kv_bytes_a_token) == (200, 2 * half.kv_bytes_a_token)
    assert model_size(HYBRID | {"torch_dtype": "float32"}, 200).weights_bytes == 100


def test_sequences_take_whole_pages() -> None:
    size = ModelSize(0, kv_bytes_a_token=10, state_bytes=5, page_tokens=16)

    assert size.sequence_bytes(17) == 32 * 10 + 5
    assert size.longest(size.sequence_bytes(32)) == 32
    assert size.longest(size.sequence_bytes(32) - 1) == 16
    assert size.longest(0) == 0


def test_a_checkpoint_that_is_here_is_measured(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(HYBRID), encoding="utf-8")
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", 2) + b"{}" + bytes(90))

    assert measure("any/name", tmp_path) == model_size(HYBRID, 100)


def test_a_checkpoint_whose_weights_are_not_here_yet_is_assumed(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(HYBRID), encoding="utf-8")

    assert measure(MODEL, tmp_path) == known()


def test_nothing_is_made_up_for_an_unknown_model(tmp_path: Path) -> None:
    assert measure("some/other", None) is None
    (tmp_path / "config.json").write_text('{"model_type": "bert"}', encoding="utf-8")
    (tmp_path / "model.safetensors").write_bytes(bytes(8))
    assert measure("some/other", tmp_path) is None
