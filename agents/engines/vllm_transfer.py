"""Weight transfer to vLLM's workers, by tensors that a function named in the update yields, or from a folder.

Only vLLM's workers import this module, for `ReloadExtension`, before they load the model. So it may import `vllm`.
Source: vLLM 0.32, `vllm.distributed.weight_transfer.base`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pkgutil import resolve_name
from typing import Any

import torch
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory
from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload
from vllm.platforms import current_platform

from agents.engines.vllm_server import TRANSFER


@dataclass
class NoSettings(WeightTransferInitInfo):  # type: ignore[misc]
    """Empty initialisation settings, because each update opens its own connection."""


@dataclass
class TensorSource(WeightTransferUpdateInfo):  # type: ignore[misc]
    """Name and arguments of the function that yields an update's tensors in the worker process."""

    function: str
    """Name for `pkgutil.resolve_name`. The function is called with the worker's rank in its server and `arguments`."""
    arguments: dict[str, Any] = field(default_factory=dict)


class NamedTensors(WeightTransferEngine):  # type: ignore[misc]
    """Weight transfer that loads tensors, named as in a checkpoint, as they arrive.

    vLLM keeps a layer's tensors until it has all of them, so a tensor's memory must not be reused for the next one.
    """

    init_info_cls, update_info_cls = NoSettings, TensorSource

    def init_transfer_engine(self, init_info: NoSettings) -> None:
        """Do nothing, because each update opens its own connection."""

    def start_weight_update(self) -> None:
        """Prepare the model's layers for new weights."""
        initialize_layerwise_reload(self.model)

    def update_weights(self, update_info: dict[str, Any]) -> None:
        """Load the tensors of an update and wait until they are on the device."""
        self.receive_weights(self.parse_update_info(update_info))
        if self.device.type != "cpu":  # vLLM's own method fails on the CPU
            torch.accelerator.synchronize()

    def receive_weights(self, update_info: TensorSource) -> None:
        """Load the tensors of an update. After an error the layers hold a mix of both versions, but can be reloaded."""
        tensors: Iterator[tuple[str, torch.Tensor]] = resolve_name(update_info.function)(
            self.parallel_config.rank, **update_info.arguments
        )
        try:
            for name in tensors:
                self.model.load_weights([name])
        except BaseException:
            self.finish_weight_update()  # otherwise the next update would add to the partly loaded layers
            raise

    def finish_weight_update(self) -> None:
        """Convert the loaded layers for inference and tie the head."""
        finalize_layerwise_reload(self.model, self.model_config)
        tie_head(self.model)

    def shutdown(self) -> None:
        """Do nothing, because each update closes its own connection."""


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
    if current_platform.is_cpu() and getattr(model.config, "tie_word_embeddings", False):
        from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm

        model.lm_head.weight = model.model.embed_tokens.weight
        dispatch_cpu_unquantized_gemm(model.lm_head, remove_weight=False)


WeightTransferEngineFactory.register_engine(TRANSFER, NamedTensors)
