"""Clip rules: limits on how far one update may move a probability.

A clip is `clip(ratio, tokens, *, settings) -> (loss, clipped)`: `ratio` [N] float with gradient, one per token at any
level; `loss` [N] to be minimised; `clipped` [N] bool, True if the rule changed the gradient of -A r.

`low` and `high` are distances from 1. Gradients below are with respect to the token's own log-probability.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from arena.learn.batches import TokenBatch
from arena.parts.part_config import Kind

if TYPE_CHECKING:
    import torch

    Clipped = tuple[torch.Tensor, torch.Tensor]

Low = Annotated[float, Field(ge=0, le=1)]
High = Annotated[float, Field(ge=0)]
Ceiling = Annotated[float, Field(gt=1)]


def ppo(ratio: torch.Tensor, tokens: TokenBatch, *, low: Low = 0.2, high: High = 0.2) -> Clipped:
    """PPO: apply the pessimistic bound, max(-A r, -A clip(r, 1 - low, 1 + high)); DAPO sets high above low.

    Returns each token's loss and the mask of clipped tokens, as all clips do. No gradient if r has passed the bound on
    the side that A pushes to, else -A r. Usual low/high: PPO and GRPO .2/.2, DAPO .2/.28, DART-GUI .1/.28; with the
    ratio of whole sequences, whose spread is far smaller, GSPO 3e-4/4e-4. Source: Schulman et al. 2017, eq. 7; separate
    bounds as in DAPO (Yu et al. 2025).
    """
    plain = -tokens.advantages * ratio
    bounded = -tokens.advantages * ratio.clamp(1.0 - low, 1.0 + high)
    return plain.maximum(bounded), (bounded > plain).detach()


def dual(ratio: torch.Tensor, tokens: TokenBatch, *, low: Low = 0.2, high: High = 0.2, c: Ceiling = 3.0) -> Clipped:
    """Dual clip: apply PPO's bound, and for A < 0 limit the loss to -A c, which bounds the gradient of bad tokens.

    Returns each token's loss and the mask of clipped tokens. For A < 0 the loss is min(ppo, -A c): without it r, and
    the gradient -A r, are unbounded. c: 3 in Ye et al. 2020 and verl's default, 10 in verl's DAPO recipe, SPEAR and
    DART-GUI (whose GSPO loss does not read it), 4 in INTELLECT-2. TRL's `delta` is the same for c ≥ 1 + high.
    """
    return _cap_loss(*ppo(ratio, tokens, low=low, high=high), tokens.advantages, c)


def cispo(ratio: torch.Tensor, tokens: TokenBatch, *, low: Low = 1.0, high: High = 4.0) -> Clipped:
    """CISPO: weight log p by the clipped ratio as a constant, so that clipped tokens keep a gradient.

    Returns each token's loss and the mask of clipped tokens. The loss is -sg(clip(r, 1 - low, 1 + high)) · A · log π,
    its gradient -clip(r) A everywhere: with A > 0, r = 2 and high = .2 it is -1.2 A, where PPO has none. The loss's
    value has no meaning. Source: MiniMax-M1 (Chen et al. 2025), without a lower bound (low = 1) and with an unspecified
    high; 1 + high = 5 is ScaleRL's (Khatri et al. 2025). In TRL `epsilon_high` is 1 + high itself, and there is no
    lower bound; verl bounds on both sides with PPO's .2/.2.
    """
    weight = ratio.clamp(1.0 - low, 1.0 + high).detach()
    return -weight * tokens.advantages * tokens.logprobs, (weight != ratio).detach()


def aepo(
    ratio: torch.Tensor, tokens: TokenBatch, *, low: Low = 0.2, high: High = 0.28, c: Ceiling | None = 3.0
) -> Clipped:
    """AEPO: apply PPO's bound, but keep the gradient (1 + high) A at r > 1 + high if A > 0.

    Returns each token's loss and the mask of clipped tokens. The bound is sg((1 + high)/r) · r, in value 1 + high;
    below 1 - low it is PPO's constant. `c` is the ceiling of `dual`, null for none. Source: AEPO (Dong et al. 2025), as
    its code is found in forks; GPPO (Su et al. 2025) keeps the gradient on the lower side too.
    """
    plain = -tokens.advantages * ratio
    above = ratio * ((1.0 + high) / ratio).detach()
    bounded = -tokens.advantages * above.where(ratio > 1.0 + high, ratio.clamp(min=1.0 - low))
    loss, clipped = plain.maximum(bounded), (bounded > plain).detach()
    return (loss, clipped) if c is None else _cap_loss(loss, clipped, tokens.advantages, c)


def unclipped(ratio: torch.Tensor, tokens: TokenBatch) -> Clipped:
    """Apply no bound: each token's loss is -A r, and no token is clipped.

    It is REINFORCE if the old weights are the current ones, otherwise plain importance sampling. At r = 1 every other
    rule has the same gradient, -A.
    """
    return -tokens.advantages * ratio, tokens.learned.new_zeros(len(tokens.learned))


def _cap_loss(loss: torch.Tensor, clipped: torch.Tensor, advantages: torch.Tensor, c: float) -> Clipped:
    """Limit each token's loss to -A c if A < 0. Returns the losses and `clipped` with the limited tokens added."""
    over = (advantages < 0) & (loss.detach() > -advantages * c)
    return (-advantages * c).where(over, loss), clipped | over


CLIPS: dict[str, Callable[..., Clipped]] = {f.__name__: f for f in (ppo, dual, cispo, aepo, unclipped)}
CLIP = Kind("clip", CLIPS)
