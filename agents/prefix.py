"""The common prefix of a batch of streams: computed once, it stands before every row.

Both caches can be gone through again, as gradient checkpointing does in the backward pass: what a layer reads of them
is the same each time.
"""

from typing import Any

import torch
from transformers.cache_utils import Cache, DynamicLayer


def prefix_cache(body: Any, prefix: torch.Tensor) -> Cache:
    """Return the attention cache of a prefix's ids [P], for passes over its continuations; gradients flow into it."""
    own = Cache(layer_class_to_replicate=_OfPrefix)
    body(input_ids=prefix[None], past_key_values=own, use_cache=True)
    return Cache(layers=[_Before(layer.keys, layer.values) for layer in own.layers])


class _OfPrefix(DynamicLayer):  # type: ignore[misc]  # transformers is untyped here
    """A layer's keys and values [1, heads, P, width] in the prefix's own pass: the first that it is given."""

    is_initialized: bool

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: object, **kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        values = value_states.to(key_states.dtype)  # under autocast float32: what rows send back is rounded once
        if not self.is_initialized:
            self.keys, self.values, self.is_initialized = key_states, values, True
        return key_states, values


class _Before(DynamicLayer):  # type: ignore[misc]
    """A layer's keys and values of the prefix, to which nothing is added: a row sees them and its own."""

    def __init__(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        super().__init__()
        self.keys, self.values, self.is_initialized = keys, values, True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: object, **kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        rows = len(key_states)
        keys, values = self.keys.expand(rows, -1, -1, -1), self.values.expand(rows, -1, -1, -1)
        return torch.cat([keys, key_states], dim=-2), torch.cat([values, value_states], dim=-2)
