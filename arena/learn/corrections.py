"""Importance weights for tokens that were sampled by other weights or another program than the trainer's.

A correction is `correction(tokens, *, settings) -> [N] float`, a weight on each token's loss, without gradient, from ρ
= π_old/μ: `tokens.old` is the trainer's log-probability at the start of the update, `tokens.behaviour` the sampler's.
It corrects for staleness and for numerical differences between sampler and trainer; clips limit changes within the
update. For large differences, raise `learn.gate_tolerance` too.

A token of weight 0 still counts in the aggregate's mean, as in TRL; verl does not count it. Regularisers are not
weighted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from arena.learn.batches import Level, TokenBatch
from arena.parts.part_config import Kind

if TYPE_CHECKING:
    import torch

Bound = Annotated[float, Field(gt=0)]


def uncorrected(tokens: TokenBatch) -> torch.Tensor:
    """Apply no correction: weight 1 for every token."""
    return tokens.old.new_ones(len(tokens.old))


def truncated(tokens: TokenBatch, *, cap: Bound = 2.0, level: Level = "token") -> torch.Tensor:
    """Weight by truncated importance sampling: min(ρ, cap), ρ of the token, or the product over its turn or stream.

    ρ = p trainer / p sampler. By token it is biased with low variance, by stream unbiased except for the cap, with a
    variance that grows with length: at 1.1 a token, 10 tokens make 2.6 and 100 make 13,781. log ρ is clamped to ±20.
    cap: 2 in TIS (Yao et al. 2025), MARTI and verl's examples, 1 by token in DART-GUI, 3 in TRL. 1 everywhere if
    sampler and trainer agree.
    """
    return _exponentiate(tokens.sum_by(tokens.units(level), _compute_log_ratios(tokens))).clamp(max=cap)


def masked(
    tokens: TokenBatch,
    *,
    low: Annotated[float, Field(ge=0)],
    high: Bound,
    level: Level = "sequence",
    by: Literal["mean", "product", "worst"] = "mean",
    weigh: bool = False,
) -> torch.Tensor:
    """Mask tokens, turns or streams whose ρ is outside [low, high] with weight 0; the others weigh 1.

    ρ = p trainer / p sampler. The bounds apply, over the unit's tokens in the loss, to the geometric mean of ρ (`by:
    mean`), the product, or every single token (`worst`). With `weigh`, unmasked tokens are weighted by that value, or
    with `worst` by their own ρ.

    | as published | settings |
    |---|---|
    | IcePop (Ling team 2025; prime-rl's low is .2) | level token, low .5, high 5, weigh |
    | geometric mask (verl's Geo-RS) | level sequence, by mean, .999 to 1.001 |
    | Seq-MIS (Liu et al. 2025), TRL's default | level sequence, by product, low 0, high 3, weigh |

    By product, long streams are masked first, whatever their tokens; by mean, length has no effect. Zero if the whole
    step is outside: then there is nothing to learn from.
    """
    gap, units = _compute_log_ratios(tokens), tokens.units(level)
    if by == "mean":
        gap = tokens.mean_by(units, gap)
    elif by == "product":
        gap = tokens.sum_by(units, gap)
    ratio = _exponentiate(gap)
    outside = (ratio < low) | (ratio > high)
    if by == "worst":
        outside = tokens.sum_by(units, outside.to(ratio.dtype)) > 0
    return (ratio if weigh else ratio.new_ones(len(ratio))).masked_fill(outside, 0.0)


def _compute_log_ratios(tokens: TokenBatch) -> torch.Tensor:
    """Return each token's log ρ, [N]: the trainer's log p before the update minus the sampler's, without gradient."""
    return (tokens.old - tokens.behaviour).detach()


def _exponentiate(gap: torch.Tensor) -> torch.Tensor:
    return gap.clamp(-20.0, 20.0).exp()


CORRECTIONS: dict[str, Callable[..., torch.Tensor]] = {f.__name__: f for f in (uncorrected, truncated, masked)}
CORRECTION = Kind("correction", CORRECTIONS)
