"""Regularisers: values by hand, and what their gradients are on average, exactly."""

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


def term(tokens: TokenBatch, name: str, **settings: Any) -> torch.Tensor:
    return choose("regulariser", name, **settings)(tokens, policy_gradient(tokens))


def near_reference(now: torch.Tensor, **changes: Any) -> TokenBatch:
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
        found = term(near_reference(now), "kl", weight=0.1, estimate=estimate)
        assert found.tolist() == pytest.approx([0.1 * x for x in expected]), estimate


def test_k3_is_never_negative_nor_infinite() -> None:
    many = torch.randn(1000, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 3
    assert (k3(many, torch.zeros_like(many)) >= 0).all()
    assert torch.isfinite(k3(torch.tensor([-1e4, 0.0]), torch.tensor([0.0, -1e4]))).all()


def test_k1_and_k3_are_the_kl_on_average_over_the_policys_own_tokens() -> None:
    exact = (P * (P / Q).log()).sum().item()
    for estimate in ("k1", "k3"):
        assert (P * ESTIMATES[estimate](P.log(), Q.log())).sum().item() == pytest.approx(exact)
    assert (P * ESTIMATES["k2"](P.log(), Q.log())).sum().item() != pytest.approx(exact, rel=0.05)


def mean_gradient(estimate: str, logits: torch.Tensor) -> list[float]:
    """Over all tokens of the policy, each as often as it is drawn: E[∇ estimate], by the logits."""
    logprobs = torch.log_softmax(logits, -1)
    return compute_gradient(logprobs.exp().detach() * ESTIMATES[estimate](logprobs, Q.log()), logits)


def test_gradients_of_the_estimates_on_average() -> None:
    logits = P.log().requires_grad_()
    policy = torch.log_softmax(logits, -1)
    reverse = compute_gradient(policy.exp() * (policy - Q.log()), logits)  # of KL(π ‖ ref)
    forward = compute_gradient(Q * (Q.log() - policy), logits)  # of KL(ref ‖ π)
    assert mean_gradient("k1", logits) == pytest.approx([0] * 4, abs=1e-12)
    assert mean_gradient("k2", logits) == pytest.approx(reverse)
    assert mean_gradient("k3", logits) == pytest.approx(forward)
    assert forward != pytest.approx(reverse, rel=0.1)


def test_near_the_reference_k2_and_k3_pull_alike() -> None:
    logits = (Q.log() + make_floats(1e-3, 0, -1e-3, 2e-3)).requires_grad_()
    assert mean_gradient("k3", logits) == pytest.approx(mean_gradient("k2", logits), abs=1e-6)


@pytest.mark.parametrize("estimate", sorted(ESTIMATES))
def test_gradients_agree_with_finite_differences(estimate: str) -> None:
    now = make_floats(-1.3, -0.4, -2.0).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: term(near_reference(x), "kl", estimate=estimate), now)


def test_single_turns_can_be_held_otherwise() -> None:
    """SCoRe's two: the first attempt firmly until the second stage, all others lightly."""
    now = make_floats(-2.0, -2.0, -2.0).requires_grad_()
    turns = {"0": {"steps": {"values": [2.0, 0.5], "every": 10}}, "2": 0.0}
    for iteration, first in ((10, 2.0), (11, 0.5)):
        tokens = near_reference(now, places=make_integers(0, 1, 2), clock=Clock(iteration, 20))
        found = term(tokens, "kl", weight=0.25, estimate="k1", turns=turns)
        assert found.tolist() == [-first, -0.25, 0] and compute_gradient(found, now) == [first, 0.25, 0]
    for bad in ({}, {"-1": 1.0}, {"0": -1.0}, {"a": 1.0}, [0], 0):
        with pytest.raises(ValueError):
            choose("regulariser", "kl", turns=bad)


def test_weights_follow_their_schedule() -> None:
    schedule = {"linear": {"start": 1.0, "end": 0.0, "over": 4}}
    for iteration, scale in ((1, 1.0), (3, 0.5), (9, 0.0)):
        tokens = near_reference(make_floats(-3.0), clock=Clock(iteration, 9))
        assert term(tokens, "kl", weight=schedule, estimate="k2").item() == pytest.approx(2.0 * scale)
        assert term(tokens, "entropy", weight=schedule).item() == pytest.approx(-scale)


def test_a_constant_weight_of_0_keeps_no_reference() -> None:
    def uses_reference(**kl: Any) -> bool:
        return LearnSpec.model_validate(dict(regularisers={"kl": kl, "entropy": {"weight": 0.5}})).uses_reference

    assert uses_reference() and uses_reference(weight=0.1)
    assert uses_reference(weight={"linear": {"start": 0.0, "end": 0.1, "over": 5}})
    assert not uses_reference(weight=0) and not uses_reference(weight={"constant": {"value": 0.0}})
    assert uses_reference(weight=0, turns={0: 0.5}) and not uses_reference(weight=0, turns={0: 0.0})
    assert not LearnSpec.model_validate(dict(regularisers={"entropy_band": {}})).uses_reference


def test_nobody_is_driven_away_from_the_reference_by_mistake() -> None:
    with pytest.raises(ValueError, match="0 or more"):
        LearnSpec.model_validate(dict(regularisers={"kl": {"weight": -0.1}}))
    assert term(near_reference(make_floats(-1.0)), "entropy", weight=-0.5).item() == 0.5, (
        "an entropy penalty is allowed"
    )


# -- entropy -----------------------------------------------------------------------------------------------


def seen(
    entropy: torch.Tensor, places: torch.Tensor, iteration: int, memory: dict[str, Any], **more: Any
) -> TokenBatch:
    """Tokens whose entropies and places matter alone; each place is a turn."""
    zeros = torch.zeros(len(entropy), dtype=torch.float64)
    fields = {"places": places, "turns": places, "clock": Clock(iteration, 9), "memory": memory, **more}
    return make_batch(zeros, zeros, zeros, entropy=entropy, **fields)


def banded(tokens: TokenBatch, memory: dict[str, Any], **settings: Any) -> torch.Tensor:
    """The band's term; what the tokens have shown it is in the memory afterwards, and not before."""
    before = json.dumps(memory)
    found = term(tokens, "entropy_band", **settings)
    assert json.dumps(memory) == before
    (rule,) = find_memories(["entropy_band"]).values()
    memory["entropy_band"] = rule.keep(memory.get("entropy_band"), tokens.clock, rule.see(tokens))
    return found


def test_the_entropy_band_by_hand() -> None:
    memory: dict[str, Any] = {}
    first, second = (
        seen(make_floats(1, 4), make_integers(0, 1), 1, memory),
        seen(make_floats(2), make_integers(0), 1, memory),
    )
    assert [banded(t, memory).tolist() for t in (first, second)] == [[0, 0], [0]], "there is no past yet"
    # past of place 0: (1 + 2)/2 = 1.5, so 1.2 to 1.8; of place 1: 4, so 3.2 to 4.8; of place 2: none
    tokens = seen(make_floats(1, 2, 1.5, 5, 3, 9), make_integers(0, 0, 0, 1, 1, 2), 2, memory)
    found = banded(tokens, memory, weight=10.0)
    assert found.tolist() == pytest.approx([2, 2, 0, 2, 2, 0])
    # place 0: updates of 1.5 and 1.5; place 1: 4 and 4; place 2: 9
    assert banded(seen(make_floats(9), make_integers(2), 3, memory), memory).tolist() == [0]
    assert memory["entropy_band"]["mean"] == [1.5, 4, 9]
    assert memory["entropy_band"]["iterations"] == [2, 2, 1]


def test_the_past_is_a_mean_over_updates_not_tokens() -> None:
    memory: dict[str, Any] = {}
    for iteration, values in ((1, [1.0] * 9), (2, [4.0]), (5, [1.0])):
        banded(seen(make_floats(*values), make_integers(*[0] * len(values)), iteration, memory), memory)
    assert memory["entropy_band"]["mean"] == [2.5], "updates 1 and 2: (1 + 4)/2; that of 5 is not over"


def test_the_band_by_turn_is_about_the_turns_mean() -> None:
    memory: dict[str, Any] = {}
    banded(seen(make_floats(1, 1), make_integers(0, 1), 1, memory), memory)
    values = make_floats(0.2, 1.8, 0.2, 0.4).requires_grad_()  # means 1 and .3, the bounds .8 and 1.2
    found = banded(seen(values, make_integers(0, 0, 1, 1), 2, memory), memory, weight=1.0, level="turn")
    assert found.tolist() == pytest.approx([0, 0, 0.5, 0.5])
    assert compute_gradient(found, values) == pytest.approx([0, 0, -1, -1])


def test_the_released_penalty_has_no_gradient_and_the_hinge_has() -> None:
    past, low, high, alpha, step = 1.0, 0.8, 1.2, 0.1, 1e-4

    def released(values: torch.Tensor) -> torch.Tensor:
        return torch.where((values > low * past) & (values < high * past), 0.0, alpha)

    def hinge(values: torch.Tensor) -> torch.Tensor:
        memory: dict[str, Any] = {}
        banded(seen(make_floats(past), make_integers(0), 1, memory), memory)
        return banded(seen(values, make_integers(*[0] * len(values)), 2, memory), memory, weight=alpha)

    values = make_floats(0.3, 0.7, 1.0, 1.3, 2.0)
    slopes = {f: (f(values + step) - f(values - step)) / (2 * step) for f in (released, hinge)}
    assert released(values).tolist() == pytest.approx([alpha, alpha, 0, alpha, alpha])
    assert slopes[released].tolist() == [0] * 5
    assert slopes[hinge].tolist() == pytest.approx([-alpha, -alpha, 0, alpha, alpha])
    assert compute_gradient(hinge(values.requires_grad_()), values) == pytest.approx(slopes[hinge].tolist())


def test_tokens_out_of_the_loss_are_in_no_past() -> None:
    memory: dict[str, Any] = {}
    own = torch.tensor([True, False])
    for iteration in (1, 2):
        banded(seen(make_floats(1, 9), make_integers(0, 0), iteration, memory, learned=own), memory)
    assert memory["entropy_band"]["mean"] == [1]


@settings(deadline=None)
@given(st.lists(st.lists(st.floats(0, 5), min_size=1, max_size=4), min_size=1, max_size=6), st.integers(0, 5))
def test_a_band_resumed_from_its_json_goes_on_the_same(updates: list[list[float]], stop: int) -> None:
    through, resumed = ({}, {})  # type: dict[str, Any], dict[str, Any]
    for iteration, values in enumerate(updates, 1):
        places = make_integers(*range(len(values)))
        if iteration == stop:
            resumed = json.loads(json.dumps(resumed))
        ours, theirs = (banded(seen(make_floats(*values), places, iteration, m), m) for m in (through, resumed))
        assert torch.equal(ours, theirs)
    assert through == resumed


@pytest.mark.slow
def test_a_trainer_keeps_the_bands_past_once_per_update() -> None:
    model = make_tiny_llama()
    rule = LearnSpec.model_validate(
        dict(lr=1e-4, epochs=2, minibatches=2, token_budget=60, regularisers={"entropy_band": {"weight": 1.0}})
    )
    trainer = PolicyTrainer("p", model, rule)
    told = [run_update(trainer, make_samples(model, k), np.random.default_rng(k), Clock(k, 3)) for k in (1, 2, 3)]
    assert [row["entropy_band_term"] > 0 for row in told] == [False, True, True]
    kept = trainer.memory["entropy_band"]
    assert kept["iterations"][0] == 2 and kept["mean"][0] == pytest.approx(
        np.mean([r["entropy"] for r in told]), rel=0.3
    )
    assert json.loads(json.dumps(trainer.memory)) == trainer.memory


# -- covariance --------------------------------------------------------------------------------------------


def covariances(tokens: TokenBatch, clipped: torch.Tensor | None = None, **settings: Any) -> list[int]:
    """Which tokens lose their loss; that it goes altogether is checked on the way."""
    loss = -tokens.advantages * tokens.logprobs
    whole = TokenLoss(loss, torch.zeros_like(tokens.learned) if clipped is None else clipped)
    left = loss + choose("regulariser", "covariance_clip", **settings)(tokens, whole)
    slopes, before = compute_gradient(left, tokens.logprobs), compute_gradient(loss, tokens.logprobs)
    gone = [k for k, (slope, was) in enumerate(zip(slopes, before, strict=True)) if slope != was]
    assert all(slopes[k] == 0 and left[k] == 0 for k in gone)
    return gone


def test_the_covariance_clip_by_hand() -> None:
    # mean A = 0, mean logp = -4; covariances 3*3 = 9, 1*1 = 1, -1*0 = 0, -3*-4 = 12
    now = make_floats(-1, -3, -4, -8).requires_grad_()
    tokens = make_batch(now, now.detach(), make_floats(3, 1, -1, -3))
    assert covariances(tokens, share=1.0) == [0, 3], "1 is not above 1"
    assert covariances(tokens, share=1.0, low=0.5) == [0, 1, 3]
    assert covariances(tokens, share=1.0, high=10.0) == [0]
    assert covariances(tokens, share=0.5, low=0.5) == [0, 1]
    assert covariances(tokens) == [0], "one, though 2 % of 4 is less"
    assert covariances(tokens, share=1.0, clipped=make_floats(1, 0, 0, 0) > 0) == [3], "the clip holds 0 already"
    assert covariances(tokens, share=1.0, low=50.0, high=60.0) == []


def test_the_covariance_clip_may_hold_replayed_tokens_alone() -> None:
    # of the replayed mean A = 1, mean logp = -3; covariances 2*2 = 4, 0*0 = 0, -2*-2 = 4; the others' are not asked
    now = make_floats(-1, -3, -5, -1, -9).requires_grad_()
    tokens = make_batch(now, now.detach(), make_floats(3, 1, -1, 30, -30), replayed=make_floats(1, 1, 1, 0, 0) > 0)
    assert covariances(tokens, share=1.0, of="replayed") == [0, 2]
    assert covariances(replace(tokens, replayed=None), share=1.0, of="replayed") == []
    assert 3 in covariances(tokens, share=1.0, high=400.0)


def test_what_a_trainer_learns_from_knows_where_it_came_from() -> None:
    model = make_tiny_llama()
    given = [replace(s, source="replayed" if k % 2 else "played") for k, s in enumerate(make_samples(model))]
    (packed,) = pack([s.stream for s in given], [1.0] * len(given), 10**6)
    tokens = make_token_batch(packed, StreamScorer(model)(packed), given, None, Clock(), {})
    assert tokens.replayed is not None
    expected = [packed.index[row] % 2 == 1 for row in packed.rows.tolist()]
    assert tokens.replayed.tolist() == expected and any(expected) and not all(expected)


def test_means_are_those_of_the_tokens_in_the_loss() -> None:
    now = make_floats(-1, -3, -4, -8, -99).requires_grad_()
    tokens = make_batch(now, now.detach(), make_floats(3, 1, -1, -3, 50), learned=make_floats(1, 1, 1, 1, 0) > 0)
    assert covariances(tokens, share=1.0) == [0, 3]


def test_at_most_the_share_is_taken_evenly_spaced_and_always_the_same() -> None:
    rng = np.random.default_rng(0)
    now = torch.from_numpy(-rng.exponential(3, 1000)).requires_grad_()
    tokens = make_batch(now, now.detach(), torch.from_numpy(rng.normal(0, 2, 1000)))
    every = covariances(tokens, share=1.0)
    found = covariances(tokens)
    assert len(every) > 200 and len(found) == 20 and set(found) < set(every)
    assert found == [every[k * len(every) // 20] for k in range(20)] == covariances(tokens)


def test_nothing_is_taken_where_all_advantages_are_equal() -> None:
    now = make_floats(-1, -3, -40).requires_grad_()
    assert covariances(make_batch(now, now.detach(), make_floats(2, 2, 2)), share=1.0) == []


def test_every_regulariser_works_in_the_trainer_on_nothing_to_learn() -> None:
    none = make_batch(*(torch.zeros(0, dtype=torch.float64) for _ in range(3)), reference=torch.zeros(0))
    for name in REGULARISERS:
        assert term(none, name).tolist() == []
