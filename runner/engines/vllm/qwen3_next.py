"""vLLM's Qwen3Next, for checkpoints without experts too. Loaded by vLLM alone (`plugin.py`)."""

from collections.abc import Iterable

from typing_extensions import override
from vllm.model_executor.models import qwen3_next

from runner.engines.vllm.wire import Foreign

LM_HEAD = "lm_head."


class Qwen3NextForCausalLM(qwen3_next.Qwen3NextForCausalLM):  # type: ignore[misc]
    """The parent in all but two things: it needs no experts, and a tied head is the embedding.

    The parent takes for granted that some layer has experts, and makes a head of its own also where the
    checkpoint has none, whose weights would then be missing.
    """

    def __init__(self, *, vllm_config: Foreign, prefix: str = "") -> None:
        """Build as the parent does, then tie the head where the checkpoint says so."""
        super().__init__(vllm_config=vllm_config, prefix=prefix)
        if self._tied:
            # The head stays the module it is and takes the embedding's weight.
            self.lm_head.tie_weights(self.model.embed_tokens)

    @property
    def _tied(self) -> bool:
        return bool(getattr(self.config, "tie_word_embeddings", False))

    @override
    def set_moe_parameters(self) -> None:
        if getattr(self.config, "num_experts", 0):
            super().set_moe_parameters()
            return
        # vLLM asks for these of every class that may have experts; none is what it has.
        self.expert_weights: list[Foreign] = []
        self.moe_layers: list[Foreign] = []
        self.num_moe_layers = 0

    @override
    def load_weights(self, weights: Iterable[tuple[str, Foreign]]) -> set[str]:
        if self._tied:
            # A file may hold the head all the same; two writes into one tensor would leave it to their order.
            weights = ((name, weight) for name, weight in weights if not name.startswith(LM_HEAD))
        loaded: set[str] = super().load_weights(weights)
        return loaded
