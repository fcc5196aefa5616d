"""The sizes that engines are fitted by are those that vLLM computes itself."""

import pytest

from runner.engines.vllm.sizes import assumed

# Other people's imports warn, and what earlier tests left to the garbage collector is told here.
pytestmark = pytest.mark.filterwarnings("default")


def test_the_cache_of_the_report_s_checkpoint_is_laid_out_as_vllm_does() -> None:
    import torch  # noqa: PLC0415 - only where vLLM is
    from vllm.model_executor.layers.mamba.mamba_utils import (  # noqa: PLC0415
        MambaStateDtypeCalculator,
        MambaStateShapeCalculator,
    )
    from vllm.utils.math_utils import cdiv  # noqa: PLC0415
    from vllm.v1.kv_cache_interface import FullAttentionSpec, MambaSpec  # noqa: PLC0415

    size = assumed("Qwen3.5-4B-MATH-ReAct-Agentic-ESOpt")
    token = FullAttentionSpec(block_size=1, num_kv_heads=4, head_size=256, dtype=torch.bfloat16)
    state = MambaSpec(
        shapes=MambaStateShapeCalculator.gated_delta_net_state_shape(1, 16, 32, 128, 128, 4),
        dtypes=MambaStateDtypeCalculator.gated_delta_net_state_dtype(torch.bfloat16, "auto", "auto"),
        block_size=-1,
    )

    assert size is not None
    assert size.kv_bytes_a_token == 8 * token.page_size_bytes
    assert size.page_tokens == 16 * cdiv(state.page_size_bytes, 16 * token.page_size_bytes)
    assert size.state_bytes == 24 * size.page_tokens * token.page_size_bytes
