"""Average the weights of several models or adapters.

The average is steadier than its parts and often better (Polyak and Juditsky 1992; Wortsman et al. 2022, arXiv
2203.05482).
"""

from collections.abc import Sequence
from pathlib import Path

import torch

from agents.adapter import adapter_matrices, save_matrices
from agents.adapter_config import MOST_RANK, is_adapter, read_adapter
from agents.errors import WeightsError
from agents.model_folder import load_model, load_tokenizer, quietly
from agents.weights import base_folder


def average(folders: Sequence[Path], weights: Sequence[float], to: Path) -> None:
    """Write the mean of whole models, or of adapters on one base, as a folder of that kind.

    weights: how much each counts, all above 0. WeightsError where the folders do not fit together.
    """
    shares = [weight / sum(weights) for weight in weights]
    kinds = {is_adapter(folder) for folder in folders}
    if len(kinds) > 1:
        raise WeightsError("whole models and adapters have no mean: merge the adapters (arena export --merged)")
    (_average_adapters if kinds.pop() else _average_models)(folders, shares, to)


def _average_models(folders: Sequence[Path], shares: Sequence[float], to: Path) -> None:
    """Write the mean in Hugging Face layout, in float32, with the common tokenizer."""
    first, *others = folders
    mean, tokenizer = load_model(first), load_tokenizer(first)
    held = dict(mean.named_parameters())
    with torch.no_grad():
        for parameter in held.values():
            parameter *= shares[0]
        for folder, share in zip(others, shares[1:], strict=True):
            _same(f"the tokenizers of {first} and {folder}", tokenizer.get_vocab(), load_tokenizer(folder).get_vocab())
            other = dict(load_model(folder).named_parameters())
            sizes = ({name: tuple(p.shape) for name, p in model.items()} for model in (held, other))
            _same(f"the tensors of {first} and {folder}", *sizes)
            for name, parameter in other.items():
                held[name] += share * parameter
    with quietly():
        mean.save_pretrained(to)
    tokenizer.save_pretrained(to)


def _average_adapters(folders: Sequence[Path], shares: Sequence[float], to: Path) -> None:
    """Write Σ share · scale · B A exactly, as one adapter whose rank is the sum of the ranks.

    Averaging A and B separately would give another product.
    """
    first, base = folders[0], base_folder(folders[0])
    model = load_model(base)
    parts = []
    for folder, share in zip(folders, shares, strict=True):
        _same(f"the bases of {first} and {folder}", base, base_folder(folder))
        said = read_adapter(folder)
        parts.append((said.rank, share * said.scale, adapter_matrices(said, model)))
    rank = sum(part[0] for part in parts)
    if rank > MOST_RANK:
        raise WeightsError(f"the mean of {len(folders)} adapters has rank {rank}, above {MOST_RANK}: merge them first")
    mean = {}
    for name in {name: None for _, _, layers in parts for name in layers}:
        out, inner = model.get_submodule(name).weight.shape
        pairs = [(layers.get(name, (torch.zeros(r, inner), torch.zeros(out, r))), scale) for r, scale, layers in parts]
        mean[name] = torch.cat([a for (a, _), _ in pairs]), torch.cat([scale * b for (_, b), scale in pairs], dim=1)
    save_matrices(mean, 1.0, to, read_adapter(first).base)


def _same(what: str, one: object, other: object) -> None:
    if one != other:
        raise WeightsError(f"{what} differ: weights have a mean where they are of one model")
