"""Loads checkpoints with vLLM's own loader and says what became of each, as JSON on the last line.

Run as a program: vLLM has to be started with or without our plugin.
"""

import json
import sys
from typing import Any


def load(directory: str) -> dict[str, Any]:
    """Load one: `tensors` counts its parameters, `total` sums up what is in them; `error` stopped it."""
    import traceback  # noqa: PLC0415

    from vllm.config import set_current_vllm_config  # noqa: PLC0415
    from vllm.engine.arg_utils import EngineArgs  # noqa: PLC0415
    from vllm.model_executor.model_loader import get_model_loader  # noqa: PLC0415
    from vllm.model_executor.model_loader.utils import initialize_model  # noqa: PLC0415
    from vllm.utils.torch_utils import set_default_torch_dtype  # noqa: PLC0415

    config = EngineArgs(
        model=directory, skip_tokenizer_init=True, dtype="bfloat16", max_model_len=128, enforce_eager=True
    ).create_engine_config()
    ready()
    try:
        with set_current_vllm_config(config), set_default_torch_dtype(config.model_config.dtype):
            model = initialize_model(vllm_config=config, model_config=config.model_config)
            # With vLLM's own check that every parameter was in the checkpoint.
            get_model_loader(config.load_config).load_weights(model, config.model_config)
    except Exception as error:  # noqa: BLE001 - whatever it is, the test looks at it
        return {"error": f"{type(error).__name__}: {error}", "where": traceback.format_exc()[-2000:]}
    return {
        "class": f"{type(model).__module__}:{type(model).__name__}",
        "tied": model.lm_head.weight is model.model.embed_tokens.weight,
        "moe_layers": model.num_moe_layers,
        "tensors": len(list(model.parameters())),
        "total": sum(one.double().abs().sum().item() for one in model.parameters()),
    }


def ready() -> None:
    """Set up vLLM's groups of processes, of which there is one here."""
    from vllm.config import VllmConfig, set_current_vllm_config  # noqa: PLC0415
    from vllm.distributed import parallel_state  # noqa: PLC0415

    if parallel_state.model_parallel_is_initialized():
        return
    with set_current_vllm_config(VllmConfig()):
        parallel_state.init_distributed_environment(1, 0, "tcp://127.0.0.1:29577", 0, "gloo")
        parallel_state.initialize_model_parallel(1, 1)


if __name__ == "__main__":
    found = {directory: load(directory) for directory in sys.argv[1:]}
    sys.stdout.write("\n" + json.dumps(found) + "\n")
