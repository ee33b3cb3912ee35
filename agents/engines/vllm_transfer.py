"""Weight transfer of vLLM's workers: a function named in the update yields the tensors.

Only vLLM's workers load this module, to mix `TransferExtension` in before they load the model, so it imports `vllm`.
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

from agents.engines.vllm_server import TRANSFER
from agents.engines.vllm_worker import ReloadExtension, tie_head


@dataclass
class NoSettings(WeightTransferInitInfo):  # type: ignore[misc]
    """No initialisation: each update brings its own connection."""


@dataclass
class TensorSource(WeightTransferUpdateInfo):  # type: ignore[misc]
    """Function in this process that yields the tensors of an update."""

    function: str
    """Name for `pkgutil.resolve_name`; called with the worker's number in its server and `arguments`."""
    arguments: dict[str, Any] = field(default_factory=dict)


class NamedTensors(WeightTransferEngine):  # type: ignore[misc]
    """Weight transfer that loads tensors, named as in a checkpoint, as they arrive.

    vLLM keeps the tensors of a layer until it has all of them, so each must have memory of its own.
    """

    init_info_cls, update_info_cls = NoSettings, TensorSource

    def init_transfer_engine(self, init_info: NoSettings) -> None:
        """Do nothing."""

    def start_weight_update(self) -> None:
        """Prepare the model's layers to be loaded again."""
        initialize_layerwise_reload(self.model)

    def update_weights(self, update_info: dict[str, Any]) -> None:
        """Load the tensors of an update, and return when they are on the device, which may be a CPU."""
        self.receive_weights(self.parse_update_info(update_info))
        if self.device.type != "cpu":  # where vLLM's own method fails
            torch.accelerator.synchronize()

    def receive_weights(self, update_info: TensorSource) -> None:
        """Load the tensors of an update. After an error the layers can be loaded again, but are of two versions."""
        tensors: Iterator[tuple[str, torch.Tensor]] = resolve_name(update_info.function)(
            self.parallel_config.rank, **update_info.arguments
        )
        try:
            for named in tensors:
                self.model.load_weights([named])
        except BaseException:
            self.finish_weight_update()  # else the next update would add to what these layers have
            raise

    def finish_weight_update(self) -> None:
        """Put the loaded layers into service."""
        finalize_layerwise_reload(self.model, self.model_config)
        tie_head(self.model)

    def shutdown(self) -> None:
        """Do nothing: an update's connection ends with it."""


class TransferExtension(ReloadExtension):
    """Extension of vLLM's worker processes that adds this transfer. Importing this module registers it with vLLM."""


WeightTransferEngineFactory.register_engine(TRANSFER, NamedTensors)
