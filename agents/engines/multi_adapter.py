"""Serve several adapters on one base model: a batch runs through the base once, and each row through its own adapter.

In passes with many tokens, low-rank products are computed per adapter on its rows. With one token per row, as in
decoding, a call costs more than its arithmetic. The adapters of all layers with the same input are therefore joined to
one pair of matrices. Between the two products, the columns of other rows' adapters are set to 0, so results are exact.
"""

from collections.abc import Sequence
from itertools import accumulate, groupby
from typing import Any, NamedTuple

import torch
from torch.nn.functional import linear

from agents.adapter import copy_sharing_parameters, low_rank_layers
from agents.bf16 import find_group


class _Matrices(NamedTuple):
    """Matrices of an adapter in a layer: `a` and `b` in float32, `wide_a` and `wide_b` for passes with many tokens."""

    a: torch.Tensor
    b: torch.Tensor
    scale: float
    wide_a: torch.Tensor
    wide_b: torch.Tensor


class MultiAdapterModel:
    """Base model with several adapters, in whose batches each row may have another adapter.

    `add_adapter` adds an adapter, `route` assigns adapters to rows, and `model` is the module to call.
    """

    def __init__(self, base: Any, bf16: bool) -> None:
        self.base = base
        self.model: Any = copy_sharing_parameters(base)
        """Model with routed layers, on the base's parameters."""
        self.bf16 = bf16
        config = base.config.get_text_config(decoder=True)
        self.can_mix = not any(getattr(config, name, None) for name in _EXPERT_SETTINGS)
        """Whether a batch may have rows of several adapters; False for mixtures of experts, which regroup tokens."""
        self.segments: list[tuple[str, int, int]] = []
        """(adapter, first row, end row) of each run of rows."""
        self.changes = 0
        """Number of times that adapters were added, changed or removed, which moves matrices."""
        self._layers: dict[str, _RoutedLayer] = {}
        self._names: tuple[str, ...] = ()
        """Distinct names of the segments."""
        self._joined: dict[tuple[torch.nn.Module, ...], tuple[tuple[str, ...], _JoinedMatrices | None]] = {}
        """Joined matrices by layers, for the most recent set of adapters only, because copies need memory."""
        self._masks: dict[tuple[tuple[str, int], ...], torch.Tensor] = {}

    def add_adapter(self, name: str, adapted: Any, copied: bool = False) -> None:
        """Serve the adapter of the model `adapted`, which is on this base, under a name.

        Its matrices are shared and change with training, unless `copied`. Call `add_adapter` again after other changes.
        """
        self.remove_adapter(name)
        for place, layer in low_rank_layers(adapted):
            a, b = layer.a.detach(), layer.b.detach()
            if copied:
                a, b = a.clone(), b.clone()
            wide = (a.bfloat16(), b.bfloat16()) if self.bf16 else (a, b)
            self._route_layer(place).adapters[name] = _Matrices(a, b, layer.scale, *wide)

    def remove_adapter(self, name: str) -> None:
        """Remove an adapter, if present, and all joined matrices."""
        self.changes += 1
        self._joined.clear()
        for layer in self._layers.values():
            layer.adapters.pop(name, None)

    def route(self, names: Sequence[str]) -> None:
        """Set the adapter of each row for the next forward passes, by name; a name without an adapter means the base.

        Neighbouring rows with the same adapter are computed together.
        """
        segments, start = [], 0
        for name, rows in groupby(names):
            stop = start + sum(1 for _ in rows)
            segments.append((name, start, stop))
            start = stop
        if segments != self.segments:
            self.segments, self._names = segments, tuple(dict.fromkeys(name for name, *_ in segments))
            self._masks.clear()

    def add_outputs(self, y: torch.Tensor, x: torch.Tensor, layers: tuple[torch.nn.Module, ...]) -> None:
        """Add the adapters' outputs to `y` [B, outs], the outputs of layers with the same input `x` [B, in], in place.

        Each row holds one token. Raises ValueError if the number of rows is not that of `route`.
        """
        names, joined = self._joined.get(layers, ((), None))
        if names != self._names:
            joined = _join_matrices(self._names, layers, y)
            self._joined[layers] = self._names, joined
        if joined is None:
            return
        if len(self.segments) > 1 and len(x) != self.segments[-1][2]:
            raise ValueError(f"adapters are routed to {self.segments[-1][2]} rows, but a layer got {len(x)}")
        # `out` keeps autocast from computing this product in bfloat16
        inner = torch.mm(x.float(), joined.a, out=x.new_empty((len(x), joined.a.shape[1]), dtype=torch.float32))
        if len(self.segments) > 1:
            inner *= self._mask(joined.ranks, inner)
        y.addmm_(inner.to(y.dtype), joined.b)

    def _mask(self, ranks: tuple[tuple[str, int], ...], like: torch.Tensor) -> torch.Tensor:
        """Return [B, R] with 1 where a column of the joined matrices belongs to the row's adapter, else 0; cached.

        `ranks` are the adapters' names and numbers of columns.
        """
        if ranks not in self._masks:
            mask, column = like.new_zeros((self.segments[-1][2], sum(rank for _, rank in ranks))), 0
            for name, rank in ranks:
                for owner, start, stop in self.segments:
                    if owner == name:
                        mask[start:stop, column : column + rank] = 1.0
                column += rank
            self._masks[ranks] = mask
        return self._masks[ranks]

    def _route_layer(self, place: str) -> "_RoutedLayer":
        if place not in self._layers:
            self._layers[place] = _RoutedLayer(self.model.get_submodule(place), self)
            self.model.set_submodule(place, self._layers[place])
        return self._layers[place]


_EXPERT_SETTINGS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
"""Settings in transformers' configs that indicate a mixture of experts."""


class _RoutedLayer(torch.nn.Module):
    """Layer of the base, and its adapters' matrices by adapter name."""

    def __init__(self, base: torch.nn.Module, shared_model: MultiAdapterModel) -> None:
        super().__init__()
        self.base, self.shared_model = base, shared_model
        self.adapters: dict[str, _Matrices] = {}

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the outputs [B, (W,) out] for inputs [B, (W,) in], each row with its routed adapter."""
        output = apply_layer(self.base, inputs) if inputs.dim() == 2 else self.base(inputs)
        segments = self.shared_model.segments
        adapted = [segment for segment in segments if segment[0] in self.adapters]
        if not adapted:
            return output
        if inputs.shape[:-1].numel() == len(inputs) == segments[-1][2]:
            self.shared_model.add_outputs(output.view(len(inputs), -1), inputs.flatten(0, -2), (self,))
            return output
        if len(segments) > 1 and len(inputs) != segments[-1][2]:
            raise ValueError(f"adapters are routed to {segments[-1][2]} rows, but a layer got {len(inputs)}")
        for name, start, stop in adapted:
            matrices = self.adapters[name]
            rows = slice(start, stop) if len(segments) > 1 else slice(None)  # scoring routes without counting rows
            inner = linear(inputs[rows].to(matrices.wide_a.dtype), matrices.wide_a) * matrices.scale
            change = inner.flatten(0, -2).to(output.dtype), matrices.wide_b.to(output.dtype).t()
            output[rows].view(-1, output.shape[-1]).addmm_(*change)
        return output


class _JoinedMatrices(NamedTuple):
    """Adapters' matrices of one or several layers with the same input, concatenated."""

    a: torch.Tensor
    """[in, R] float32."""
    b: torch.Tensor
    """[R, outs of the layers side by side] in the outputs' dtype, 0 where a column of A belongs to another layer."""
    ranks: tuple[tuple[str, int], ...]
    """Adapter and number of its columns in A, in order."""


def _join_matrices(names: Sequence[str], layers: Sequence[Any], like: torch.Tensor) -> _JoinedMatrices | None:
    """Concatenate the matrices of these adapters for outputs like `like`; None if the layers have none of them."""
    entries = [
        (i, name, layer.adapters[name])
        for i, layer in enumerate(layers)
        if isinstance(layer, _RoutedLayer)
        for name in names
        if name in layer.adapters
    ]
    if not entries:
        return None
    starts = [0, *accumulate(_base(layer).out_features for layer in layers[:-1])]
    b, row = like.new_zeros((sum(len(adapter.a) for *_, adapter in entries), like.shape[1])), 0
    for i, _, adapter in entries:
        b[row : row + len(adapter.a), starts[i] : starts[i] + len(adapter.b)] = (adapter.b * adapter.scale).t()
        row += len(adapter.a)
    a = torch.cat([adapter.a for *_, adapter in entries])
    return _JoinedMatrices(a.t().contiguous(), b, tuple((name, len(adapter.a)) for _, name, adapter in entries))


def _base(layer: Any) -> Any:
    return layer.base if isinstance(layer, _RoutedLayer) else layer


def apply_layers(layers: tuple[Any, ...], x: torch.Tensor) -> torch.Tensor:
    """Return layers' outputs for the same input [B, in], side by side [B, outs], with the rows' adapters.

    Each row holds one token.
    """
    y = apply_bases([_base(layer) for layer in layers], x)
    if (routed := next((layer for layer in layers if isinstance(layer, _RoutedLayer)), None)) is not None:
        routed.shared_model.add_outputs(y, x, layers)
    return y


def apply_layer(layer: Any, x: torch.Tensor) -> torch.Tensor:
    """Return a linear layer's outputs [B, out]. On a CPU few rows are computed as W x^T, faster in MKL than x W^T."""
    is_small = x.device.type == "cpu" and 1 < len(x) <= _TRANSPOSED_ROWS
    if not is_small or type(layer) is not torch.nn.Linear:
        return layer(x)  # type: ignore[no-any-return]
    y = torch.mm(layer.weight, x.t()).t().contiguous()
    return y if layer.bias is None else y + layer.bias


_TRANSPOSED_ROWS = 48
"""Maximum rows for W x^T. A step takes .56 of the time with 2, .82 with 8, .95 with 32, 1 with 64 (SmolLM2, AVX2)."""


def apply_bases(layers: Sequence[Any], x: torch.Tensor) -> torch.Tensor:
    """Return layers' outputs for the same input [B, in], side by side [B, outs]; one product if weights are joint."""
    joined = find_group(layers)
    return torch.cat([apply_layer(layer, x) for layer in layers], -1) if joined is None else joined(x)
