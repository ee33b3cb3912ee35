"""Extension of vLLM's worker processes: reload weights in place.

vLLM mixes `ReloadExtension` into its workers. `vllm` is imported only inside them.
"""

from typing import Any


class ReloadExtension:
    """Extension of vLLM's worker processes, which vLLM mixes into its worker class."""

    model_runner: Any

    def arena_reload(self, folder: str) -> None:
        """Replace the model's weights, in place, by those of a folder."""
        self.model_runner.reload_weights(weights_path=folder)
        tie_head(self.model_runner.model)


def tie_head(model: Any) -> None:
    """Give a tied head the reloaded embedding in vLLM's CPU build; do nothing in other builds.

    The CPU build converts the head's weights, and a reload does not convert them again if head and embedding are tied:
    the new body would run with the old head.
    """
    from vllm.platforms import current_platform

    if current_platform.is_cpu() and getattr(model.config, "tie_word_embeddings", False):
        from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm

        model.lm_head.weight = model.model.embed_tokens.weight
        dispatch_cpu_unquantized_gemm(model.lm_head, remove_weight=False)
