"""One base model for several policies: a batch goes through the base once, its rows through their own adapters.

Where a pass has many tokens, the low-rank products are taken adapter by adapter, on their own rows. Where it has one in
each row, as in decoding, a call costs more than its arithmetic: then all adapters are one pair of matrices, side by
side, and what is not a row's own is multiplied with 0 between the two, exactly.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import Any, NamedTuple

import torch
from torch.nn.functional import linear

from agents.adapter import low_rank_layers, on_the_same_parameters
from agents.engines.step import product


class _Matrices(NamedTuple):
    """One adapter's part of one layer, float32, and as it computes where there is much."""

    a: torch.Tensor
    b: torch.Tensor
    scale: float
    wide_a: torch.Tensor
    wide_b: torch.Tensor


class Lanes:
    """A base whose rows may each have an adapter."""

    def __init__(self, base: Any, bf16: bool) -> None:
        self.base = base
        self.model: Any = on_the_same_parameters(base)
        """Model that computes."""
        self.bf16 = bf16
        config = base.config.get_text_config(decoder=True)
        self.mixes = not any(getattr(config, name, None) for name in _EXPERTS)
        """Whether rows of several adapters may share a batch: not where tokens leave their rows on the way."""
        self.segments: list[tuple[str, int, int]] = []
        """Whose the rows are, from the first to before the last."""
        self.changes = 0
        """How often an adapter came, changed or went: matrices lie elsewhere then."""
        self._layers: dict[str, _Routed] = {}
        self._masks: dict[tuple[tuple[str, int], ...], torch.Tensor] = {}

    def put(self, name: str, adapted: Any, copied: bool = False) -> None:
        """Serve the adapter of a model on this base under a name; what it learns later needs another `put`.

        While it learns its matrices change here, too, unless they are `copied`.
        """
        self.drop(name)
        for place, layer in low_rank_layers(adapted):
            a, b = layer.a.detach(), layer.b.detach()
            if copied:
                a, b = a.clone(), b.clone()
            wide = (a.bfloat16(), b.bfloat16()) if self.bf16 else (a, b)
            self._routed(place).put(name, _Matrices(a, b, layer.scale, *wide))

    def drop(self, name: str) -> None:
        """Serve that adapter no more; nothing happens where there is none."""
        self.changes += 1
        for layer in self._layers.values():
            layer.drop(name)

    def route(self, names: Sequence[str]) -> None:
        """Set the adapter of each row of the next passes; neighbouring rows with the same one are computed together."""
        segments, start = [], 0
        for name, rows in groupby(names):
            stop = start + sum(1 for _ in rows)
            segments.append((name, start, stop))
            start = stop
        if segments != self.segments:
            self.segments = segments
            self._masks.clear()

    def mask(self, ranks: tuple[tuple[str, int], ...], like: torch.Tensor) -> torch.Tensor:
        """[B, R] 1 where a column, of adapters that lie side by side with these ranks, is the row's own, else 0."""
        if ranks not in self._masks:
            mask, left = like.new_zeros((self.segments[-1][2], sum(rank for _, rank in ranks))), 0
            for name, rank in ranks:
                for owner, start, stop in self.segments:
                    if owner == name:
                        mask[start:stop, left : left + rank] = 1.0
                left += rank
            self._masks[ranks] = mask
        return self._masks[ranks]

    def _routed(self, place: str) -> "_Routed":
        if place not in self._layers:
            self._layers[place] = _Routed(self.model.get_submodule(place), self)
            self.model.set_submodule(place, self._layers[place])
        return self._layers[place]


_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
"""Names in transformers' configurations that say that a model has experts."""


class _Routed(torch.nn.Module):
    """A layer of the base and what adapters add to it."""

    def __init__(self, base: torch.nn.Module, lanes: Lanes) -> None:
        super().__init__()
        self.base, self.lanes = base, lanes
        self._adapters: dict[str, _Matrices] = {}
        self._beside: dict[tuple[str, ...], tuple[torch.Tensor, torch.Tensor, tuple[tuple[str, int], ...]]] = {}
        """Joined matrices of the adapters that were last side by side, and of them alone: their copies take room."""

    def put(self, name: str, matrices: _Matrices) -> None:
        """Have an adapter."""
        self._adapters[name] = matrices
        self._beside.clear()

    def drop(self, name: str) -> None:
        """Have it no more."""
        if self._adapters.pop(name, None) is not None:
            self._beside.clear()

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """[B, (W,) out] from [B, (W,) in], where row i has the adapter of its segment."""
        output = product(self.base, inputs) if inputs.dim() == 2 else self.base(inputs)
        segments = self.lanes.segments
        present = [segment for segment in segments if segment[0] in self._adapters]
        if not present:
            return output
        if len(segments) > 1 and len(inputs) != segments[-1][2]:
            raise ValueError(f"{len(inputs)} rows came to a layer that was to see {segments[-1][2]}")
        if inputs.shape[:-1].numel() == len(inputs) == segments[-1][2]:
            return self._one_token_each(output, inputs, tuple(dict.fromkeys(name for name, *_ in present)))
        for name, start, stop in present:
            own = self._adapters[name]
            rows = slice(start, stop) if len(segments) > 1 else slice(None)  # in scoring rows are not counted
            output[rows] += linear(linear(inputs[rows].to(own.wide_a.dtype), own.wide_a) * own.scale, own.wide_b)
        return output

    def _one_token_each(self, output: torch.Tensor, inputs: torch.Tensor, names: tuple[str, ...]) -> torch.Tensor:
        """Add the adapters' float32 products to the output, where each row has one token."""
        if names not in self._beside:
            self._beside.clear()
            own = [self._adapters[name] for name in names]
            a, b = torch.cat([one.a for one in own]), torch.cat([one.b * one.scale for one in own], 1)
            self._beside[names] = a.t().contiguous(), b.t().contiguous(), tuple(
                (name, len(one.a)) for name, one in zip(names, own, strict=True)
            )  # fmt: skip
        a, b, ranks = self._beside[names]
        with torch.autocast(inputs.device.type, enabled=False):
            inner = inputs.flatten(0, -2).float() @ a
            if len(self.lanes.segments) > 1:
                inner *= self.lanes.mask(ranks, inner)
            flat = output.view(len(inner), -1)
            if flat.dtype == inner.dtype:
                flat.addmm_(inner, b)
            else:
                flat.add_(inner @ b)
        return output
