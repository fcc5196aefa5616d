"""What a checkpoint takes of a GPU: its weights, and the cache of a sequence. Pure but for `measure`.

The cache of a model with two kinds of layers is laid out as vLLM 0.19.1 lays it out: pages are as large as
the state of one linear layer, rounded up to 16 tokens of one full-attention layer, and both kinds take whole
pages.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.engines.vllm.checkpoint import CONFIG, read_config

WIDTH_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}
DEFAULT_DTYPE = "bfloat16"
PLAIN_PAGE_TOKENS = 16
"""vLLM's page where all layers are alike, and what others are a multiple of."""
SSM_DTYPE_MODELS = frozenset({"qwen3_5", "qwen3_5_moe"})
"""vLLM keeps the states of these, and of no other, in the `mamba_ssm_dtype` of their configuration."""

_ESOPT_4B: Mapping[str, Any] = {
    "model_type": "qwen3_next",
    "num_hidden_layers": 32,
    "full_attention_interval": 4,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
}
_ESOPT_4B_PARAMETERS = 4_205_751_296


@dataclass(frozen=True)
class ModelSize:
    """What a checkpoint takes of a GPU, in bytes.

    `kv_bytes_a_token` is over all layers with full attention, `state_bytes` a sequence's over all others.
    `assumed` if the checkpoint is not here yet and this is what is known of it.
    """

    weights_bytes: int
    kv_bytes_a_token: int
    state_bytes: int = 0
    page_tokens: int = PLAIN_PAGE_TOKENS
    assumed: bool = False

    def sequence_bytes(self, tokens: int) -> int:
        """Return what one sequence of so many tokens holds in the cache: whole pages."""
        pages = math.ceil(tokens / self.page_tokens)
        return pages * self.page_tokens * self.kv_bytes_a_token + self.state_bytes

    def longest(self, cache_bytes: int) -> int:
        """Return how many tokens of one sequence such a cache holds; 0 where it holds none."""
        pages = (cache_bytes - self.state_bytes) // (self.page_tokens * self.kv_bytes_a_token)
        return max(0, pages * self.page_tokens)


def model_size(config: Mapping[str, Any], weights_bytes: int, *, dtype: str = DEFAULT_DTYPE) -> ModelSize:
    """Read the sizes off a checkpoint's `config.json`, for engines that compute in `dtype`.

    Raises `KeyError`, `TypeError` or `ValueError` where that is no configuration of a language model.
    """
    text: Mapping[str, Any] = config.get("text_config") or config
    width = WIDTH_BYTES[dtype]
    stored = WIDTH_BYTES.get(str(text.get("dtype") or text.get("torch_dtype")), WIDTH_BYTES[DEFAULT_DTYPE])
    layers = int(text["num_hidden_layers"])
    full = _full_attention_layers(text, layers)
    heads = int(text.get("num_key_value_heads") or text["num_attention_heads"])
    head_dim = int(text.get("head_dim") or text["hidden_size"] // text["num_attention_heads"])
    token_bytes = 2 * heads * head_dim * width  # a key and a value, of one layer
    page_tokens, state_bytes = PLAIN_PAGE_TOKENS, 0
    if full < layers and "linear_num_value_heads" in text:
        one_layer = _state_bytes(text, str(config.get("model_type")), width)
        page_tokens = PLAIN_PAGE_TOKENS * math.ceil(one_layer / (PLAIN_PAGE_TOKENS * token_bytes))
        state_bytes = (layers - full) * page_tokens * token_bytes
    return ModelSize(
        weights_bytes=weights_bytes * width // stored,
        kv_bytes_a_token=full * token_bytes,
        state_bytes=state_bytes,
        page_tokens=page_tokens,
    )


def _full_attention_layers(config: Mapping[str, Any], layers: int) -> int:
    kinds = config.get("layer_types")
    if isinstance(kinds, list):
        return layers - kinds.count("linear_attention")
    interval = config.get("full_attention_interval")
    return layers // int(interval) if interval else layers


def _state_bytes(config: Mapping[str, Any], model_type: str, width: int) -> int:
    """Return one GDN layer's state of a sequence: the convolution's last inputs, and the recurrent state."""
    value_heads, value_dim = int(config["linear_num_value_heads"]), int(config["linear_value_head_dim"])
    key_dim = int(config["linear_key_head_dim"])
    channels = 2 * int(config["linear_num_key_heads"]) * key_dim + value_heads * value_dim
    convolution = channels * (int(config["linear_conv_kernel_dim"]) - 1) * width
    named = str(config.get("mamba_ssm_dtype")) if model_type in SSM_DTYPE_MODELS else ""
    return convolution + value_heads * value_dim * key_dim * WIDTH_BYTES.get(named, width)


def measure(model: str, directory: Path | None, *, dtype: str = DEFAULT_DTYPE) -> ModelSize | None:
    """Return the sizes of the checkpoint in `directory`; without it what is known of `model`, else None."""
    if directory is not None and (directory / CONFIG).is_file():
        weights = sum(path.stat().st_size for path in directory.glob("*.safetensors"))
        try:
            return (
                model_size(read_config(directory), weights, dtype=dtype) if weights else assumed(model, dtype)
            )
        except (KeyError, TypeError, ValueError):
            return None  # a kind of model that this does not know
    return assumed(model, dtype)


def assumed(model: str, dtype: str = DEFAULT_DTYPE) -> ModelSize | None:
    """Return the sizes of a checkpoint that is known by its name; its parameters are the published number."""
    if model.rpartition("/")[2] != "Qwen3.5-4B-MATH-ReAct-Agentic-ESOpt":
        return None
    weights = _ESOPT_4B_PARAMETERS * WIDTH_BYTES[DEFAULT_DTYPE]
    size = model_size(_ESOPT_4B, weights, dtype=dtype)
    return ModelSize(
        size.weights_bytes, size.kv_bytes_a_token, size.state_bytes, size.page_tokens, assumed=True
    )
