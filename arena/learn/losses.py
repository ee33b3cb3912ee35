"""Policy-gradient losses, per sampled token, and the KL to a reference."""

from collections.abc import Callable
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class TokenLoss:
    """A loss for each of N tokens and what is worth watching about it."""

    loss: torch.Tensor
    """[N] float32, to be minimised."""
    clipped: torch.Tensor
    """[N] bool, where the clip cut the gradient."""


def ppo_clip(
    logprobs: torch.Tensor,
    old: torch.Tensor,
    advantages: torch.Tensor,
    clip_low: float,
    clip_high: float,
) -> TokenLoss:
    """PPO's clipped surrogate, max(-A r, -A clip(r, 1 - low, 1 + high)) with r = exp(logprobs - old).

    All arrays are [N] float32. Source: Schulman et al. 2017, eq. 7; separate bounds as in DAPO
    (Yu et al. 2025). The log-ratio is held within ±20, where exp still fits float32.
    """
    ratio = (logprobs - old).clamp(-20.0, 20.0).exp()
    plain = -advantages * ratio
    bounded = -advantages * ratio.clamp(1.0 - clip_low, 1.0 + clip_high)
    return TokenLoss(torch.maximum(plain, bounded), (bounded > plain).detach())


def nll(
    logprobs: torch.Tensor,
    old: torch.Tensor,
    advantages: torch.Tensor,
    clip_low: float,
    clip_high: float,
) -> TokenLoss:
    """Advantage-weighted negative log-likelihood, -A log p; with A = 1 it is imitation."""
    return TokenLoss(-advantages * logprobs, torch.zeros_like(logprobs, dtype=torch.bool))


def kl_k3(logprobs: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
    """Schulman's k3 estimate of KL(policy ‖ reference) per token, [N]: exp(d) - d - 1 with d = reference - logprobs.

    Unbiased for tokens drawn from the policy, and never negative. Source: Schulman 2020, "Approximating KL
    divergence".
    """
    d = (reference - logprobs).clamp(-20.0, 20.0)
    return d.exp() - d - 1.0


LOSSES: dict[str, Callable[[torch.Tensor, torch.Tensor, torch.Tensor, float, float], TokenLoss]] = {
    "ppo_clip": ppo_clip,
    "nll": nll,
}
