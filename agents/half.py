"""Copy a model with its linear layers converted to bfloat16 once, instead of at every call under autocast."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch


def half(model: Any, packed: bool = True, moves: bool = False) -> Any:
    """Return a copy of the model for inference that computes in bfloat16 as the model would under autocast.

    Linear layers become bfloat16 copies; all other parameters are shared. `packed` layers are fastest with few rows,
    but gradients flow through the copy, to adapters on it, only without `packed`. A model that ZeRO-3 has partitioned
    is returned unchanged. `moves` allows moving the model's own matrices if they are already bfloat16.
    """
    if any(hasattr(parameter, "ds_id") for parameter in model.parameters()):
        return model
    shared = [*model.parameters(), *(module for module in model.modules() if isinstance(module, Half))]
    halved = copy.deepcopy(model, {id(one): one for one in shared})
    sources: dict[torch.nn.Module, torch.nn.Linear] = {}
    if packed:
        _join_siblings(halved)
    for name, layer in [*halved.named_modules()]:
        if type(layer) in (torch.nn.Linear, Half):
            if packed and _packs(layer):
                halved.set_submodule(name, _Packed(layer))
            elif type(layer) is torch.nn.Linear:
                halved.set_submodule(name, Half(layer))
                if moves or layer.weight.dtype != torch.bfloat16:
                    sources[halved.get_submodule(name)] = layer
    _stack_siblings(halved, sources)
    return halved


def halve_linears(model: Any) -> Any:
    """Convert a frozen model's linear layers to bfloat16 in place and return it, for `half` to share or pack them.

    Matrices that other layers share, such as an embedding's, stay as they are.
    """
    uses = Counter(id(parameter) for _, parameter in model.named_parameters(remove_duplicate=False))
    for layer in model.modules():
        if type(layer) is torch.nn.Linear:
            for parameter in layer.parameters(recurse=False):
                if uses[id(parameter)] == 1:
                    parameter.data = parameter.data.bfloat16()
    return model


def refresh(halved: Any, model: Any) -> None:
    """Update a model's bfloat16 copy, made by `half`, with the model's present weights."""
    for name, layer in halved.named_modules():
        if isinstance(layer, Half) and (source := model.get_submodule(name)) is not layer:
            layer.take(source)


class Half(torch.nn.Module):
    """Linear layer with bfloat16 copies of another layer's weights. `stacked` is its group of joint layers, if any."""

    def __init__(self, layer: torch.nn.Linear | Half) -> None:
        super().__init__()
        self.out_features: int = layer.out_features
        self.weight: torch.Tensor = layer.weight.detach().bfloat16()
        self.bias: torch.Tensor | None = None if layer.bias is None else layer.bias.detach().bfloat16()
        self.stacked: Stacked | None = None

    def take(self, layer: torch.nn.Linear | Half) -> None:
        """Copy the layer's present weights in place, because recorded CUDA graphs read them at the same addresses."""
        self.weight.copy_(layer.weight.detach())
        if self.bias is not None and layer.bias is not None:
            self.bias.copy_(layer.bias.detach())

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the layer's output in bfloat16, as under autocast."""
        return torch.nn.functional.linear(inputs.to(torch.bfloat16), self.weight, self.bias)


class Stacked:
    """Linear layers with the same inputs, whose matrices are views of one stacked matrix. Call it for all outputs."""

    def __init__(self, layers: Sequence[Half]) -> None:
        """Stack the layers' weights and replace them by views."""
        self.parts, outs = tuple(layers), [layer.out_features for layer in layers]
        self._weight, self._bias = _concatenate(layers)
        for i, layer in enumerate(layers):
            layer.stacked, layer.weight = self, torch.split(self._weight, outs)[i]
            layer.bias = None if layer.bias is None or self._bias is None else torch.split(self._bias, outs)[i]

    def __call__(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the outputs of all layers side by side [..., sum of outs], as under autocast."""
        return torch.nn.functional.linear(inputs.to(torch.bfloat16), self._weight, self._bias)


class _Packed(Half):
    """A bfloat16 linear layer in oneDNN's packed layout, which is faster with few rows, as in decoding."""

    def __init__(self, layer: torch.nn.Linear | Half) -> None:
        super().__init__(layer)
        self.weight = _reordered(self.weight)

    def take(self, layer: torch.nn.Linear | Half) -> None:
        """Replace the weights by packed copies of the layer's present ones."""
        self.weight = _reordered(layer.weight.detach().bfloat16())
        self.bias = None if layer.bias is None else layer.bias.detach().bfloat16()

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the layer's output in bfloat16, as under autocast."""
        return _product(inputs, self.weight, self.bias)


class Joined:
    """Packed layers with the same inputs as one matrix: with few rows, the cost of a product is mostly its call.

    Call it for all outputs at once; its layers (`parts`) call `part`.
    """

    def __init__(self, layers: Sequence[torch.nn.Linear | Half]) -> None:
        self._outs = [layer.out_features for layer in layers]
        self._taken: dict[int, Half] = {}
        self._inputs: torch.Tensor | None = None
        self._outputs: dict[int, torch.Tensor] = {}
        """Outputs for `_inputs` of the layers that have not been called yet."""
        self.parts = tuple(_Part(self, i, layer) for i, layer in enumerate(layers))

    def take(self, i: int, layer: torch.nn.Linear | Half) -> None:
        """Store the present weights of layer i; once all layers have stored theirs, the joint matrix is rebuilt."""
        self._taken[i] = Half(layer)
        if len(self._taken) == len(self._outs):
            taken = [self._taken.pop(i) for i in range(len(self._outs))]
            weight, self._bias = _concatenate(taken)
            self._weight = _reordered(weight)

    def __call__(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the outputs of all layers side by side [..., sum of outs], as under autocast."""
        return _product(inputs, self._weight, self._bias)

    def part(self, i: int, inputs: torch.Tensor) -> torch.Tensor:
        """Return the output [..., out] of layer i. Other layers' outputs are cached for calls with the same inputs."""
        if self._inputs is not inputs or i not in self._outputs:
            self._inputs, self._outputs = inputs, dict(enumerate(torch.split(self(inputs), self._outs, -1)))
        part = self._outputs.pop(i)
        if not self._outputs:
            self._inputs = None
        return part.contiguous()


class _Part(Half):
    """Layer whose weights are part of the matrix of a `Joined`; its own `weight` is a NaN placeholder."""

    def __init__(self, joined: Joined, i: int, layer: torch.nn.Linear | Half) -> None:
        torch.nn.Module.__init__(self)
        self.stacked = None
        self.joined, self.i, self.out_features = joined, i, layer.out_features
        self.weight = torch.full((), torch.nan, dtype=torch.bfloat16).expand(layer.weight.shape)
        """NaN placeholder with the layer's shape; the real weights are in `joined`."""
        self.take(layer)

    def take(self, layer: torch.nn.Linear | Half) -> None:
        """Pass the layer's present weights to the joint matrix, which is rebuilt once all its layers did so."""
        self.joined.take(self.i, layer)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the layer's output in bfloat16, as under autocast."""
        return self.joined.part(self.i, inputs)


def together(layers: Sequence[Any]) -> Joined | Stacked | None:
    """Return the `Joined` or `Stacked` group whose members are exactly these layers in this order, or None."""
    first = layers[0]
    one = first.joined if isinstance(first, _Part) else first.stacked if isinstance(first, Half) else None
    return one if one is not None and one.parts == tuple(layers) else None


def _concatenate(layers: Sequence[Half]) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return the layers' joint matrix and bias. Missing biases are 0; the bias is None if all are missing."""
    biases = [layer.weight.new_zeros(layer.out_features) if layer.bias is None else layer.bias for layer in layers]
    bias = None if all(layer.bias is None for layer in layers) else torch.cat(biases)
    return torch.cat([layer.weight for layer in layers]), bias


def _join_siblings(halved: Any) -> None:
    """Replace sibling layers with the same inputs by parts of one `Joined` matrix, if all of them can be packed."""
    for module in [*halved.modules()]:
        for names in _READ_THE_SAME:
            layers: list[Any] = [getattr(module, name, None) for name in names]
            fit = all(type(layer) in (torch.nn.Linear, Half) and _packs(layer) for layer in layers)
            if fit and len({layer.weight.shape[1] for layer in layers}) == 1:
                for name, part in zip(names, Joined(layers).parts, strict=True):
                    setattr(module, name, part)


def _stack_siblings(halved: Any, sources: dict[torch.nn.Module, torch.nn.Linear]) -> None:
    """Stack the matrices of new sibling layers with the same inputs.

    `sources` maps new layers to their originals, which then share the stacked memory if they shared the layers' memory.
    """
    for module in [*halved.modules()]:
        for names in _READ_THE_SAME:
            layers: list[Any] = [getattr(module, name, None) for name in names]
            if all(layer in sources for layer in layers) and len({layer.weight.shape[1] for layer in layers}) == 1:
                shared = [layer.weight.data_ptr() == sources[layer].weight.data_ptr() for layer in layers]
                Stacked(layers)
                for layer in (layer for layer, one in zip(layers, shared, strict=True) if one):
                    sources[layer].weight.data = layer.weight  # or what was there would be held beside it


_READ_THE_SAME = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
"""Names of sibling layers that read the same inputs in most model types. In other models the joint product wastes time,
and unused outputs stay in memory until the next pass."""
_ROWS = 8
"""Number of input rows for which the packed layout is optimal; it works for any number."""


def _reordered(weight: torch.Tensor) -> torch.Tensor:
    return torch.ops.mkldnn._reorder_linear_weight(weight, _ROWS)  # type: ignore[no-any-return]


def _product(inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """Return inputs times a packed matrix, plus the bias, in bfloat16."""
    inputs = inputs.to(torch.bfloat16)
    return torch.ops.mkldnn._linear_pointwise(inputs, weight, bias, "none", [], "")  # type: ignore[no-any-return]


def packs_here() -> bool:
    """Return True if this processor and this build of torch multiply packed bfloat16 matrices (oneDNN)."""
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def _packs(layer: torch.nn.Linear | Half) -> bool:
    return layer.weight.device.type == "cpu" and packs_here()
