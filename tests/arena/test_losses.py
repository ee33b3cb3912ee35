"""Losses: numbers worked by hand, gradients against finite differences, k3 against the exact KL."""

import math

import pytest
import torch

from arena.learn.batches import TokenBatch
from arena.learn.losses import TokenLoss, likelihood, policy_gradient
from arena.learn.regularisers import k3
from arena.parts import choose


def tensor(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def batch(logprobs: torch.Tensor, old: torch.Tensor, advantages: torch.Tensor) -> TokenBatch:
    """Each token a turn and a stream of its own, sampled by the old weights."""
    own = torch.arange(len(logprobs))
    return TokenBatch(
        logprobs, torch.ones_like(old), old, old, advantages, own, own, torch.zeros_like(own), torch.ones_like(own) > 0
    )


def ppo(now: torch.Tensor, old: torch.Tensor, advantages: torch.Tensor, low: float, high: float) -> TokenLoss:
    clip = choose("clip", "ppo", low=low, high=high)
    return policy_gradient(batch(now, old, advantages), clip=clip)


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "slope", "clipped"),
    [
        # clip to [0.9, 1.3]; the loss is -A r, or -A times the bound where that is worse; its slope by log p is -A r
        (1.0, 2.0, -2.0, -2.0, False),
        (1.1, 2.0, -2.2, -2.2, False),  # inside
        (1.5, 2.0, -2.6, 0.0, True),  # good, already likelier by 1.3: -2 * 1.3, nothing more to gain
        (0.5, 2.0, -1.0, -1.0, False),  # good but became rarer: -2 * 0.5, the gradient pulls it back
        (0.5, -2.0, 1.8, 0.0, True),  # bad, already rarer than 0.9: 2 * 0.9
        (1.5, -2.0, 3.0, 3.0, False),  # bad and became likelier: 2 * 1.5, pushed down
        (0.5, 0.0, 0.0, 0.0, False),
    ],
)
def test_ppo_clip_by_hand(ratio: float, advantage: float, loss: float, slope: float, clipped: bool) -> None:
    old = tensor(-1.0)
    now = (old + math.log(ratio)).requires_grad_()
    found = ppo(now, old, tensor(advantage), 0.1, 0.3)
    assert found.loss.item() == pytest.approx(loss)
    assert found.clipped.tolist() == [clipped]
    (gradient,) = torch.autograd.grad(found.loss.sum(), now)
    assert gradient.item() == pytest.approx(slope)


def test_gradients_agree_with_finite_differences() -> None:
    old = tensor(-1.0, -2.0, -0.5, -3.0, -1.2, -0.7)
    advantages = tensor(1.0, -1.0, 0.5, -2.0, 3.0, -0.1)
    now = (old + tensor(0.05, -0.08, 0.6, -0.7, -0.9, 0.8)).requires_grad_()  # ratios away from 0.8, 1.2 and 1
    reference = tensor(-1.3, -1.1, -0.9, -3.5, -0.2, -2.0)
    assert torch.autograd.gradcheck(lambda x: ppo(x, old, advantages, 0.2, 0.2).loss, now)
    assert torch.autograd.gradcheck(lambda x: likelihood(batch(x, old, advantages)).loss, now)
    assert torch.autograd.gradcheck(lambda x: k3(x, reference), now)


def test_likelihood_is_minus_advantage_times_logprob() -> None:
    found = likelihood(batch(tensor(-0.5, -2.0), tensor(9.0, 9.0), tensor(1.0, -3.0)))
    assert found.loss.tolist() == [0.5, -6.0] and not found.clipped.any()


def test_k3_by_hand_and_never_negative() -> None:
    # d = reference - logprob = log 2: 2 - log 2 - 1; d = 0: 0; d = log 0.5: 0.5 + log 2 - 1
    found = k3(tensor(-1.0, -1.0, -1.0), tensor(-1.0 + math.log(2), -1.0, -1.0 - math.log(2)))
    assert found.tolist() == pytest.approx([1 - math.log(2), 0.0, math.log(2) - 0.5])
    many = torch.randn(1000, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 3
    assert (k3(many, torch.zeros_like(many)) >= 0).all()


def test_k3_is_the_kl_on_average_over_the_policys_own_tokens() -> None:
    p, q = tensor(0.5, 0.3, 0.15, 0.05), tensor(0.1, 0.2, 0.3, 0.4)
    exact = (p * (p / q).log()).sum()
    assert (p * k3(p.log(), q.log())).sum().item() == pytest.approx(exact.item())


def test_extreme_ratios_stay_finite() -> None:
    now = torch.tensor([-1e4, 0.0, -200.0], requires_grad=True)
    old = torch.tensor([0.0, -1e4, 0.0])
    for advantage in (1.0, -1.0):
        found = ppo(now, old, torch.full((3,), advantage), 0.2, 0.2).loss
        (gradient,) = torch.autograd.grad(found.sum(), now)
        assert torch.isfinite(found).all() and torch.isfinite(gradient).all()
    assert torch.isfinite(k3(now, old)).all()
