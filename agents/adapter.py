"""Low-rank adapters on a base model's linear layers (LoRA, Hu et al. 2021).

Several adapters can share one base: each is a model of its own whose layers refer to the base's parameters.
"""

import copy
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import linear

from agents.adapter_config import (
    CONFIG,
    TENSOR_NAME,
    TENSORS,
    AdapterFolder,
    AdapterSpec,
    format_config,
    is_adapter,
    read_adapter,
)
from agents.bf16 import Bf16Linear
from agents.errors import WeightsError
from agents.model_config import first_line
from agents.model_folder import load_model, load_tokenizer, silence_transformers
from agents.vision import text_body
from agents.weights import resolve_base
from games.names import nearest
from games.plain_files import open_plain


class LowRank(torch.nn.Module):
    """Linear layer with a low-rank adapter: y = base(x) + scale · B A x.

    A [rank, in] and B [out, rank] are trainable (attributes `a` and `b`); the base layer is frozen.
    """

    def __init__(self, base: torch.nn.Module, a: torch.Tensor, b: torch.Tensor, scale: float) -> None:
        super().__init__()
        self.base, self.scale = base, scale
        self.a, self.b = torch.nn.Parameter(a), torch.nn.Parameter(b)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the base layer's output plus the adapter's. Under autocast both products use its precision."""
        output: torch.Tensor = self.base(inputs)
        return output + linear(linear(inputs, self.a) * self.scale, self.b)  # scales the smaller product


def create_adapter(base: Any, spec: AdapterSpec, seed: int) -> Any:
    """Return a model that shares the base's parameters and has a new adapter; `base` is left unchanged.

    A is drawn with `seed` and B is 0, so the model starts with the base's outputs (Hu et al., §4.1). Raises
    WeightsError if the base has no linear layers or a name in `spec.targets` matches none.
    """
    generator = torch.Generator().manual_seed(seed)
    model = copy_sharing_parameters(base)
    for name, layer in _find_targets(base, spec.targets):
        out, inner = layer.weight.shape
        bound = 1 / math.sqrt(inner)  # kaiming_uniform_(a=√5), as in peft and the paper's own code
        a = torch.empty(spec.rank, inner).uniform_(-bound, bound, generator=generator)
        _replace_layer(model, name, a, torch.zeros(out, spec.rank), spec.scale)
    return model


def load_adapter(base: Any, folder: Path) -> Any:
    """Return a model that shares the base's parameters and has the adapter saved in `folder`; `base` is left unchanged.

    Raises WeightsError if the folder's files are damaged, unsupported or do not fit the base's layers.
    """
    saved = read_adapter(folder)
    model = copy_sharing_parameters(base)
    for name, (a, b) in load_matrices(saved, base).items():
        _replace_layer(model, name, a, b, saved.scale)
    return model


def attach_adapter(base: Any, matrices: Mapping[str, torch.Tensor], scale: float) -> Any:
    """Return a model that shares the base's parameters and has an adapter with these matrices.

    `matrices` are named `LAYER.a` and `LAYER.b`; `scale` is the factor of B A x. `base` is left unchanged.
    """
    model = copy_sharing_parameters(base)
    for name in dict.fromkeys(name.rpartition(".")[0] for name in matrices):
        _replace_layer(model, name, matrices[f"{name}.a"], matrices[f"{name}.b"], scale)
    return model


def save_adapter(model: Any, folder: Path, base: str) -> None:
    """Write a model's adapter to a folder in peft's layout. `base` is the base model's name or folder, as text."""
    layers = dict(low_rank_layers(model))
    scale = next(iter(layers.values())).scale
    save_matrices({name: (layer.a.detach(), layer.b.detach()) for name, layer in layers.items()}, scale, folder, base)


def save_matrices(
    layers: Mapping[str, tuple[torch.Tensor, torch.Tensor]], scale: float, folder: Path, base: str
) -> None:
    """Write an adapter's config and matrices to a folder in peft's layout, creating the folder.

    `layers` maps layer names to A [rank, in] and B [out, rank], all of one rank. `base` is the base's name or folder.
    """
    from safetensors.torch import save_file

    tensors = {}
    for name, (a, b) in layers.items():
        tensors[f"base_model.model.{name}.lora_A.weight"] = a.cpu().contiguous()
        tensors[f"base_model.model.{name}.lora_B.weight"] = b.cpu().contiguous()
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / TENSORS, metadata={"format": "pt"})
    rank = len(next(iter(layers.values()))[0])
    text = format_config(base, rank, scale, [*{name.rpartition(".")[2] for name in layers}])
    (folder / CONFIG).write_text(text, encoding="utf-8")


def low_rank_layers(model: Any) -> Iterator[tuple[str, LowRank]]:
    """Yield (name in the base, layer) for each layer with an adapter."""
    for name, layer in model.named_modules():
        if isinstance(layer, LowRank):
            yield name, layer


def save_merged(folder: Path, to: Path) -> None:
    """Merge an adapter into its base (W + scale · B A) and save the float32 model and the tokenizer to the folder `to`.

    Raises WeightsError if `folder` is not an adapter's or cannot be loaded.
    """
    if not is_adapter(folder):
        raise WeightsError(f"{folder} is a full model, not an adapter: there is nothing to merge")
    base = resolve_base(folder)
    model = load_model(base)
    with torch.no_grad():
        for _, layer in low_rank_layers(load_adapter(model, folder)):
            weight: Any = layer.base.weight  # shared with `model`, which is saved
            weight += layer.scale * (layer.b @ layer.a)
    with silence_transformers():
        model.save_pretrained(to)
    load_tokenizer(base).save_pretrained(to)


def copy_sharing_parameters(base: Any) -> Any:
    """Return a deep copy of a model that shares its parameters, buffers and bfloat16 layers (`Bf16Linear`)."""
    shared = [
        *base.parameters(),
        *base.buffers(),
        *(layer for layer in base.modules() if isinstance(layer, Bf16Linear)),
    ]
    return copy.deepcopy(base, {id(item): item for item in shared})


def _replace_layer(model: Any, name: str, a: torch.Tensor, b: torch.Tensor, scale: float) -> None:
    layer = model.get_submodule(name)
    device = layer.weight.device
    model.set_submodule(name, LowRank(layer, a.to(device), b.to(device), scale))


def _linear_layers(base: Any) -> Iterator[tuple[str, Any]]:
    """Yield (name, layer) for each linear layer that an adapter may change: those of the language model's body.

    The output head is excluded because it may share its weights with the embedding. Vision tower and connector are
    excluded because they run once per image, for all policies in a batch.
    """
    head = base.get_output_embeddings()
    text_modules = set(text_body(base).modules())
    for name, layer in base.named_modules():
        is_linear = type(layer) is torch.nn.Linear or isinstance(layer, Bf16Linear)
        if layer in text_modules and layer is not head and is_linear:
            yield name, layer


def _find_targets(base: Any, targets: list[str] | None) -> list[tuple[str, Any]]:
    """Return (name, layer) for each linear layer whose last name part is in `targets`, or for all if that is None.

    Raises WeightsError if the base has no linear layers or a target matches none.
    """
    layers = list(_linear_layers(base))
    known = {name.rpartition(".")[2] for name, _ in layers}
    if not known:
        raise WeightsError(f"a {type(base).__name__} has no linear layers that an adapter could change: remove adapter")
    for target in targets or ():
        if target not in known:
            names = ", ".join(sorted(known))
            raise WeightsError(
                f"adapter.targets: no linear layer is called {target!r}{nearest(target, known)} ({names})"
            )
    return [(name, layer) for name, layer in layers if not targets or name.rpartition(".")[2] in targets]


def load_matrices(saved: AdapterFolder, base: Any) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """Load a saved adapter's matrices by layer name: (A [rank, in], B [out, rank]), float32.

    Raises WeightsError for a damaged file, layers that `base` lacks, wrong shapes or values that are not finite.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    layers = dict(_linear_layers(base))
    file = saved.path / TENSORS
    try:
        open_plain(file).close()  # reading a pipe would block
        tensors = load_file(file)
    except (SafetensorError, OSError) as error:
        raise WeightsError(
            f"{file} is damaged or not a safetensors file ({first_line(error)}): fetch it again"
        ) from error
    found: dict[str, dict[str, torch.Tensor]] = {}
    for name, tensor in tensors.items():
        match = TENSOR_NAME.fullmatch(name)
        if match is None or match["layer"] not in layers:
            raise WeightsError(f"{file} adapts {name[:120]!r}, which its base {saved.base} lacks: name another base")
        found.setdefault(match["layer"], {})[match["side"]] = tensor.float()
    if not found:
        raise WeightsError(f"{file} holds no matrices: fetch it again")
    for name, pair in found.items():
        out, inner = layers[name].weight.shape
        shapes = {side: tuple(matrix.shape) for side, matrix in pair.items()}
        if shapes != {"A": (saved.rank, inner), "B": (out, saved.rank)}:
            raise WeightsError(
                f"{file}: {name} is {shapes}, but rank {saved.rank} on a layer of [{out}, {inner}] was expected"
            )
        if not all(bool(matrix.isfinite().all()) for matrix in pair.values()):
            raise WeightsError(f"{file}: {name} is not finite: fetch it again")
    return {name: (pair["A"], pair["B"]) for name, pair in found.items()}
