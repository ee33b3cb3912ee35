"""Losses: one number per sampled token, to be minimised.

A loss is `loss(tokens, *, settings) -> TokenLoss`. What the tokens' losses are summed to is the aggregate's business.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import torch

from arena.learn.batches import TokenBatch
from arena.parts import Chosen, Kind


@dataclass(frozen=True)
class TokenLoss:
    """A loss for each of N tokens and what is worth watching about it."""

    loss: torch.Tensor
    """[N] float, to be minimised."""
    clipped: torch.Tensor
    """[N] bool, where the clip changed the gradient."""


def policy_gradient(
    tokens: TokenBatch,
    *,
    clip: Annotated[Chosen, Kind("clip")] = Chosen("clip", "ppo"),
) -> TokenLoss:
    """The policy gradient by importance ratio, held back by a clip rule.

    r = exp(logprobs - old), the log-ratio held within ±20, where exp still fits float32.
    """
    ratio = (tokens.logprobs - tokens.old).clamp(-20.0, 20.0).exp()
    loss, clipped = clip(ratio, tokens)
    return TokenLoss(loss, clipped)


def likelihood(tokens: TokenBatch) -> TokenLoss:
    """Advantage-weighted negative log-likelihood, -A log p; with A = 1 it is imitation."""
    return TokenLoss(-tokens.advantages * tokens.logprobs, torch.zeros_like(tokens.learned))


LOSSES: dict[str, Callable[..., TokenLoss]] = {f.__name__: f for f in (policy_gradient, likelihood)}
