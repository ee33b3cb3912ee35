"""Corrections: weights worked by hand, constant under autograd, and their effect on a stale batch's gradient."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from arena.config.experiment import LearnSpec
from arena.config.kinds import choose
from arena.learn.batches import TokenBatch
from arena.learn.corrections import CORRECTIONS
from arena.learn.losses import policy_gradient
from arena.learn.trainer import PolicyTrainer
from tests.factories.models import make_tiny_llama
from tests.factories.samples import make_samples
from tests.factories.token_batches import make_batch, make_floats, make_integers
from tests.factories.updating import run_update

UNITS = {"turns": make_integers(0, 0, 1, 2, 2), "streams": make_integers(0, 0, 0, 1, 1)}
ALL_CORRECTIONS: tuple[dict[str, Any], ...] = tuple(
    [{"truncated": {"level": level, "cap": 1.5}} for level in ("token", "turn", "sequence")]
    + [
        {"masked": {"level": level, "by": by, "low": 0.5, "high": 2.0, "weigh": weigh}}
        for level in ("token", "turn", "sequence")
        for by in ("mean", "product", "worst")
        for weigh in (False, True)
    ]
)


def make_tokens(*ratios: float, **changes: Any) -> TokenBatch:
    """Return tokens with these ratios of the old weights' probability to the sampler's."""
    old = torch.full((len(ratios),), -2.0, dtype=torch.float64)
    return make_batch(old, old, torch.ones_like(old), behaviour=old - make_floats(*ratios).log(), **changes)


def compute_weights(tokens: TokenBatch, name: str, **settings: Any) -> list[float]:
    return choose("correction", name, **settings)(tokens).tolist()


def test_truncated_by_token_turn_and_sequence() -> None:
    tokens = make_tokens(4.0, 0.5, 3.0, 0.5, 0.5, **UNITS)
    assert compute_weights(tokens, "truncated", cap=2.0) == pytest.approx([2, 0.5, 2, 0.5, 0.5])
    # turns: 4 * .5 = 2, 3, .5 * .5 = .25
    assert compute_weights(tokens, "truncated", cap=2.5, level="turn") == pytest.approx([2, 2, 2.5, 0.25, 0.25])
    # streams: 4 * .5 * 3 = 6, .25
    assert compute_weights(tokens, "truncated", cap=5.0, level="sequence") == pytest.approx([5, 5, 5, 0.25, 0.25])


def test_products_grow_with_length() -> None:
    for length, expected in ((10, 2.594), (100, 13780.6)):
        tokens = make_tokens(*[1.1] * length, streams=torch.zeros(length, dtype=torch.int64))
        assert compute_weights(tokens, "truncated", level="sequence", cap=1e6)[0] == pytest.approx(expected, rel=1e-3)
        settings = {"low": 0.5, "high": 2.0, "level": "sequence", "weigh": True}
        assert compute_weights(tokens, "masked", by="mean", **settings)[0] == pytest.approx(1.1)
        assert compute_weights(tokens, "masked", by="product", **settings)[0] == 0


def test_masked_by_mean_product_and_worst() -> None:
    # geometric means of the streams: (4 * .5 * 1)^(1/3) = 1.26 and .5; products 2 and .25
    tokens = make_tokens(4.0, 0.5, 1.0, 0.5, 0.5, **UNITS)
    mean = {"by": "mean", "level": "sequence"}
    assert compute_weights(tokens, "masked", low=0.8, high=1.3, **mean) == [1, 1, 1, 0, 0]
    assert compute_weights(tokens, "masked", low=0.8, high=1.3, weigh=True, **mean) == pytest.approx(
        [2 ** (1 / 3)] * 3 + [0, 0]
    )
    product = {"by": "product", "level": "sequence"}
    assert compute_weights(tokens, "masked", low=0.2, high=1.9, **product) == [0, 0, 0, 1, 1]
    assert compute_weights(tokens, "masked", low=0.0, high=3.0, weigh=True, **product) == pytest.approx(
        [2, 2, 2, 0.25, 0.25]
    )
    worst = {"by": "worst", "low": 0.4, "high": 3.0}
    assert compute_weights(tokens, "masked", level="sequence", **worst) == [0, 0, 0, 1, 1]
    # by turn: 4 spoils tokens 0 and 1 alone
    assert compute_weights(tokens, "masked", level="turn", **worst) == [0, 0, 1, 1, 1]
    assert compute_weights(tokens, "masked", level="turn", weigh=True, **worst) == pytest.approx([0, 0, 1, 0.5, 0.5])


def test_icepop_masks_single_tokens_and_weighs_the_others() -> None:
    tokens = make_tokens(6.0, 0.4, 2.0, 0.6, 1.0, **UNITS)
    icepop = {"level": "token", "low": 0.5, "high": 5.0, "weigh": True}
    assert compute_weights(tokens, "masked", **icepop) == pytest.approx([0, 0, 2, 0.6, 1])
    for by in ("mean", "product", "worst"):
        assert compute_weights(tokens, "masked", by=by, **icepop) == compute_weights(tokens, "masked", **icepop)


def test_tokens_out_of_the_loss_are_in_no_ratio() -> None:
    learned = torch.tensor([True, False, True, True, True])
    tokens = make_tokens(2.0, 9.0, 2.0, 0.5, 0.5, learned=learned, **UNITS)
    assert compute_weights(tokens, "truncated", level="sequence", cap=10.0)[:1] == pytest.approx([4])
    assert compute_weights(tokens, "masked", by="worst", low=0.4, high=3.0)[0] == 1


@pytest.mark.parametrize("correction", ALL_CORRECTIONS, ids=str)
def test_weights_are_constants(correction: dict[str, Any]) -> None:
    (name,) = correction
    tokens = make_tokens(1.1, 0.9, 3.0, 1.0, 0.2, **UNITS)
    old = tokens.old.clone().requires_grad_()
    tokens = make_batch(old, old, tokens.advantages, behaviour=tokens.behaviour, **UNITS)
    weights = choose("correction", name, **correction[name])(tokens)
    assert not weights.requires_grad and weights.grad_fn is None


@pytest.mark.parametrize("correction", [{"uncorrected": {}}, *ALL_CORRECTIONS], ids=str)
def test_on_policy_tokens_have_weight_one(correction: dict[str, Any]) -> None:
    (name,) = correction
    assert compute_weights(make_tokens(*[1.0] * 5, **UNITS), name, **correction[name]) == [1] * 5


@settings(deadline=None)
@given(st.lists(st.floats(-8, 8), min_size=5, max_size=5))
def test_weights_stay_within_their_bounds(gaps: list[float]) -> None:
    tokens = make_tokens(*[math.exp(gap) for gap in gaps], **UNITS)
    for correction in ALL_CORRECTIONS:
        ((name, settings),) = correction.items()
        weights = np.array(compute_weights(tokens, name, **settings))
        if name == "truncated":
            assert (weights > 0).all() and (weights <= 1.5).all()
        else:
            assert ((weights == 0) | ((weights >= 0.5 - 1e-9) & (weights <= 2 + 1e-9))).all()


def compute_expected_gradient(correction: str, **settings: Any) -> np.ndarray:
    """Return the exact mean gradient by the logits of a one-token bandit whose sampler is a rounded policy."""
    logits = torch.tensor(np.random.default_rng(0).normal(0, 1.5, 40)).requires_grad_()
    reward = torch.tensor(np.random.default_rng(1).normal(0, 1, 40))
    logprobs = torch.log_softmax(logits, -1)
    sampler = torch.log_softmax((logits.detach() * 2).round() / 2, -1)
    tokens = make_batch(logprobs, logprobs.detach(), reward, behaviour=sampler)
    chosen = choose("correction", correction, **settings)
    loss = policy_gradient(tokens, clip=choose("clip", "unclipped"), correction=chosen).loss
    return torch.autograd.grad((sampler.exp() * loss).sum(), logits)[0].numpy()


def test_importance_weights_remove_bias_and_the_cap_leaves_some() -> None:
    logits = torch.tensor(np.random.default_rng(0).normal(0, 1.5, 40)).requires_grad_()
    reward = torch.tensor(np.random.default_rng(1).normal(0, 1, 40))
    exact = torch.autograd.grad(-(torch.softmax(logits, -1) * reward).sum(), logits)[0].numpy()
    biases = [
        np.abs(compute_expected_gradient(name, **settings) - exact).sum()
        for name, settings in (
            ("truncated", {"cap": 1e9}),
            ("truncated", {"cap": 1.0}),
            ("uncorrected", {}),
        )
    ]
    assert biases[0] < 1e-12 < biases[1] < biases[2]


def test_stale_sampler_is_corrected_in_an_update() -> None:
    """exp(-.25) = .7788 for every token, once the gate lets such a gap through."""
    model = make_tiny_llama()
    stale = [replace(s, behaviour=s.behaviour + np.float32(0.25)) for s in make_samples(model)]
    loss = {"policy_gradient": {"correction": {"truncated": {"cap": 2.0}}}}
    figures = run_update(
        PolicyTrainer("p", model, LearnSpec.model_validate(dict(loss=loss, gate_tolerance=0.3))),
        stale,
        np.random.default_rng(0),
    )
    assert figures["correction"] == pytest.approx(math.exp(-0.25), rel=1e-4)


def test_all_corrections_are_tested() -> None:
    assert {name for correction in ({"uncorrected": {}}, *ALL_CORRECTIONS) for name in correction} == set(CORRECTIONS)
