"""Tiny random checkpoints of the architecture that is evaluated."""

from pathlib import Path
from typing import Any

TINY: dict[str, Any] = {
    "vocab_size": 256,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "layer_types": ["linear_attention", "full_attention"],
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 2,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 32,
    "max_position_embeddings": 256,
}
DENSE: dict[str, Any] = {"num_experts": 0, "num_experts_per_tok": 0}
MOE: dict[str, Any] = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32,
    "decoder_sparse_step": 1,
}


def write_qwen3next(directory: Path, *, tied: bool = False, **kind: Any) -> Path:
    """Write a Qwen3Next checkpoint with random weights, as Hugging Face's own classes make it."""
    import torch  # noqa: PLC0415 - absent where these tests are skipped
    from transformers import Qwen3NextConfig, Qwen3NextForCausalLM  # noqa: PLC0415

    torch.manual_seed(0)
    model = Qwen3NextForCausalLM(Qwen3NextConfig(**TINY, **kind, tie_word_embeddings=tied))
    with torch.no_grad():
        for one in model.parameters():
            one.normal_()  # some begin as zeros, which would hide that they were not loaded
    model.to(torch.bfloat16).save_pretrained(directory, safe_serialization=True)
    return directory


def total_of(directory: Path) -> float:
    """Sum up the sizes of all numbers in a checkpoint: vLLM lays them out otherwise, but none is lost."""
    from safetensors.torch import load_file  # noqa: PLC0415 - absent where these tests are skipped

    weights = load_file(directory / "model.safetensors")
    return sum(one.double().abs().sum().item() for one in weights.values())
