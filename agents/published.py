"""Published weights of a trainer: a module in this process, a folder, or weights in other processes."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agents.policy import AdapterOnBase


@dataclass(frozen=True)
class ModuleWeights:
    """Published weights: a module in this process that continues to learn."""

    module: Any
    base: AdapterOnBase | None = None
    """Base model, if the module is an adapter."""
    gather: Callable[[], AbstractContextManager[Any]] = nullcontext
    """Context manager within which every parameter is complete, even if ZeRO-3 partitions them over ranks."""
    copied: bool = False
    """Whether an engine in this process serves a copy, because the module learns during play or is partitioned."""

    def unwrap(self) -> Any:
        """Return the object that an engine serves: the module, or the adapter with its base."""
        return self.base or self.module


@dataclass(frozen=True)
class FolderWeights:
    """Published weights: a model folder in Hugging Face layout, or an adapter's folder in peft's layout."""

    folder: Path
    gather: Callable[[], AbstractContextManager[Any]] = nullcontext

    def unwrap(self) -> Path:
        """Return the folder, from which an engine loads the weights."""
        return self.folder


class RemoteWeights(ABC):
    """Published weights that other processes hold and that are never complete in this one."""

    gather: Callable[[], AbstractContextManager[Any]] = nullcontext

    def unwrap(self) -> Any:
        """Raise TypeError, because only an engine that receives weights from those processes can serve them."""
        raise TypeError(f"{type(self).__name__} are not in this process")

    @abstractmethod
    def write(self, folder: Path) -> None:
        """Write weights and config to a folder: a full model in Hugging Face layout, or an adapter in peft's."""


class RemoteTensors(Mapping[str, Any], ABC):
    """Tensors by name that other processes hold. Reading one fetches it."""

    @abstractmethod
    def write(self, path: Path, metadata: Mapping[str, str]) -> None:
        """Write all tensors to a safetensors file, a part at a time. Must not run in an event loop."""


Weights = ModuleWeights | FolderWeights | RemoteWeights
