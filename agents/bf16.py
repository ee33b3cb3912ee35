"""Copy a model with its linear layers converted to bfloat16 once, instead of at every call under autocast."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch


def convert_to_bf16(model: Any, packed: bool = True, may_move: bool = False) -> Any:
    """Return a copy of the model for inference that computes in bfloat16 as the model would under autocast.

    Linear layers become bfloat16 copies; all other parameters are shared. `packed` layers are fastest with few rows,
    but block gradients, which adapters on the copy need. With `may_move`, bfloat16 matrices of the model itself are
    moved to the stacked storage of sibling layers, which saves a second copy of them.
    """
    shared = [*model.parameters(), *(module for module in model.modules() if isinstance(module, Bf16Linear))]
    copied = copy.deepcopy(model, {id(item): item for item in shared})
    sources: dict[torch.nn.Module, torch.nn.Linear] = {}
    if packed:
        _join_siblings(copied)
    for name, layer in [*copied.named_modules()]:
        if type(layer) in (torch.nn.Linear, Bf16Linear):
            if packed and _can_pack(layer):
                copied.set_submodule(name, _PackedLinear(layer))
            elif type(layer) is torch.nn.Linear:
                copied.set_submodule(name, Bf16Linear(layer))
                if may_move or layer.weight.dtype != torch.bfloat16:
                    sources[copied.get_submodule(name)] = layer
    _stack_siblings(copied, sources)
    return copied


def convert_linears(model: Any) -> Any:
    """Convert a frozen model's linear layers to bfloat16 in place and return it.

    `convert_to_bf16` can then share or pack them. Matrices that other layers share, such as an embedding's, stay as
    they are.
    """
    uses = Counter(id(parameter) for _, parameter in model.named_parameters(remove_duplicate=False))
    for layer in model.modules():
        if type(layer) is torch.nn.Linear:
            for parameter in layer.parameters(recurse=False):
                if uses[id(parameter)] == 1:
                    parameter.data = parameter.data.bfloat16()
    return model


def refresh_copy(copied: Any, model: Any) -> None:
    """Update a model's bfloat16 copy, made by `convert_to_bf16`, with the model's current weights."""
    for name, layer in copied.named_modules():
        if isinstance(layer, Bf16Linear) and (source := model.get_submodule(name)) is not layer:
            layer.copy_weights(source)


class Bf16Linear(torch.nn.Module):
    """Linear layer with bfloat16 copies of another layer's weights. `stack` is its group of stacked layers, if any."""

    def __init__(self, layer: torch.nn.Linear | Bf16Linear) -> None:
        super().__init__()
        self.out_features: int = layer.out_features
        self.weight: torch.Tensor = layer.weight.detach().bfloat16()
        self.bias: torch.Tensor | None = None if layer.bias is None else layer.bias.detach().bfloat16()
        self.stack: StackedLinears | None = None

    def copy_weights(self, layer: torch.nn.Linear | Bf16Linear) -> None:
        """Copy the layer's current weights in place, because recorded CUDA graphs read them at the same addresses."""
        self.weight.copy_(layer.weight.detach())
        if self.bias is not None and layer.bias is not None:
            self.bias.copy_(layer.bias.detach())

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the layer's output in bfloat16, as under autocast."""
        return torch.nn.functional.linear(inputs.to(torch.bfloat16), self.weight, self.bias)


class StackedLinears:
    """Linear layers with the same inputs, whose matrices are views of one stacked matrix. Call it to run all layers."""

    def __init__(self, layers: Sequence[Bf16Linear]) -> None:
        """Stack the layers' weights and replace them by views."""
        self.parts, outs = tuple(layers), [layer.out_features for layer in layers]
        self._weight, self._bias = _concatenate(layers)
        for i, layer in enumerate(layers):
            layer.stack, layer.weight = self, torch.split(self._weight, outs)[i]
            layer.bias = None if layer.bias is None or self._bias is None else torch.split(self._bias, outs)[i]

    def __call__(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the outputs of all layers side by side [..., sum of outs], as under autocast."""
        return torch.nn.functional.linear(inputs.to(torch.bfloat16), self._weight, self._bias)


class _PackedLinear(Bf16Linear):
    """A bfloat16 linear layer in oneDNN's packed layout, which is faster with few rows, as in decoding."""

    def __init__(self, layer: torch.nn.Linear | Bf16Linear) -> None:
        super().__init__(layer)
        self.weight = _pack_weight(self.weight)

    def copy_weights(self, layer: torch.nn.Linear | Bf16Linear) -> None:
        """Replace the weights by packed copies of the layer's current ones."""
        self.weight = _pack_weight(layer.weight.detach().bfloat16())
        self.bias = None if layer.bias is None else layer.bias.detach().bfloat16()

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the layer's output in bfloat16, as under autocast."""
        return _multiply_packed(inputs, self.weight, self.bias)


class JoinedLinears:
    """Packed layers with the same inputs, multiplied as one matrix, because with few rows each call has a fixed cost.

    Call it to run all layers; its layers (`parts`) call `compute_part`.
    """

    def __init__(self, layers: Sequence[torch.nn.Linear | Bf16Linear]) -> None:
        self._outs = [layer.out_features for layer in layers]
        self._pending: dict[int, Bf16Linear] = {}
        self._inputs: torch.Tensor | None = None
        self._outputs: dict[int, torch.Tensor] = {}
        """Outputs for `_inputs` of the layers that have not been called yet."""
        self.parts = tuple(_JoinedPart(self, i, layer) for i, layer in enumerate(layers))

    def copy_weights(self, i: int, layer: torch.nn.Linear | Bf16Linear) -> None:
        """Store the current weights of layer i; once all layers have stored theirs, the joint matrix is rebuilt."""
        self._pending[i] = Bf16Linear(layer)
        if len(self._pending) == len(self._outs):
            layers = [self._pending.pop(i) for i in range(len(self._outs))]
            weight, self._bias = _concatenate(layers)
            self._weight = _pack_weight(weight)

    def __call__(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the outputs of all layers side by side [..., sum of outs], as under autocast."""
        return _multiply_packed(inputs, self._weight, self._bias)

    def compute_part(self, i: int, inputs: torch.Tensor) -> torch.Tensor:
        """Return the output [..., out] of layer i. Other layers' outputs are cached for calls with the same inputs."""
        if self._inputs is not inputs or i not in self._outputs:
            self._inputs, self._outputs = inputs, dict(enumerate(torch.split(self(inputs), self._outs, -1)))
        part = self._outputs.pop(i)
        if not self._outputs:
            self._inputs = None
        return part.contiguous()


class _JoinedPart(Bf16Linear):
    """Layer whose weights are part of the matrix of a `JoinedLinears`; its own `weight` is a NaN placeholder."""

    def __init__(self, joined: JoinedLinears, i: int, layer: torch.nn.Linear | Bf16Linear) -> None:
        torch.nn.Module.__init__(self)
        self.stack = None
        self.joined, self.i, self.out_features = joined, i, layer.out_features
        self.weight = torch.full((), torch.nan, dtype=torch.bfloat16).expand(layer.weight.shape)
        """NaN placeholder with the layer's shape; the real weights are in `joined`."""
        self.copy_weights(layer)

    def copy_weights(self, layer: torch.nn.Linear | Bf16Linear) -> None:
        """Pass the layer's current weights to the joint matrix, which is rebuilt once it has those of all layers."""
        self.joined.copy_weights(self.i, layer)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the layer's output in bfloat16, as under autocast."""
        return self.joined.compute_part(self.i, inputs)


def find_group(layers: Sequence[Any]) -> JoinedLinears | StackedLinears | None:
    """Return the group whose members are exactly these layers in this order; None if there is none."""
    first = layers[0]
    group = first.joined if isinstance(first, _JoinedPart) else first.stack if isinstance(first, Bf16Linear) else None
    return group if group is not None and group.parts == tuple(layers) else None


def _concatenate(layers: Sequence[Bf16Linear]) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return the layers' joint matrix and bias. Missing biases are 0; the bias is None if all are missing."""
    biases = [layer.weight.new_zeros(layer.out_features) if layer.bias is None else layer.bias for layer in layers]
    bias = None if all(layer.bias is None for layer in layers) else torch.cat(biases)
    return torch.cat([layer.weight for layer in layers]), bias


def _join_siblings(model: Any) -> None:
    """Replace sibling layers with the same inputs by parts of one joint matrix, if all of them can be packed."""
    for module in [*model.modules()]:
        for names in _SIBLINGS:
            layers: list[Any] = [getattr(module, name, None) for name in names]
            can_join = all(type(layer) in (torch.nn.Linear, Bf16Linear) and _can_pack(layer) for layer in layers)
            if can_join and len({layer.weight.shape[1] for layer in layers}) == 1:
                for name, part in zip(names, JoinedLinears(layers).parts, strict=True):
                    setattr(module, name, part)


def _stack_siblings(model: Any, sources: dict[torch.nn.Module, torch.nn.Linear]) -> None:
    """Stack the matrices of new sibling layers with the same inputs.

    `sources` maps new layers to their originals, which then share the stacked memory if they shared the layers' memory.
    """
    for module in [*model.modules()]:
        for names in _SIBLINGS:
            layers: list[Any] = [getattr(module, name, None) for name in names]
            if all(layer in sources for layer in layers) and len({layer.weight.shape[1] for layer in layers}) == 1:
                shared = [layer.weight.data_ptr() == sources[layer].weight.data_ptr() for layer in layers]
                StackedLinears(layers)
                for layer in (layer for layer, is_shared in zip(layers, shared, strict=True) if is_shared):
                    sources[layer].weight.data = layer.weight  # frees the unstacked matrix


_SIBLINGS = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
"""Names of sibling layers that read the same inputs in most model types. In other models the joint product wastes time,
and unused outputs stay in memory until the next pass."""
_PACKED_ROWS = 8
"""Number of input rows for which the packed layout is optimal; it works for any number."""


def _pack_weight(weight: torch.Tensor) -> torch.Tensor:
    return torch.ops.mkldnn._reorder_linear_weight(weight, _PACKED_ROWS)  # type: ignore[no-any-return]


def _multiply_packed(inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """Return inputs times a packed matrix, plus the bias, in bfloat16."""
    inputs = inputs.to(torch.bfloat16)
    return torch.ops.mkldnn._linear_pointwise(inputs, weight, bias, "none", [], "")  # type: ignore[no-any-return]


def can_pack_here() -> bool:
    """Return True if this processor and this build of torch multiply packed bfloat16 matrices (oneDNN)."""
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def _can_pack(layer: torch.nn.Linear | Bf16Linear) -> bool:
    return layer.weight.device.type == "cpu" and can_pack_here()
