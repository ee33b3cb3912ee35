"""Stage kind `average`: average the weights of policies that earlier stages trained from the same initial weights."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from agents.adapter_config import is_adapter
from agents.strict_yaml import dump
from arena.errors import ConfigError
from arena.parts.paths import ModelName
from arena.parts.spec import Name
from arena.play.watchers import Watcher
from arena.stages.base import StageContext, require_policy
from arena.store import checkpoints
from arena.store.files import CONFIG, write_atomic

if TYPE_CHECKING:
    import torch

Models = Annotated[list[ModelName], Field(min_length=2, max_length=32)]
Shares = Annotated[list[Annotated[float, Field(gt=0)]], Field(min_length=2, max_length=32)]


@dataclass(frozen=True, kw_only=True)
class AverageLoop:
    """Pipeline stage that merges models into one: the weighted mean of their weights."""

    policy: str
    models: Sequence[str]
    shares: Sequence[float]
    """Positive weights of the models in the mean, which sum to 1."""

    async def run(self, folder: Path, watcher: Watcher) -> None:
        """Write the averaged model as the folder's only checkpoint. Raises ConfigError if the models do not match."""
        from agents.computing import compute  # loads torch

        settings = {"policy": self.policy, "models": [*self.models], "shares": [*self.shares]}
        write_atomic(folder / CONFIG, dump({"average": settings}, CONFIG))
        watcher.phase(0, f"averaging {len(self.models)} models")
        await compute(checkpoints.write, folder, 1, self._fill)

    def weights(self, folder: Path) -> Mapping[str, Path]:
        """Return the folder of the averaged model."""
        return {self.policy: checkpoints.folder_of(folder, 1) / "policies" / self.policy}

    def _fill(self, checkpoint: Path) -> None:
        """Write the averaged model into a checkpoint's folder. Raises ConfigError if a model is an adapter."""
        from safetensors.torch import save_file

        from agents.weights import resolve

        folders = [resolve(model) for model in self.models]
        if adapters := [folder for folder in folders if is_adapter(folder)]:
            raise ConfigError(f"{adapters[0]} is an adapter: only full weights can be averaged")
        target = checkpoint / "policies" / self.policy
        shutil.copytree(folders[0], target, ignore=shutil.ignore_patterns("*.safetensors", "*.safetensors.index.json"))
        save_file(average_weights(folders, self.shares), target / "model.safetensors", metadata={"format": "pt"})


def average_weights(folders: Sequence[Path], shares: Sequence[float]) -> dict[str, torch.Tensor]:
    """Return the weighted mean of the models' tensors by name.

    Sums are in float32; each result has the dtype of the first model's tensor. Raises ConfigError if the models differ
    in a tensor's name or shape.
    """
    import torch
    from safetensors.torch import load_file

    total: dict[str, torch.Tensor] = {}
    types: dict[str, torch.dtype] = {}
    for folder, share in zip(folders, shares, strict=True):
        tensors = {name: t for file in sorted(folder.glob("model*.safetensors")) for name, t in load_file(file).items()}
        if not total:
            total = {name: torch.zeros_like(tensor, dtype=torch.float32) for name, tensor in tensors.items()}
            types = {name: tensor.dtype for name, tensor in tensors.items()}
        if {name: tensor.shape for name, tensor in tensors.items()} != {name: t.shape for name, t in total.items()}:
            raise ConfigError(f"{folder} and {folders[0]} differ in a tensor's name or shape: they cannot be averaged")
        for name, tensor in tensors.items():
            total[name] += share * tensor.float()
    return {name: tensor.to(types[name]) for name, tensor in total.items()}


def average(context: StageContext, *, policy: Name, models: Models, shares: Shares | None = None) -> AverageLoop:
    """Replace `policy` by the mean of `models`, such as specialists trained from the same weights (UI-TARS-2).

    `shares` are their relative weights, equal by default. Only full weights of one shape can be averaged.
    """
    require_policy(context, policy)
    if shares and len(shares) != len(models):
        raise ConfigError(f"shares: give one for each of the {len(models)} models")
    relative = shares or [1.0] * len(models)
    return AverageLoop(policy=policy, models=models, shares=[share / sum(relative) for share in relative])
