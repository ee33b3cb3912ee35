"""Losses: ratios by token, turn and sequence, worked by hand; every gradient against finite differences."""

import math
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

from arena.config.experiment import LearnSpec
from arena.config.kinds import choose
from arena.learn.batches import Level, TokenBatch
from arena.learn.clips import CLIPS
from arena.learn.losses import TokenLoss, importance_ratio, likelihood, policy_gradient
from tests.factories.token_batches import compute_gradient, make_batch, make_floats, make_integers

LEVELS: tuple[Level, ...] = ("token", "turn", "sequence")
CORRECTIONS: tuple[dict[str, Any], ...] = (
    {"uncorrected": {}},
    {"truncated": {"cap": 1.2, "level": "turn"}},
    {"masked": {"level": "sequence", "by": "product", "low": 0.5, "high": 2.0, "weigh": True}},
)


def compute_token_loss(tokens: TokenBatch, **settings: Any) -> TokenLoss:
    rule = LearnSpec.model_validate(dict(loss={"policy_gradient": settings}))
    return rule.loss(tokens)


# -- ratios ------------------------------------------------------------------------------------------------


def make_two_streams(change: torch.Tensor, **changes: Any) -> TokenBatch:
    """Return two streams of 2 and 1 turns: tokens 0 1 | 2, and 3 4."""
    units: dict[str, Any] = {"turns": make_integers(0, 0, 1, 2, 2), "streams": make_integers(0, 0, 0, 1, 1)}
    return make_batch(change, torch.zeros(5, dtype=torch.float64), torch.ones(5), **{**units, **changes})


def test_ratios_by_token_turn_and_sequence() -> None:
    tokens = make_two_streams(make_floats(0.1, 0.3, -0.4, 0.2, 0.6))
    by_token, by_turn, by_stream = (importance_ratio(tokens, level).log() for level in LEVELS)
    assert by_token.tolist() == pytest.approx([0.1, 0.3, -0.4, 0.2, 0.6])
    # turns: (.1 + .3)/2 = .2, -.4 alone, (.2 + .6)/2 = .4
    assert by_turn.tolist() == pytest.approx([0.2, 0.2, -0.4, 0.4, 0.4])
    # streams: (.1 + .3 - .4)/3 = 0, (.2 + .6)/2 = .4
    assert by_stream.tolist() == pytest.approx([0, 0, 0, 0.4, 0.4], abs=1e-12)


def test_tokens_out_of_the_loss_are_in_no_mean() -> None:
    is_learned = torch.tensor([True, False, True, False, False])
    tokens = make_two_streams(make_floats(0.1, 9.0, -0.4, 9.0, 9.0), learned=is_learned)
    assert importance_ratio(tokens, "turn").log()[is_learned].tolist() == pytest.approx([0.1, -0.4])
    assert importance_ratio(tokens, "sequence").log()[is_learned].tolist() == pytest.approx([-0.15, -0.15])


def test_gspo_is_insensitive_to_one_noisy_token() -> None:
    """+5 nats on one token of 500: e^5 = 148 for it alone, e^(5/500) = 1.01 for the sequence."""
    change = torch.zeros(500, dtype=torch.float64)
    change[123] = 5.0
    old = torch.zeros_like(change)
    tokens = make_batch(change.requires_grad_(), old, torch.ones_like(old), streams=torch.zeros(500, dtype=torch.int64))
    assert importance_ratio(tokens, "token")[123].item() == pytest.approx(148.41, abs=0.01)
    assert importance_ratio(tokens, "sequence").tolist() == pytest.approx([1.01005] * 500, abs=1e-5)
    # within GRPO's bounds every token is pushed, the noisy one no more than the others; within GSPO's, none
    wide, narrow = ({"ratio": "sequence", "clip": {"ppo": {"low": e, "high": e}}} for e in (0.2, 4e-4))
    assert compute_gradient(compute_token_loss(tokens, **wide).loss, change) == pytest.approx(
        [-1.01005] * 500, abs=1e-5
    )
    assert not any(compute_gradient(compute_token_loss(tokens, **narrow).loss, change))
    # by token, without a clip, the noisy one drowns the 499 others
    by_token = compute_gradient(compute_token_loss(tokens, clip="unclipped").loss, change)
    assert by_token[123] == pytest.approx(-148.41, abs=0.01) and by_token[0] == -1.0


def test_tokens_use_their_own_advantage_and_their_units_ratio() -> None:
    """GSPO-token: with advantages 2, -1, 0 in one stream at s = e^.1 the gradients are -s A."""
    change = make_floats(0.4, -0.2, 0.1).requires_grad_()
    tokens = make_batch(
        change,
        make_floats(0, 0, 0),
        make_floats(2, -1, 0),
        streams=make_integers(0, 0, 0),
        turns=make_integers(0, 0, 0),
    )
    s = math.exp(0.1)
    for level in ("turn", "sequence"):
        assert compute_gradient(
            compute_token_loss(tokens, ratio=level, clip="unclipped").loss, change
        ) == pytest.approx([-2 * s, s, 0])


# -- finite differences ------------------------------------------------------------------------------------


def compute_reference_objective(
    x: np.ndarray, base: np.ndarray, tokens: TokenBatch, clip: str, s: dict[str, Any], level: Level
) -> float:
    """Compute the objective in plain floats; quantities held constant are taken at `base`."""
    old, total = tokens.old.numpy(), 0.0
    units = np.where(tokens.learned.numpy(), tokens.units(level).numpy(), -1)
    for unit in np.unique(units[units >= 0]):
        positions = np.flatnonzero(units == unit)
        r, held_ratio = (math.exp(float(np.mean(v[positions] - old[positions]))) for v in (x, base))
        a = float(tokens.advantages[positions[0]])  # the same for the whole unit
        low, high, ceiling = 1 - s.get("low", 9), 1 + s.get("high", 9), -a * (s.get("c") or math.inf)
        bounded = -a * min(max(r, low), high)
        if clip == "aepo" and held_ratio > high:
            bounded = -a * high * r / held_ratio
        value = -a * r if clip == "unclipped" else max(-a * r, bounded)
        if clip in ("dual", "aepo") and a < 0:
            value = min(value, ceiling)
        if clip == "cispo":
            value = -a * min(max(held_ratio, low), high) * float(np.mean(x[positions]))
        total += value * len(positions)
    return total


def draw_tokens(rng: np.random.Generator, level: Level) -> TokenBatch:
    """Draw three streams of three turns of 1 to 3 tokens, some out of the loss, with log-ratios from -1.5 to 2."""
    sizes = rng.integers(1, 4, 9)
    turns = np.repeat(np.arange(9), sizes)
    units = {"token": np.arange(len(turns)), "turn": turns, "sequence": turns // 3}[level]
    advantages = rng.choice([-2.0, -0.5, 0.7, 1.5], len(turns))[units]
    change = rng.uniform(-1.5, 2.0, len(turns))[units] + rng.normal(0, 0.1, len(turns)) * (level != "token")
    old, gap = rng.normal(-2, 1, len(turns)), rng.normal(0, 0.3, len(turns))
    return make_batch(
        torch.from_numpy(old + change).requires_grad_(),
        torch.from_numpy(old),
        torch.from_numpy(advantages),
        behaviour=torch.from_numpy(old + gap),
        turns=torch.from_numpy(turns),
        streams=torch.from_numpy(turns // 3),
        learned=torch.from_numpy(rng.random(9) < 0.8)[turns],
    )


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("clip", sorted(CLIPS))
def test_gradients_agree_with_finite_differences(clip: str, level: Level) -> None:
    settings = choose("clip", clip).with_defaults().settings
    seen_cases = set()
    for seed in range(12):
        tokens = draw_tokens(np.random.default_rng(seed), level)
        loss = compute_token_loss(tokens, ratio=level, clip=clip)
        base, step = tokens.logprobs.detach().numpy(), 1e-6
        ratio = importance_ratio(tokens, level).detach().numpy()
        edges = [0.8, 1.2, 1.28, 3.0, 5.0]
        assert min(abs(ratio - edge).min() for edge in edges) > 10 * step, "no kink lies within a step"
        expected = []
        for k in range(len(base)):
            up, down = (base + sign * step * (np.arange(len(base)) == k) for sign in (1, -1))
            values = [compute_reference_objective(x, base, tokens, clip, dict(settings), level) for x in (up, down)]
            expected.append((values[0] - values[1]) / (2 * step))
        is_learned = tokens.learned
        assert compute_gradient(loss.loss[is_learned], tokens.logprobs) == pytest.approx(expected, abs=1e-7)
        seen_cases |= set(
            zip((loss.clipped[is_learned]).tolist(), (tokens.advantages[is_learned] > 0).tolist(), strict=True)
        )
    if clip != "unclipped":
        assert seen_cases == set(product((True, False), repeat=2)), "all combinations of clipping and sign occurred"


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("clip", sorted(CLIPS))
@pytest.mark.parametrize("correction", CORRECTIONS, ids=lambda c: next(iter(c)))
def test_correction_scales_each_tokens_gradient(clip: str, level: Level, correction: dict[str, Any]) -> None:
    tokens = draw_tokens(np.random.default_rng(3), level)
    uncorrected, corrected = (
        compute_token_loss(tokens, ratio=level, clip=clip, correction=c) for c in ("uncorrected", correction)
    )
    assert corrected.correction is not None and not corrected.correction.requires_grad
    expected = (
        torch.tensor(compute_gradient(uncorrected.loss, tokens.logprobs), dtype=torch.float64) * corrected.correction
    )
    assert compute_gradient(corrected.loss, tokens.logprobs) == pytest.approx(expected.tolist(), abs=1e-12)
    assert torch.equal(corrected.clipped, uncorrected.clipped)


def test_likelihood_is_minus_advantage_times_logprob() -> None:
    result = likelihood(make_batch(make_floats(-0.5, -2.0), make_floats(9.0, 9.0), make_floats(1.0, -3.0)))
    assert result.loss.tolist() == [0.5, -6.0] and not result.clipped.any()


def test_likelihood_gradient() -> None:
    old, advantages = make_floats(-1.0, -2.0), make_floats(1.0, -2.0)
    now = old.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: likelihood(make_batch(x, old, advantages)).loss, now)


# -- robustness --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("clip", sorted(CLIPS))
@pytest.mark.parametrize("correction", CORRECTIONS, ids=lambda c: next(iter(c)))
def test_extreme_ratios_stay_finite(clip: str, level: Level, correction: dict[str, Any]) -> None:
    now = torch.tensor([-1e4, 0.0, -200.0, -1e4], requires_grad=True)
    old, behaviour = torch.tensor([0.0, -1e4, 0.0, -1e4]), torch.tensor([-1e4, 0.0, -200.0, 0.0])
    for advantage in (1.0, -1.0):
        units = {"turns": make_integers(0, 0, 1, 2), "streams": make_integers(0, 0, 0, 1), "behaviour": behaviour}
        tokens = make_batch(now, old, torch.full((4,), advantage), **units)
        losses = compute_token_loss(tokens, ratio=level, clip=clip, correction=correction).loss
        assert torch.isfinite(losses).all() and np.isfinite(compute_gradient(losses, now)).all()


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("clip", sorted(CLIPS))
@pytest.mark.parametrize("correction", CORRECTIONS, ids=lambda c: next(iter(c)))
def test_tokens_out_of_the_loss_have_and_change_no_gradient(
    clip: str, level: Level, correction: dict[str, Any]
) -> None:
    settings = {"ratio": level, "clip": clip, "correction": correction}
    rng = np.random.default_rng(5)
    for _ in range(5):
        tokens = draw_tokens(rng, level)
        is_learned, is_excluded = tokens.learned, ~tokens.learned
        weights = torch.from_numpy(
            LearnSpec().aggregate(*(v.numpy() for v in (tokens.turns, tokens.streams, is_learned)))
        )
        gradients = torch.tensor(
            compute_gradient(compute_token_loss(tokens, **settings).loss * weights, tokens.logprobs)
        )
        assert gradients[is_excluded].eq(0).all()
        noise = {name: getattr(tokens, name).detach().clone() for name in ("logprobs", "old", "behaviour")}
        for values in noise.values():
            values[is_excluded] = torch.from_numpy(rng.normal(-3, 2, int(is_excluded.sum())))
        noise["logprobs"].requires_grad_()
        noisy = make_batch(
            advantages=tokens.advantages, turns=tokens.turns, streams=tokens.streams, learned=is_learned, **noise
        )
        noisy_result = compute_token_loss(noisy, **settings)
        torch.testing.assert_close(
            noisy_result.loss[is_learned], compute_token_loss(tokens, **settings).loss[is_learned]
        )
        assert compute_gradient(noisy_result.loss * weights, noise["logprobs"]) == pytest.approx(gradients.tolist())


# -- in an experiment --------------------------------------------------------------------------------------


def test_published_settings_round_trip() -> None:
    gspo = LearnSpec.model_validate(
        dict(loss={"policy_gradient": {"ratio": "sequence", "clip": {"ppo": {"low": 3e-4, "high": 4e-4}}}})
    )
    assert gspo.model_dump()["loss"]["policy_gradient"] == {
        "ratio": "sequence",
        "clip": {"ppo": {"low": 3e-4, "high": 4e-4}},
        "correction": "uncorrected",
    }
    assert LearnSpec.model_validate(gspo.model_dump()).loss == gspo.loss
    for bad in ({"ratio": "word"}, {"clip": {"dual": {"c": 1.0}}}, {"correction": "masked"}, {"clip": "cipso"}):
        with pytest.raises(ValueError):
            choose("loss", "policy_gradient", **bad)


def test_default_is_ppo_by_token_without_correction() -> None:
    tokens = draw_tokens(np.random.default_rng(0), "token")
    result, ratio = policy_gradient(tokens), (tokens.logprobs - tokens.old).exp()
    unclipped, clipped = -tokens.advantages * ratio, -tokens.advantages * ratio.clamp(0.8, 1.2)
    torch.testing.assert_close(result.loss, torch.maximum(unclipped, clipped))
