"""Regularisers: values by hand and exact expected gradients."""

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.scoring import StreamScorer, pack
from arena.config.experiment import LearnSpec
from arena.config.kinds import choose
from arena.learn.batches import TokenBatch, make_token_batch
from arena.learn.losses import TokenLoss, policy_gradient
from arena.learn.regularisers import ESTIMATES, REGULARISERS, find_memories, k3
from arena.learn.trainer import PolicyTrainer
from arena.parts.schedules import Clock
from tests.factories.models import make_tiny_llama
from tests.factories.samples import make_samples
from tests.factories.token_batches import compute_gradient, make_batch, make_floats, make_integers
from tests.factories.updating import run_update

P, Q = make_floats(0.5, 0.3, 0.15, 0.05), make_floats(0.1, 0.2, 0.3, 0.4)


def compute_term(tokens: TokenBatch, name: str, **settings: Any) -> torch.Tensor:
    return choose("regulariser", name, **settings)(tokens, policy_gradient(tokens))


def make_reference_tokens(now: torch.Tensor, **changes: Any) -> TokenBatch:
    ones = torch.ones_like(now.detach())
    return make_batch(now, now.detach(), ones, reference=make_floats(*[-1.0] * len(now)), **changes)


# -- KL ----------------------------------------------------------------------------------------------------


def test_k1_k2_k3_by_hand() -> None:
    now = make_floats(-1.0 + math.log(2), -1.0, -1.0 - math.log(2))  # d = log 2, 0, -log 2
    log2 = math.log(2)
    for estimate, expected in {
        "k1": [log2, 0.0, -log2],
        "k2": [log2**2 / 2, 0.0, log2**2 / 2],
        "k3": [0.5 + log2 - 1, 0.0, 2 - log2 - 1],
    }.items():
        terms = compute_term(make_reference_tokens(now), "kl", weight=0.1, estimate=estimate)
        assert terms.tolist() == pytest.approx([0.1 * x for x in expected]), estimate


def test_k3_is_never_negative_nor_infinite() -> None:
    many = torch.randn(1000, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 3
    assert (k3(many, torch.zeros_like(many)) >= 0).all()
    assert torch.isfinite(k3(torch.tensor([-1e4, 0.0]), torch.tensor([0.0, -1e4]))).all()


def test_k1_and_k3_equal_the_kl_on_average() -> None:
    exact = (P * (P / Q).log()).sum().item()
    for estimate in ("k1", "k3"):
        assert (P * ESTIMATES[estimate](P.log(), Q.log())).sum().item() == pytest.approx(exact)
    assert (P * ESTIMATES["k2"](P.log(), Q.log())).sum().item() != pytest.approx(exact, rel=0.05)


def compute_mean_gradient(estimate: str, logits: torch.Tensor) -> list[float]:
    """Return E[∇ estimate] by the logits, over all tokens of the policy."""
    logprobs = torch.log_softmax(logits, -1)
    return compute_gradient(logprobs.exp().detach() * ESTIMATES[estimate](logprobs, Q.log()), logits)


def test_gradients_of_the_estimates_on_average() -> None:
    logits = P.log().requires_grad_()
    policy = torch.log_softmax(logits, -1)
    reverse = compute_gradient(policy.exp() * (policy - Q.log()), logits)  # of KL(π ‖ ref)
    forward = compute_gradient(Q * (Q.log() - policy), logits)  # of KL(ref ‖ π)
    assert compute_mean_gradient("k1", logits) == pytest.approx([0] * 4, abs=1e-12)
    assert compute_mean_gradient("k2", logits) == pytest.approx(reverse)
    assert compute_mean_gradient("k3", logits) == pytest.approx(forward)
    assert forward != pytest.approx(reverse, rel=0.1)


def test_k2_and_k3_gradients_agree_near_the_reference() -> None:
    logits = (Q.log() + make_floats(1e-3, 0, -1e-3, 2e-3)).requires_grad_()
    assert compute_mean_gradient("k3", logits) == pytest.approx(compute_mean_gradient("k2", logits), abs=1e-6)


@pytest.mark.parametrize("estimate", sorted(ESTIMATES))
def test_gradients_agree_with_finite_differences(estimate: str) -> None:
    now = make_floats(-1.3, -0.4, -2.0).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: compute_term(make_reference_tokens(x), "kl", estimate=estimate), now)


def test_single_turns_can_have_their_own_weight() -> None:
    """As in SCoRe: a large weight on the first attempt until the second stage, a small one on all others."""
    now = make_floats(-2.0, -2.0, -2.0).requires_grad_()
    turns = {"0": {"steps": {"values": [2.0, 0.5], "every": 10}}, "2": 0.0}
    for iteration, first in ((10, 2.0), (11, 0.5)):
        tokens = make_reference_tokens(now, places=make_integers(0, 1, 2), clock=Clock(iteration, 20))
        terms = compute_term(tokens, "kl", weight=0.25, estimate="k1", turns=turns)
        assert terms.tolist() == [-first, -0.25, 0] and compute_gradient(terms, now) == [first, 0.25, 0]
    for bad in ({}, {"-1": 1.0}, {"0": -1.0}, {"a": 1.0}, [0], 0):
        with pytest.raises(ValueError):
            choose("regulariser", "kl", turns=bad)


def test_weights_follow_their_schedule() -> None:
    schedule = {"linear": {"start": 1.0, "end": 0.0, "over": 4}}
    for iteration, scale in ((1, 1.0), (3, 0.5), (9, 0.0)):
        tokens = make_reference_tokens(make_floats(-3.0), clock=Clock(iteration, 9))
        assert compute_term(tokens, "kl", weight=schedule, estimate="k2").item() == pytest.approx(2.0 * scale)
        assert compute_term(tokens, "entropy", weight=schedule).item() == pytest.approx(-scale)


def test_constant_weight_zero_needs_no_reference() -> None:
    def uses_reference(**kl: Any) -> bool:
        return LearnSpec.model_validate(dict(regularisers={"kl": kl, "entropy": {"weight": 0.5}})).uses_reference

    assert uses_reference() and uses_reference(weight=0.1)
    assert uses_reference(weight={"linear": {"start": 0.0, "end": 0.1, "over": 5}})
    assert not uses_reference(weight=0) and not uses_reference(weight={"constant": {"value": 0.0}})
    assert uses_reference(weight=0, turns={0: 0.5}) and not uses_reference(weight=0, turns={0: 0.0})
    assert not LearnSpec.model_validate(dict(regularisers={"entropy_band": {}})).uses_reference


def test_negative_kl_weight_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 0"):
        LearnSpec.model_validate(dict(regularisers={"kl": {"weight": -0.1}}))
    assert compute_term(make_reference_tokens(make_floats(-1.0)), "entropy", weight=-0.5).item() == 0.5, (
        "an entropy penalty is allowed"
    )


# -- entropy -----------------------------------------------------------------------------------------------


def make_tokens(
    entropy: torch.Tensor, places: torch.Tensor, iteration: int, memory: dict[str, Any], **changes: Any
) -> TokenBatch:
    """Return tokens of which only entropies and places matter; each place is a turn."""
    zeros = torch.zeros(len(entropy), dtype=torch.float64)
    fields = {"places": places, "turns": places, "clock": Clock(iteration, 9), "memory": memory, **changes}
    return make_batch(zeros, zeros, zeros, entropy=entropy, **fields)


def compute_band_term(tokens: TokenBatch, memory: dict[str, Any], **settings: Any) -> torch.Tensor:
    """Return the band's term and then add the tokens' entropies to the memory."""
    before = json.dumps(memory)
    terms = compute_term(tokens, "entropy_band", **settings)
    assert json.dumps(memory) == before
    (rule,) = find_memories(["entropy_band"]).values()
    memory["entropy_band"] = rule.merge(memory.get("entropy_band"), tokens.clock, rule.collect(tokens))
    return terms


def test_entropy_band_by_hand() -> None:
    memory: dict[str, Any] = {}
    first, second = (
        make_tokens(make_floats(1, 4), make_integers(0, 1), 1, memory),
        make_tokens(make_floats(2), make_integers(0), 1, memory),
    )
    assert [compute_band_term(t, memory).tolist() for t in (first, second)] == [[0, 0], [0]], (
        "without a past the term is 0"
    )
    # past of place 0: (1 + 2)/2 = 1.5, so 1.2 to 1.8; of place 1: 4, so 3.2 to 4.8; of place 2: none
    tokens = make_tokens(make_floats(1, 2, 1.5, 5, 3, 9), make_integers(0, 0, 0, 1, 1, 2), 2, memory)
    terms = compute_band_term(tokens, memory, weight=10.0)
    assert terms.tolist() == pytest.approx([2, 2, 0, 2, 2, 0])
    # place 0: updates of 1.5 and 1.5; place 1: 4 and 4; place 2: 9
    assert compute_band_term(make_tokens(make_floats(9), make_integers(2), 3, memory), memory).tolist() == [0]
    assert memory["entropy_band"]["mean"] == [1.5, 4, 9]
    assert memory["entropy_band"]["iterations"] == [2, 2, 1]


def test_past_is_a_mean_over_updates() -> None:
    memory: dict[str, Any] = {}
    for iteration, values in ((1, [1.0] * 9), (2, [4.0]), (5, [1.0])):
        compute_band_term(
            make_tokens(make_floats(*values), make_integers(*[0] * len(values)), iteration, memory), memory
        )
    assert memory["entropy_band"]["mean"] == [2.5], "updates 1 and 2: (1 + 4)/2; that of 5 is not over"


def test_band_by_turn_uses_the_turns_mean() -> None:
    memory: dict[str, Any] = {}
    compute_band_term(make_tokens(make_floats(1, 1), make_integers(0, 1), 1, memory), memory)
    values = make_floats(0.2, 1.8, 0.2, 0.4).requires_grad_()  # means 1 and .3, the bounds .8 and 1.2
    terms = compute_band_term(
        make_tokens(values, make_integers(0, 0, 1, 1), 2, memory), memory, weight=1.0, level="turn"
    )
    assert terms.tolist() == pytest.approx([0, 0, 0.5, 0.5])
    assert compute_gradient(terms, values) == pytest.approx([0, 0, -1, -1])


def test_released_penalty_has_no_gradient_and_the_hinge_has() -> None:
    past, low, high, alpha, step = 1.0, 0.8, 1.2, 0.1, 1e-4

    def released(values: torch.Tensor) -> torch.Tensor:
        return torch.where((values > low * past) & (values < high * past), 0.0, alpha)

    def hinge(values: torch.Tensor) -> torch.Tensor:
        memory: dict[str, Any] = {}
        compute_band_term(make_tokens(make_floats(past), make_integers(0), 1, memory), memory)
        return compute_band_term(
            make_tokens(values, make_integers(*[0] * len(values)), 2, memory), memory, weight=alpha
        )

    values = make_floats(0.3, 0.7, 1.0, 1.3, 2.0)
    slopes = {f: (f(values + step) - f(values - step)) / (2 * step) for f in (released, hinge)}
    assert released(values).tolist() == pytest.approx([alpha, alpha, 0, alpha, alpha])
    assert slopes[released].tolist() == [0] * 5
    assert slopes[hinge].tolist() == pytest.approx([-alpha, -alpha, 0, alpha, alpha])
    assert compute_gradient(hinge(values.requires_grad_()), values) == pytest.approx(slopes[hinge].tolist())


def test_uncounted_tokens_are_not_in_the_past() -> None:
    memory: dict[str, Any] = {}
    is_learned = torch.tensor([True, False])
    for iteration in (1, 2):
        compute_band_term(
            make_tokens(make_floats(1, 9), make_integers(0, 0), iteration, memory, learned=is_learned), memory
        )
    assert memory["entropy_band"]["mean"] == [1]


@settings(deadline=None)
@given(st.lists(st.lists(st.floats(0, 5), min_size=1, max_size=4), min_size=1, max_size=6), st.integers(0, 5))
def test_band_resumes_equal_from_json(updates: list[list[float]], stop: int) -> None:
    uninterrupted, resumed = ({}, {})  # type: dict[str, Any], dict[str, Any]
    for iteration, values in enumerate(updates, 1):
        places = make_integers(*range(len(values)))
        if iteration == stop:
            resumed = json.loads(json.dumps(resumed))
        expected, actual = (
            compute_band_term(make_tokens(make_floats(*values), places, iteration, m), m)
            for m in (uninterrupted, resumed)
        )
        assert torch.equal(expected, actual)
    assert uninterrupted == resumed


@pytest.mark.slow
def test_trainer_updates_the_bands_past_once_per_update() -> None:
    model = make_tiny_llama()
    rule = LearnSpec.model_validate(
        dict(lr=1e-4, epochs=2, minibatches=2, token_budget=60, regularisers={"entropy_band": {"weight": 1.0}})
    )
    trainer = PolicyTrainer("p", model, rule)
    rows = [run_update(trainer, make_samples(model, k), np.random.default_rng(k), Clock(k, 3)) for k in (1, 2, 3)]
    assert [row["entropy_band_term"] > 0 for row in rows] == [False, True, True]
    past = trainer.memory["entropy_band"]
    assert past["iterations"][0] == 2 and past["mean"][0] == pytest.approx(
        np.mean([r["entropy"] for r in rows]), rel=0.3
    )
    assert json.loads(json.dumps(trainer.memory)) == trainer.memory


# -- covariance --------------------------------------------------------------------------------------------


def list_clipped_tokens(tokens: TokenBatch, clipped: torch.Tensor | None = None, **settings: Any) -> list[int]:
    """Return the tokens whose loss is removed, and check that it is removed entirely."""
    loss = -tokens.advantages * tokens.logprobs
    token_loss = TokenLoss(loss, torch.zeros_like(tokens.learned) if clipped is None else clipped)
    remaining = loss + choose("regulariser", "covariance_clip", **settings)(tokens, token_loss)
    gradients, gradients_before = compute_gradient(remaining, tokens.logprobs), compute_gradient(loss, tokens.logprobs)
    removed = [k for k, (slope, was) in enumerate(zip(gradients, gradients_before, strict=True)) if slope != was]
    assert all(gradients[k] == 0 and remaining[k] == 0 for k in removed)
    return removed


def test_covariance_clip_by_hand() -> None:
    # mean A = 0, mean logp = -4; covariances 3*3 = 9, 1*1 = 1, -1*0 = 0, -3*-4 = 12
    now = make_floats(-1, -3, -4, -8).requires_grad_()
    tokens = make_batch(now, now.detach(), make_floats(3, 1, -1, -3))
    assert list_clipped_tokens(tokens, share=1.0) == [0, 3], "1 is not above 1"
    assert list_clipped_tokens(tokens, share=1.0, low=0.5) == [0, 1, 3]
    assert list_clipped_tokens(tokens, share=1.0, high=10.0) == [0]
    assert list_clipped_tokens(tokens, share=0.5, low=0.5) == [0, 1]
    assert list_clipped_tokens(tokens) == [0], "one, though 2 % of 4 is less"
    assert list_clipped_tokens(tokens, share=1.0, clipped=make_floats(1, 0, 0, 0) > 0) == [3], (
        "the clip holds 0 already"
    )
    assert list_clipped_tokens(tokens, share=1.0, low=50.0, high=60.0) == []


def test_covariance_clip_can_be_limited_to_replayed_tokens() -> None:
    # of the replayed mean A = 1, mean logp = -3; covariances 2*2 = 4, 0*0 = 0, -2*-2 = 4; the others' are not asked
    now = make_floats(-1, -3, -5, -1, -9).requires_grad_()
    tokens = make_batch(now, now.detach(), make_floats(3, 1, -1, 30, -30), replayed=make_floats(1, 1, 1, 0, 0) > 0)
    assert list_clipped_tokens(tokens, share=1.0, of="replayed") == [0, 2]
    assert list_clipped_tokens(replace(tokens, replayed=None), share=1.0, of="replayed") == []
    assert 3 in list_clipped_tokens(tokens, share=1.0, high=400.0)


def test_token_batch_marks_replayed_tokens() -> None:
    model = make_tiny_llama()
    mixed = [replace(s, source="replayed" if k % 2 else "played") for k, s in enumerate(make_samples(model))]
    (packed,) = pack([s.stream for s in mixed], [1.0] * len(mixed), 10**6)
    tokens = make_token_batch(packed, StreamScorer(model)(packed), mixed, None, Clock(), {})
    assert tokens.replayed is not None
    expected = [packed.index[row] % 2 == 1 for row in packed.rows.tolist()]
    assert tokens.replayed.tolist() == expected and any(expected) and not all(expected)


def test_means_are_over_learned_tokens() -> None:
    now = make_floats(-1, -3, -4, -8, -99).requires_grad_()
    tokens = make_batch(now, now.detach(), make_floats(3, 1, -1, -3, 50), learned=make_floats(1, 1, 1, 1, 0) > 0)
    assert list_clipped_tokens(tokens, share=1.0) == [0, 3]


def test_clipped_share_is_evenly_spaced_and_deterministic() -> None:
    rng = np.random.default_rng(0)
    now = torch.from_numpy(-rng.exponential(3, 1000)).requires_grad_()
    tokens = make_batch(now, now.detach(), torch.from_numpy(rng.normal(0, 2, 1000)))
    all_clipped = list_clipped_tokens(tokens, share=1.0)
    clipped = list_clipped_tokens(tokens)
    assert len(all_clipped) > 200 and len(clipped) == 20 and set(clipped) < set(all_clipped)
    assert clipped == [all_clipped[k * len(all_clipped) // 20] for k in range(20)] == list_clipped_tokens(tokens)


def test_equal_advantages_clip_nothing() -> None:
    now = make_floats(-1, -3, -40).requires_grad_()
    assert list_clipped_tokens(make_batch(now, now.detach(), make_floats(2, 2, 2)), share=1.0) == []


def test_every_regulariser_accepts_an_empty_batch() -> None:
    empty = make_batch(*(torch.zeros(0, dtype=torch.float64) for _ in range(3)), reference=torch.zeros(0))
    for name in REGULARISERS:
        assert compute_term(empty, name).tolist() == []
