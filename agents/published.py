"""Weights as they leave a trainer: as a module here, a folder, or arrays from another process."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from agents.policy import OnBase, load_module


@dataclass(frozen=True)
class ModuleWeights:
    """A module of this process, which goes on learning."""

    module: Any
    base: OnBase | None = None
    """Base that an adapter stands on."""
    whole: Callable[[], AbstractContextManager[Any]] = nullcontext
    """Within its context every parameter is whole, also where ranks share them."""
    copied: bool = False
    """Whether an engine in this process serves a copy: the module learns while it is played."""

    def served(self) -> Any:
        """The weights for an engine: the module, an adapter with its base."""
        return self.base or self.module


def on_base(adapter: Any, base: Any, folder: Path, name: str) -> ModuleWeights:
    """An adapter that is being trained, with the base that it stands on; `folder` and `name` are the base's."""
    return ModuleWeights(adapter, OnBase(adapter, base, folder, name))


@dataclass(frozen=True)
class FolderWeights:
    """A folder in Hugging Face layout, or an adapter's in peft's."""

    folder: Path
    whole: Callable[[], AbstractContextManager[Any]] = nullcontext

    def served(self) -> Path:
        """The weights for an engine: the folder."""
        return self.folder


@dataclass(frozen=True)
class ArrayWeights:
    """Arrays by parameter name, from wherever they were computed."""

    arrays: Mapping[str, np.ndarray]
    folder: Path
    """Folder of a model with parameters of the same names and shapes."""
    whole: Callable[[], AbstractContextManager[Any]] = nullcontext

    def served(self) -> Any:
        """The weights for an engine: a module with a copy of the arrays."""
        import torch

        module = load_module(self.folder, frozen=True)
        with torch.no_grad():
            for name, parameter in module.named_parameters():
                parameter.copy_(torch.tensor(self.arrays[name]))
        return module


Weights = ModuleWeights | FolderWeights | ArrayWeights
