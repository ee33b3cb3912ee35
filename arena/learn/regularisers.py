"""Regularisers: terms added to each token's loss that do not come from its advantage.

A regulariser is `regulariser(tokens, loss, *, settings) -> [N] float`, the term to add to the loss of each token;
`loss` is the policy's own, for rules that take parts of it away. One that reads `tokens.reference` is marked
`needs("reference")`.
"""

from collections.abc import Callable
from typing import Annotated

import torch
from pydantic import Field

from arena.learn.batches import TokenBatch
from arena.parts import needs


@needs("reference")
def kl(tokens: TokenBatch, loss: torch.Tensor, *, weight: Annotated[float, Field(ge=0)] = 0.01) -> torch.Tensor:
    """`weight` times the KL to the policy's own beginning, by Schulman's k3 estimate."""
    assert tokens.reference is not None
    return weight * k3(tokens.logprobs, tokens.reference)


def entropy(tokens: TokenBatch, loss: torch.Tensor, *, weight: float = 0.0) -> torch.Tensor:
    """The entropy bonus: minus `weight` times the entropy of the distribution each token was drawn from."""
    return -weight * tokens.entropy


def k3(logprobs: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
    """Schulman's k3 estimate of KL(policy ‖ reference) per token, [N]: exp(d) - d - 1 with d = reference - logprobs.

    Unbiased for tokens drawn from the policy, and never negative. Source: Schulman 2020, "Approximating KL
    divergence".
    """
    d = (reference - logprobs).clamp(-20.0, 20.0)
    return d.exp() - d - 1.0


REGULARISERS: dict[str, Callable[..., torch.Tensor]] = {f.__name__: f for f in (kl, entropy)}
