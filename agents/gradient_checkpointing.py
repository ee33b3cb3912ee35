"""Gradient checkpointing (Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost").

Of every layer only what goes into it is kept until the backward pass, which recomputes the layer: the same numbers
for a third more arithmetic. Transformers' own refuses attention caches, in which we hold what streams share.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint


@contextmanager
def checkpointed(model: torch.nn.Module) -> Iterator[None]:
    """Make the layers of a transformers model keep only their inputs for the backward pass, within the context."""
    from transformers.modeling_layers import GradientCheckpointingLayer  # half of transformers, which the model brought

    layers = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
    for layer in layers:
        layer.forward = partial(_recomputing, layer.forward)
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward  # its class's is seen again


def _recomputing(forward: Any, *args: Any, **kwargs: Any) -> Any:
    return checkpoint(forward, *args, use_reentrant=False, **kwargs)
