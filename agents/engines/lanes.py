"""One base model for several policies: a batch goes through the base once, its rows through their own adapters.

The low-rank products are taken adapter by adapter: a few rows times a few columns, beside which the base's cost counts.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import Any, NamedTuple

import torch
from torch.nn.functional import linear

from agents.adapter import low_rank_layers, on_the_same_parameters


class _Matrices(NamedTuple):
    """One adapter's part of one layer."""

    a: torch.Tensor
    b: torch.Tensor
    scale: float


class Lanes:
    """A base whose rows may each have an adapter."""

    def __init__(self, base: Any, bf16: bool) -> None:
        self.base = base
        self.model: Any = on_the_same_parameters(base)
        """What computes."""
        self.bf16 = bf16
        config = base.config.get_text_config(decoder=True)
        self.mixes = not any(getattr(config, name, None) for name in _EXPERTS)
        """Whether rows of several adapters may share a batch: not where tokens leave their rows on the way."""
        self.segments: list[tuple[str | None, int, int]] = []
        """Whose the rows are, from the first to before the last."""
        self._layers: dict[str, _Routed] = {}

    def put(self, name: str, adapted: Any) -> None:
        """Serve the adapter of a model on this base under a name; in float32 by reference."""
        self.drop(name)
        for place, layer in low_rank_layers(adapted):
            a, b = layer.a.detach(), layer.b.detach()
            made = _Matrices(a.bfloat16(), b.bfloat16(), layer.scale) if self.bf16 else _Matrices(a, b, layer.scale)
            self._routed(place).adapters[name] = made

    def drop(self, name: str) -> None:
        """Serve that adapter no more; nothing happens where there is none."""
        for layer in self._layers.values():
            layer.adapters.pop(name, None)

    def route(self, names: Sequence[str | None]) -> None:
        """Whose adapter each row of the next passes is to have; neighbours with the same one are taken together."""
        self.segments, start = [], 0
        for name, rows in groupby(names):
            stop = start + sum(1 for _ in rows)
            self.segments.append((name, start, stop))
            start = stop

    def _routed(self, place: str) -> "_Routed":
        if place not in self._layers:
            self._layers[place] = _Routed(self.model.get_submodule(place), self)
            self.model.set_submodule(place, self._layers[place])
        return self._layers[place]


_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
"""How transformers' configurations say that a model has experts."""


class _Routed(torch.nn.Module):
    """A layer of the base and what adapters add to it."""

    def __init__(self, base: torch.nn.Module, lanes: Lanes) -> None:
        super().__init__()
        self.base, self.lanes = base, lanes
        self.adapters: dict[str, _Matrices] = {}

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """[B, W, out] from [B, W, in], where row i has the adapter of its segment."""
        output: torch.Tensor = self.base(inputs)
        segments = self.lanes.segments
        if len(segments) == 1:  # then it matters not how many rows there are, as in scoring
            own = self.adapters.get(segments[0][0] or "")
            return output if own is None else output + self._added(inputs, own)
        if len(inputs) != segments[-1][2]:
            raise ValueError(f"{len(inputs)} rows came to a layer that was to see {segments[-1][2]}")
        for name, start, stop in segments:
            if (own := self.adapters.get(name or "")) is not None:
                output[start:stop] += self._added(inputs[start:stop], own)
        return output

    @staticmethod
    def _added(inputs: torch.Tensor, own: _Matrices) -> torch.Tensor:
        return linear(linear(inputs.to(own.a.dtype), own.a), own.b) * own.scale
