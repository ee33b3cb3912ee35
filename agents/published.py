"""Published weights of a trainer: a module in this process, a folder, or arrays from another process."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from agents.policy import OnBase, load_module


@dataclass(frozen=True)
class ModuleWeights:
    """Published weights: a module in this process that continues to learn."""

    module: Any
    base: OnBase | None = None
    """Base model, if the module is an adapter."""
    whole: Callable[[], AbstractContextManager[Any]] = nullcontext
    """Context manager within which every parameter is complete, even if ZeRO-3 partitions them over ranks."""
    copied: bool = False
    """Whether an engine in this process serves a copy, because the module learns during play."""

    def served(self) -> Any:
        """Return the object that an engine serves: the module, or the adapter with its base."""
        return self.base or self.module


def on_base(adapter: Any, base: Any, folder: Path, name: str) -> ModuleWeights:
    """Wrap an adapter under training on `base` as published weights; `folder` and `name` identify its base."""
    return ModuleWeights(adapter, OnBase(adapter, base, folder, name))


@dataclass(frozen=True)
class FolderWeights:
    """Published weights: a model folder in Hugging Face layout, or an adapter's folder in peft's layout."""

    folder: Path
    whole: Callable[[], AbstractContextManager[Any]] = nullcontext

    def served(self) -> Path:
        """Return the folder, from which an engine loads the weights."""
        return self.folder


@dataclass(frozen=True)
class ArrayWeights:
    """Published weights: arrays by parameter name, from any process."""

    arrays: Mapping[str, np.ndarray]
    folder: Path
    """Folder of a model whose parameters have the same names and shapes."""
    whole: Callable[[], AbstractContextManager[Any]] = nullcontext

    def served(self) -> Any:
        """Return a new frozen module with a copy of the arrays, for an engine."""
        import torch

        module = load_module(self.folder, frozen=True)
        with torch.no_grad():
            for name, parameter in module.named_parameters():
                if name in self.arrays:  # parts that are not trained are the folder's
                    parameter.copy_(torch.tensor(self.arrays[name]))
        return module


@dataclass(frozen=True)
class AdapterArrays:
    """Published weights: an adapter's matrices by parameter name (`LAYER.a`, `LAYER.b`), from any process."""

    arrays: Mapping[str, np.ndarray]
    scale: float
    folder: Path
    """Folder of the base model."""
    name: str
    """Name of the base model, as in the adapter's folder."""
    whole: Callable[[], AbstractContextManager[Any]] = nullcontext

    def served(self) -> Any:
        """Return the adapter on a newly loaded base model, for an engine."""
        return self.on(load_module(self.folder, frozen=True))

    def on(self, base: Any) -> OnBase:
        """Return the adapter with a copy of its matrices on this base model; `base` is left unchanged."""
        import torch

        from agents.adapter import put_adapter

        matrices = {name: torch.tensor(array) for name, array in self.arrays.items()}
        return OnBase(put_adapter(base, matrices, self.scale), base, self.folder, self.name)


Weights = ModuleWeights | FolderWeights | ArrayWeights | AdapterArrays


def as_arrays(weights: Weights) -> FolderWeights | ArrayWeights | AdapterArrays:
    """Convert published weights for another process: a module's parameters become float32 arrays on the CPU.

    Other weights are returned unchanged. Under ZeRO-3, call it within `weights.whole()`.
    """
    if not isinstance(weights, ModuleWeights):
        return weights
    if weights.base is None:
        held = {name: _array(parameter) for name, parameter in weights.module.named_parameters()}
        return ArrayWeights(held, Path(weights.module.config.name_or_path))
    from agents.adapter import low_rank_layers

    layers = dict(low_rank_layers(weights.module))
    held = {f"{name}.{side}": _array(getattr(layer, side)) for name, layer in layers.items() for side in "ab"}
    return AdapterArrays(held, next(iter(layers.values())).scale, weights.base.folder, weights.base.name)


def _array(parameter: Any) -> np.ndarray:
    """Return a float32 copy of the parameter, because the parameter continues to learn."""
    array: np.ndarray = parameter.detach().float().cpu().numpy()
    return array.copy()
