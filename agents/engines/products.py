"""Linear layers in decoding, where rows are few and a call costs more than its arithmetic."""

from collections.abc import Sequence
from typing import Any

import torch

from agents.half import together


def product(layer: Any, x: torch.Tensor) -> torch.Tensor:
    """[B, out] of a linear layer from [B, in]; a few rows in float32 as W x^T, which MKL computes faster than x W^T.

    ZeRO-3 puts weights together only while their layer is called.
    """
    few = x.device.type == "cpu" and 1 < len(x) <= _FEW
    if not few or type(layer) is not torch.nn.Linear or hasattr(layer.weight, "ds_id"):
        return layer(x)  # type: ignore[no-any-return]
    y = torch.mm(layer.weight, x.t()).t().contiguous()
    return y if layer.bias is None else y + layer.bias


_FEW = 48
"""Rows up to which that pays: .56 of a step's time with 2, .82 with 8, .95 with 32, none with 64 (SmolLM2, AVX2)."""


def products(layers: Sequence[Any], x: torch.Tensor) -> torch.Tensor:
    """[B, outs side by side] of layers that read the same [B, in]: by one product where their matrices are one."""
    joined = together(layers)
    return torch.cat([product(layer, x) for layer in layers], -1) if joined is None else joined(x)
