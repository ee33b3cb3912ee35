"""Shared tokens in one forward pass: prefix caches, and token trees in a row (SpecInfer, Miao et al. 2024).

Prefix caches return the same tensors when they are updated again, as gradient checkpointing does in the backward pass.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch.utils.checkpoint import checkpoint
from transformers.cache_utils import Cache, DynamicLayer

from agents.packing import count_shared


class Tree(NamedTuple):
    """Token tree of one row, without the batch prefix: tokens of several sequences, shared ones only once."""

    ids: list[int]
    paths: list[Sequence[int]]
    """Columns of each sequence's tokens."""


def build_tree(sequences: Sequence[Sequence[int]], prefix: int) -> Tree:
    """Build the token tree of lexicographically sorted sequences, leaving out their first `prefix` ids."""
    row, before = Tree(list(sequences[0][prefix:]), [range(len(sequences[0]) - prefix)]), sequences[0]
    for ids in sequences[1:]:
        shared = count_shared(before, ids) - prefix
        new = ids[prefix + shared :]
        row.paths.append([*row.paths[-1][:shared], *range(len(row.ids), len(row.ids) + len(new))])
        row.ids.extend(new)
        before = ids
    return row


def build_tree_mask(rows: Sequence[Tree], prefix: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the attention mask [B, L, L] and token positions [B, L] of token trees padded to `width` (L).

    The mask is bool, True if a token may attend to another of its row; positions are int64 and count the prefix.
    Padding attends to itself.
    """
    mask = torch.eye(width, dtype=torch.bool).repeat(len(rows), 1, 1)
    positions = torch.zeros((len(rows), width), dtype=torch.long)
    for number, row in enumerate(rows):
        known = 0
        for path in row.paths:
            columns = torch.tensor(path, dtype=torch.long)
            new = columns[columns >= known]
            positions[number, columns] = torch.arange(prefix, prefix + len(columns))
            if len(new):
                old = columns[columns < known]
                mask[number, new[:, None], old] = True
                mask[number, new[:, None], new] = torch.ones((len(new), len(new)), dtype=torch.bool).tril()
                known = int(new[-1]) + 1
    return mask, positions


def compute_prefix_cache(body: Any, **prefix: torch.Tensor) -> Cache:
    """Run a prefix and return its attention cache for passes over continuations. Gradients flow into the cache.

    `prefix` is `input_ids` [1, P] or `inputs_embeds` [1, P, width].
    """
    recording = Cache(layer_class_to_replicate=_RecordingLayer)
    body(**prefix, past_key_values=recording, use_cache=True)
    return Cache(layers=[_PrefixLayer(layer.keys, layer.values) for layer in recording.layers])


class _RecordingLayer(DynamicLayer):  # type: ignore[misc]  # transformers is untyped here
    """Cache layer for the prefix's own pass; stores the first update of keys and values [1, heads, P, width]."""

    is_initialized: bool

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: object, **kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        values = value_states.to(key_states.dtype)  # float32 under autocast: the rows' gradients are rounded only once
        if not self.is_initialized:
            self.keys, self.values, self.is_initialized = key_states, values, True
        return key_states, values


class _PrefixLayer(DynamicLayer):  # type: ignore[misc]
    """Cache layer that returns the prefix's constant keys and values in front of each row's own."""

    def __init__(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        super().__init__()
        self.keys, self.values, self.is_initialized = keys, values, True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: object, **kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        rows = len(key_states)
        keys, values = self.keys.expand(rows, -1, -1, -1), self.values.expand(rows, -1, -1, -1)
        return torch.cat([keys, key_states], dim=-2), torch.cat([values, value_states], dim=-2)


@contextmanager
def use_checkpointing(model: torch.nn.Module) -> Iterator[None]:
    """Use gradient checkpointing in a transformers model within the context.

    Its layers keep only their inputs for the backward pass, which recomputes each layer with equal results for a third
    more arithmetic (Chen et al. 2016). transformers' own checkpointing refuses attention caches, which hold our shared
    tokens.
    """
    from transformers.modeling_layers import GradientCheckpointingLayer  # slow, unless a model was imported already

    layers = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
    for layer in layers:
        layer.forward = partial(_checkpoint_call, layer.forward)
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward  # restores the method of its class


def _checkpoint_call(forward: Any, *args: Any, **kwargs: Any) -> Any:
    return checkpoint(forward, *args, use_reentrant=False, **kwargs)
