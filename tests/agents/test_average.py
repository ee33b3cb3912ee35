"""The mean of weights: whole models number by number, adapters as what they add to their base."""

from pathlib import Path
from typing import Any

import pytest
import torch

from agents.adapter import adapted, load_adapter, save_adapter, save_merged
from agents.adapter_config import AdapterSpec, read_adapter
from agents.average import average
from agents.errors import WeightsError
from agents.policy import load_module
from agents.weights import load_model, load_tokenizer, resolve
from tests.factories.models import stirred


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return {name: p.detach() for name, p in load_model(folder).named_parameters()}


def adapter(folder: Path, rank: int, seed: int, targets: list[str] | None = None, base: str = "nano") -> Path:
    model: Any = load_module(resolve(base), frozen=True)
    save_adapter(stirred(adapted(model, AdapterSpec(rank=rank, targets=targets), seed), seed), folder, base)
    return folder


def test_whole_models_by_their_shares(tmp_path: Path) -> None:
    one, two = resolve("nano"), resolve("nano-1")
    average([one, two], [3.0, 1.0], tmp_path / "mean")
    first, second, mean = weights(one), weights(two), weights(tmp_path / "mean")
    assert first.keys() == mean.keys()
    for name, found in mean.items():
        torch.testing.assert_close(found, 0.75 * first[name] + 0.25 * second[name])
    assert load_tokenizer(tmp_path / "mean").get_vocab() == load_tokenizer(one).get_vocab()


def test_adapters_are_averaged_as_what_they_add(tmp_path: Path) -> None:
    """Of other ranks, on other layers: the merged mean is the mean of the merged."""
    folders = [adapter(tmp_path / "a", 2, 1), adapter(tmp_path / "b", 3, 2, ["q_proj", "down_proj"])]
    average(folders, [1.0, 3.0], tmp_path / "mean")
    assert read_adapter(tmp_path / "mean").rank == 5
    for name, folder in (("mean", tmp_path / "mean"), ("a", folders[0]), ("b", folders[1])):
        save_merged(folder, tmp_path / f"{name}-whole")
    one, two, mean = (weights(tmp_path / f"{name}-whole") for name in ("a", "b", "mean"))
    for name, found in mean.items():
        torch.testing.assert_close(found, 0.25 * one[name] + 0.75 * two[name], atol=1e-6, rtol=1e-5)
    assert any(not torch.equal(one[name], two[name]) for name in one)
    load_adapter(load_module(resolve("nano"), frozen=True), tmp_path / "mean")


def test_what_has_no_mean(tmp_path: Path) -> None:
    here = adapter(tmp_path / "a", 2, 1)
    with pytest.raises(WeightsError, match="merge the adapters"):
        average([here, resolve("nano")], [1, 1], tmp_path / "x")
    with pytest.raises(WeightsError, match=r"the bases of .* differ"):
        average([here, adapter(tmp_path / "c", 2, 1, base="nano-1")], [1, 1], tmp_path / "x")
    with pytest.raises(WeightsError, match=r"the tokenizers of .* differ"):
        average([resolve("nano"), other_words(tmp_path / "other")], [1, 1], tmp_path / "x")
    with pytest.raises(WeightsError, match="rank 8000, above 4096"):
        wide = adapter(tmp_path / "wide", 4000, 1, ["k_proj"])
        average([wide, wide], [1, 1], tmp_path / "x")


def other_words(folder: Path) -> Path:
    """nano with a token more."""
    load_model(resolve("nano")).save_pretrained(folder)
    tokenizer = load_tokenizer(resolve("nano"))
    tokenizer.add_tokens(["<other>"])
    tokenizer.save_pretrained(folder)
    return folder
