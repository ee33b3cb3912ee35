"""A model as it computes in bfloat16 anyway: its linear layers' matrices converted once instead of at every call."""

import copy
from collections.abc import Iterator
from typing import Any

import torch


def half(model: Any) -> Any:
    """A copy that does under bfloat16 autocast what `model` does, to the bit, with nothing left for it to convert.

    Weights and biases of linear layers are bfloat16 copies, everything else is shared with `model`. Parameters that
    ZeRO-3 has taken apart stay as they are: then it is `model` itself.
    """
    if any(hasattr(parameter, "ds_id") for parameter in model.parameters()):
        return model
    found = copy.deepcopy(model, {id(parameter): parameter for parameter in model.parameters()})
    for layer in _linear(found):
        for name, parameter in [*layer.named_parameters(recurse=False)]:
            setattr(layer, name, torch.nn.Parameter(parameter.detach().bfloat16(), requires_grad=False))
    return found


def renew(found: Any, model: Any) -> None:
    """Bring what `half` made of `model` up to its present weights."""
    if found is not model:
        for copied, layer in zip(_linear(found), _linear(model), strict=True):
            for mine, theirs in zip(copied.parameters(), layer.parameters(), strict=True):
                mine.data.copy_(theirs.data)


def _linear(model: torch.nn.Module) -> Iterator[torch.nn.Linear]:
    return (module for module in model.modules() if type(module) is torch.nn.Linear)
