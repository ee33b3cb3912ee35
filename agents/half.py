"""A model as it computes in bfloat16 anyway: its linear layers converted once instead of at every call."""

from __future__ import annotations

import copy
from typing import Any

import torch


def half(model: Any, packed: bool = True) -> Any:
    """A copy that does under bfloat16 autocast what `model` does, with nothing left for it to convert.

    Linear layers are bfloat16 copies, everything else is shared with `model`. It is for inference; gradients flow
    through it, to adapters on it, unless its layers are `packed` as is best where rows are few. Parameters that ZeRO-3
    has taken apart stay as they are: then it is `model` itself.
    """
    if any(hasattr(parameter, "ds_id") for parameter in model.parameters()):
        return model
    shared = [*model.parameters(), *(module for module in model.modules() if isinstance(module, Half))]
    halved = copy.deepcopy(model, {id(one): one for one in shared})
    for name, layer in [*halved.named_modules()]:
        if type(layer) in (torch.nn.Linear, Half):
            if packed and _packs(layer):
                halved.set_submodule(name, _Packed(layer))
            elif type(layer) is torch.nn.Linear:
                halved.set_submodule(name, Half(layer))
    return halved


def refresh(halved: Any, model: Any) -> None:
    """Copy the present weights of `model` into what `half` made of it."""
    for name, layer in halved.named_modules():
        if isinstance(layer, Half) and (source := model.get_submodule(name)) is not layer:
            layer.take(source)


class Half(torch.nn.Module):
    """A linear layer in bfloat16."""

    def __init__(self, layer: torch.nn.Linear | Half) -> None:
        super().__init__()
        self.weight: torch.Tensor = layer.weight.detach().bfloat16()
        self.bias: torch.Tensor | None = None if layer.bias is None else layer.bias.detach().bfloat16()

    def take(self, layer: torch.nn.Linear | Half) -> None:
        """Copy the layer's present weights to where those before them lie: a recorded step looks for them there."""
        self.weight.copy_(layer.weight.detach())
        if self.bias is not None and layer.bias is not None:
            self.bias.copy_(layer.bias.detach())

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Apply the layer as under autocast."""
        return torch.nn.functional.linear(inputs.to(torch.bfloat16), self.weight, self.bias)


class _Packed(Half):
    """One whose matrix lies as oneDNN's products want it, which pays where rows are few, as in decoding."""

    def __init__(self, layer: torch.nn.Linear | Half) -> None:
        super().__init__(layer)
        self.weight = torch.ops.mkldnn._reorder_linear_weight(self.weight, _ROWS)

    def take(self, layer: torch.nn.Linear | Half) -> None:
        """Copy the layer's present weights."""
        self.weight = torch.ops.mkldnn._reorder_linear_weight(layer.weight.detach().bfloat16(), _ROWS)
        self.bias = None if layer.bias is None else layer.bias.detach().bfloat16()

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Apply the layer as under autocast."""
        inputs = inputs.to(torch.bfloat16)
        return torch.ops.mkldnn._linear_pointwise(inputs, self.weight, self.bias, "none", [], "")  # type: ignore[no-any-return]


_ROWS = 8
"""For how many rows of input the layout is best; it serves any number."""


def packs_here() -> bool:
    """Return True if this processor's products in bfloat16 take packed matrices."""
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def _packs(layer: torch.nn.Linear | Half) -> bool:
    return layer.weight.device.type == "cpu" and packs_here()
