"""Models converted once: what they say is to the bit what autocast says of the weights they were made of."""

from typing import Any

import pytest
import torch

from agents.half import half, refresh
from tests.factories.models import CONFIGS, model_of


def said(model: Any) -> torch.Tensor:
    """Logits under autocast."""
    ids = torch.arange(20).reshape(2, 10) % 24
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        logits: torch.Tensor = model(input_ids=ids).logits
    return logits


@pytest.mark.parametrize("family", CONFIGS)
def test_it_says_what_its_model_says_to_the_bit(family: str) -> None:
    model = model_of(family)
    before = said(model)
    made = half(model)
    assert torch.equal(said(made), before) and torch.equal(said(model), before)


@pytest.mark.parametrize("family", CONFIGS)
def test_renewed_it_says_what_its_model_has_learned(family: str) -> None:
    model = model_of(family)
    made, before = half(model), said(model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.25)
    refresh(made, model)
    assert torch.equal(said(made), said(model)) and not torch.equal(said(made), before)


@pytest.mark.parametrize("packed", [True, False])
def test_linear_layers_are_copied_in_half_the_memory_and_the_rest_is_shared(
    packed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not packed:
        monkeypatch.setattr("agents.half._packs", lambda layer: False)
    model = model_of("tied")
    made = half(model)
    assert torch.equal(said(made), said(model))
    linear = {name for name, module in model.named_modules() if isinstance(module, torch.nn.Linear)}
    assert {made.get_submodule(name).weight.dtype for name in linear} == {torch.bfloat16}
    mine, theirs = dict(made.named_parameters()), dict(model.named_parameters())
    rest = {name for name in theirs if name.rpartition(".")[0] not in linear}
    assert mine.keys() == rest and all(mine[name] is theirs[name] for name in rest)


def test_what_is_half_already_is_shared_whole() -> None:
    """A frozen policy is loaded so, and then published."""
    once = half(model_of("biases"))
    twice = half(once)
    refresh(twice, once)
    assert torch.equal(said(once), said(twice))
    assert twice.model.layers[0].mlp.up_proj.weight is once.model.layers[0].mlp.up_proj.weight


def test_nobody_learns_through_it() -> None:
    """The trainer's weights ask for gradients; what an engine serves of them must not hold on to any."""
    model = model_of("tied")
    names = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    half(model)
    assert names == [name for name, parameter in model.named_parameters() if parameter.requires_grad]
