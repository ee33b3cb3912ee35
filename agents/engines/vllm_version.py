"""Published versions of policies for vLLM, and the export of their weights to folders that it can load."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agents.adapter_config import is_adapter, read_adapter
from agents.engines.vllm_images import copy_processor
from agents.layouts import is_vision_config
from agents.model_config import read_json
from agents.policy import AdapterOnBase
from agents.published import Weights
from agents.weights import resolve_base


@dataclass(kw_only=True)
class Version:
    """A policy's published version and its state in a vLLM server."""

    weights: Weights | None
    """None if only the server has them."""
    version: int
    server: str
    """Key of its server."""
    folder: Path
    """Folder to load; for received weights, a folder of the same architecture."""
    rank: int = 0
    """Rank of the adapter; 0 for full weights."""
    lora: Any = None
    """vLLM's name of the loaded adapter."""
    is_due: bool = True
    """Whether it must still be loaded."""
    writing: int = 0
    """Number of its replies in progress."""


def export_version(policy: str, version: int, weights: Weights, folder: Path, bf16: bool) -> Version:
    """Write weights to `folder` for vLLM, unless they are in a folder already; return the version's record.

    `bf16`: write full weights in bfloat16.
    """
    exported = weights.unwrap()
    if isinstance(exported, Path):
        server, rank = exported, 0
        if is_adapter(exported):
            server, rank = resolve_base(exported), read_adapter(exported).rank
        return Version(weights=weights, version=version, server=str(server), folder=exported, rank=rank)
    if isinstance(exported, AdapterOnBase):
        from agents.adapter import save_adapter

        save_adapter(exported.model, folder, str(exported.folder))
        rank = read_adapter(folder).rank
        return Version(weights=weights, version=version, server=str(exported.folder), folder=folder, rank=rank)
    _save_module(exported, folder, bf16)
    return Version(weights=weights, version=version, server=name_server(policy), folder=folder)


def _save_module(module: Any, folder: Path, bf16: bool) -> None:
    import torch

    from agents.model_folder import silence_transformers

    tensors = {name: value.detach() for name, value in module.state_dict().items()}
    if bf16:
        tensors = {n: v.to(torch.bfloat16) if v.is_floating_point() else v for n, v in tensors.items()}
    with silence_transformers():
        module.save_pretrained(folder, state_dict=tensors)
    if is_vision_config(read_json(folder, "config.json")):
        copy_processor(Path(module.name_or_path), folder)


def name_server(policy: str) -> str:
    """Return the key of the server of a policy's full weights."""
    return f"trained {policy}"
