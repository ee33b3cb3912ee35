"""Extension of vLLM's worker processes that reloads weights in place.

`vllm` is imported only inside the workers.
"""

from typing import Any


class ReloadExtension:
    """Mix-in for vLLM's worker class that replaces a running model's weights."""

    model_runner: Any

    def arena_reload(self, folder: str) -> None:
        """Replace the model's weights in place by those of a folder."""
        self.model_runner.reload_weights(weights_path=folder)
        tie_head(self.model_runner.model)


def tie_head(model: Any) -> None:
    """Update a tied head after a reload in vLLM's CPU build.

    The CPU build keeps the head in a separate format, which a reload does not update if head and embedding are tied.
    Without this call, the new body would run with the old head.
    """
    from vllm.platforms import current_platform

    if current_platform.is_cpu() and getattr(model.config, "tie_word_embeddings", False):
        from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm

        model.lm_head.weight = model.model.embed_tokens.weight
        dispatch_cpu_unquantized_gemm(model.lm_head, remove_weight=False)
