"""Clip rules: losses and gradients on both sides of every bound, by hand."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from arena.config.kinds import choose
from arena.learn.clips import CLIPS
from arena.learn.losses import policy_gradient
from tests.factories.token_batches import compute_gradient, make_batch, make_floats

BOUNDS = {"low": 0.1, "high": 0.3}


def apply_clip(clip: str, ratio: float, advantage: float, **settings: Any) -> tuple[float, float, bool]:
    """Return one token's loss, its gradient by the log-probability, and whether it counts as clipped."""
    old = make_floats(-1.0)
    now = (old + math.log(ratio)).requires_grad_()
    result = policy_gradient(make_batch(now, old, make_floats(advantage)), clip=choose("clip", clip, **settings))
    return result.loss.item(), compute_gradient(result.loss, now)[0], bool(result.clipped)


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "derivative", "clipped"),
    [
        # clip to [0.9, 1.3]; the loss is -A r, or -A times the bound if that is worse; its derivative by log p is -A r
        (1.0, 2.0, -2.0, -2.0, False),
        (1.1, 2.0, -2.2, -2.2, False),  # inside
        (1.5, 2.0, -2.6, 0.0, True),  # good, already likelier by 1.3: -2 * 1.3, nothing more to gain
        (0.5, 2.0, -1.0, -1.0, False),  # good but became rarer: -2 * 0.5, the gradient pulls it back
        (0.5, -2.0, 1.8, 0.0, True),  # bad, already rarer than 0.9: 2 * 0.9
        (1.5, -2.0, 3.0, 3.0, False),  # bad and became likelier: 2 * 1.5, pushed down
        (8.0, -2.0, 16.0, 16.0, False),  # and the harder the likelier
        (0.5, 0.0, 0.0, 0.0, False),
    ],
)
def test_ppo_by_hand(ratio: float, advantage: float, loss: float, derivative: float, clipped: bool) -> None:
    assert apply_clip("ppo", ratio, advantage, **BOUNDS) == (
        *map(pytest.approx, (loss, derivative)),
        clipped,
    )


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "derivative", "clipped"),
    [
        (1.5, -2.0, 3.0, 3.0, False),  # as PPO below the ceiling of 2 * 3
        (8.0, -2.0, 6.0, 0.0, True),  # 2 * 8 is above it
        (0.5, -2.0, 1.8, 0.0, True),
        (8.0, 2.0, -2.6, 0.0, True),  # good tokens know no ceiling
        (1.1, 2.0, -2.2, -2.2, False),
    ],
)
def test_dual_by_hand(ratio: float, advantage: float, loss: float, derivative: float, clipped: bool) -> None:
    result = apply_clip("dual", ratio, advantage, c=3.0, **BOUNDS)
    assert result == (*map(pytest.approx, (loss, derivative)), clipped)


@pytest.mark.parametrize(
    ("ratio", "advantage", "weight"),
    # the derivative is -clip(r, .9, 1.3) A on whichever side
    [(1.0, 2.0, 1.0), (2.0, 2.0, 1.3), (2.0, -2.0, 1.3), (0.5, 2.0, 0.9), (0.5, -2.0, 0.9), (1.2, -2.0, 1.2)],
)
def test_cispo_keeps_a_gradient_beyond_the_clip(ratio: float, advantage: float, weight: float) -> None:
    _, derivative, clipped = apply_clip("cispo", ratio, advantage, **BOUNDS)
    assert derivative == pytest.approx(-weight * advantage) and clipped == (ratio not in (1.0, 1.2))


def test_cispo_has_no_lower_bound_unless_asked() -> None:
    assert apply_clip("cispo", 0.01, 1.0)[1:] == (pytest.approx(-0.01), False)
    assert apply_clip("cispo", 50.0, 1.0)[1:] == (pytest.approx(-5.0), True)


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "derivative", "clipped"),
    [
        (1.5, 2.0, -2.6, -2.6, True),  # the value of PPO, -2 * 1.3, with the gradient -(1 + .3) A
        (9.0, 2.0, -2.6, -2.6, True),  # however far beyond
        (1.1, 2.0, -2.2, -2.2, False),
        (0.5, 2.0, -1.0, -1.0, False),
        (0.5, -2.0, 1.8, 0.0, True),  # below, PPO's
        (1.5, -2.0, 3.0, 3.0, False),
        (8.0, -2.0, 6.0, 0.0, True),  # the ceiling of 2 * 3
    ],
)
def test_aepo_by_hand(ratio: float, advantage: float, loss: float, derivative: float, clipped: bool) -> None:
    assert apply_clip("aepo", ratio, advantage, **BOUNDS) == (
        *map(pytest.approx, (loss, derivative)),
        clipped,
    )


def test_aepo_without_a_ceiling() -> None:
    assert apply_clip("aepo", 8.0, -2.0, c=None)[1] == pytest.approx(16.0)


def test_unclipped_is_the_ratio_itself() -> None:
    assert apply_clip("unclipped", 8.0, 2.0) == (*map(pytest.approx, (-16.0, -16.0)), False)


@pytest.mark.parametrize("clip", sorted(CLIPS))
@pytest.mark.parametrize("advantage", [2.0, -0.5, 0.0])
def test_on_policy_every_rule_is_reinforce(clip: str, advantage: float) -> None:
    _, derivative, clipped = apply_clip(clip, 1.0, advantage)
    assert derivative == pytest.approx(-advantage) and not clipped


@settings(deadline=None)
@given(st.floats(-5, 5), st.floats(-3, 3))
def test_gradients_have_the_right_sign_and_stay_within_bounds(log_ratio: float, advantage: float) -> None:
    for clip in CLIPS:
        _, derivative, _ = apply_clip(clip, math.exp(log_ratio), advantage)
        assert derivative * advantage <= 0
        if clip in ("dual", "cispo", "aepo"):
            assert abs(derivative) <= 5 * abs(advantage) + 1e-12


@settings(deadline=None)
@given(st.floats(-3, 3), st.floats(-3, 3))
def test_aepo_and_ppo_differ_in_gradient_only(log_ratio: float, advantage: float) -> None:
    old = torch.zeros(1, dtype=torch.float64)
    tokens = make_batch(make_floats(log_ratio), old, make_floats(advantage))
    aepo, ppo = (
        policy_gradient(tokens, clip=choose("clip", "aepo", **BOUNDS, c=None)).loss,
        policy_gradient(tokens, clip=choose("clip", "ppo", **BOUNDS)).loss,
    )
    torch.testing.assert_close(aepo, ppo)
