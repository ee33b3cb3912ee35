"""Clip rules: how far one update may move a token's, turn's or stream's probability.

A clip is `clip(ratio, tokens, *, settings) -> (loss, clipped)`: `ratio` [N] float with gradient, one per token whatever
its level; `loss` [N] to be minimised, `clipped` [N] bool.
"""

from collections.abc import Callable
from typing import Annotated

import torch
from pydantic import Field

from arena.learn.batches import TokenBatch

Clipped = tuple[torch.Tensor, torch.Tensor]
Low = Annotated[float, Field(ge=0, le=1)]
High = Annotated[float, Field(ge=0)]


def ppo(ratio: torch.Tensor, tokens: TokenBatch, *, low: Low = 0.2, high: High = 0.2) -> Clipped:
    """PPO's pessimistic bound, max(-A r, -A clip(r, 1 - low, 1 + high)); DAPO sets high above low.

    Source: Schulman et al. 2017, eq. 7; separate bounds as in DAPO (Yu et al. 2025).
    """
    plain = -tokens.advantages * ratio
    bounded = -tokens.advantages * ratio.clamp(1.0 - low, 1.0 + high)
    return torch.maximum(plain, bounded), (bounded > plain).detach()


CLIPS: dict[str, Callable[..., Clipped]] = {f.__name__: f for f in (ppo,)}
