"""Corrections for tokens that other weights, or another program, sampled than those that are about to learn.

A correction is `correction(tokens, *, settings) -> [N] float`, a weight on each token's loss, without gradient, from
`tokens.old` and `tokens.behaviour`.
"""

from collections.abc import Callable

import torch

from arena.learn.batches import TokenBatch


def uncorrected(tokens: TokenBatch) -> torch.Tensor:
    """Openly no correction: every token weighs 1, whoever sampled it."""
    return torch.ones_like(tokens.old)


CORRECTIONS: dict[str, Callable[..., torch.Tensor]] = {f.__name__: f for f in (uncorrected,)}
