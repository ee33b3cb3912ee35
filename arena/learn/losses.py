"""Losses: one number per sampled token, to be minimised.

A loss is `loss(tokens, *, settings) -> TokenLoss`. The aggregate weights the tokens' losses in their sum.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from arena.learn.batches import Level, TokenBatch
from arena.learn.clips import CLIP
from arena.learn.corrections import CORRECTION
from arena.parts.part_config import Kind, PartConfig, needs

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class TokenLoss:
    """Result of a loss function: each token's loss, and for metrics the mask of clipped tokens and the correction."""

    loss: torch.Tensor
    """[N] float, to be minimised."""
    clipped: torch.Tensor
    """[N] bool, True if the clip changed the gradient."""
    correction: torch.Tensor | None = None
    """[N] float, the correction's weight on each token, if the loss has one."""


def policy_gradient(
    tokens: TokenBatch,
    *,
    ratio: Level = "token",
    clip: Annotated[PartConfig, CLIP] = PartConfig(CLIP, "ppo"),
    correction: Annotated[PartConfig, CORRECTION] = PartConfig(CORRECTION, "uncorrected"),
) -> TokenLoss:
    """Compute the policy-gradient loss by importance ratio (token, turn or sequence), with a clip and a correction.

    Each token's loss is w · clip(r, A), r by `ratio` as in `importance_ratio`, w a `correction` without gradient.

    | as published | settings |
    |---|---|
    | PPO, GRPO | ratio token, clip ppo .2/.2; GRPO aggregates by `stream_mean`, Dr. GRPO by `constant_length` |
    | DAPO | ratio token, clip ppo .2/.28 (verl adds c = 10: clip dual), aggregate `token_mean` |
    | GSPO | ratio sequence, clip ppo 3e-4/4e-4, aggregate `stream_mean` |
    | LUSPO | ratio sequence, clip ppo 2e-3/2.5e-3, aggregate `constant_length` with length 1 |
    | CISPO | ratio token, clip cispo, aggregate `token_mean` |
    | DART-GUI | ratio sequence, clip ppo .1/.28, correction truncated at 1 by token, aggregate `stream_mean` |
    | REINFORCE | clip unclipped |

    Zero if A = 0; no gradient if a clip binds (not with cispo, nor above with aepo) or a correction masks.
    """
    loss, clipped = clip(importance_ratio(tokens, ratio), tokens)
    weight = correction(tokens)
    return TokenLoss(loss * weight, clipped, weight)


def importance_ratio(tokens: TokenBatch, level: Level) -> torch.Tensor:
    """Return each token's importance ratio, or the geometric mean of its turn's or stream's; [N], with gradient.

    By token r = π/π_old. By turn and by sequence it is the geometric mean s = exp(mean log r) over the unit's tokens in
    the loss, in GSPO's form for tokens, sg(s) · π/sg(π): every token has the value s, and the gradient s ∇log π of its
    own probability. If a unit's tokens share their advantage and weight, the sum of the unit's losses has exactly the
    gradient of the loss at s; otherwise each token is moved by its own advantage.

    Noise of +5 nats on one token of 500 makes its r 148, and s = exp(.01) = 1.01. log r, or its mean, is clamped to
    ±20, where exp still fits float32; beyond, there is no gradient. Source: GSPO (Zheng et al. 2025), eq. 7 and 13; by
    turn is the same with another unit. verl bounds a sequence's log s by 10, TRL does not bound it.
    """
    change = tokens.logprobs - tokens.old
    if level != "token":
        mean = tokens.mean_by(tokens.units(level), change.detach())
        change = tokens.logprobs - tokens.logprobs.detach() + mean
    return change.clamp(-20.0, 20.0).exp()


def likelihood(tokens: TokenBatch) -> TokenLoss:
    """Compute the advantage-weighted negative log-likelihood of each token, -A log p; with A = 1 it is imitation."""
    return TokenLoss(-tokens.advantages * tokens.logprobs, tokens.learned.new_zeros(len(tokens.learned)))


@needs("pairs")
def refuel(tokens: TokenBatch, *, eta: Annotated[float, Field(gt=0)] = 1.0) -> TokenLoss:
    """REFUEL: regress the difference of two replies' log-ratios on the difference of their returns.

    For replies y, y' of one seat to the same messages: (δ - δ' - η (R - R'))², δ = log π(y) - log π_old(y) summed over
    that turn's tokens. Its minimiser over policies is π ∝ π_old exp(η Q), without any value function. Needs the part
    `branches`, the estimator `refuel` (A = R - R') and the aggregate `turn_mean`; the objective is then the mean over
    pairs. Every token of a turn has the pair's loss. δ' is a constant here, because y' has its own tokens and gradient.
    Each of the two turns therefore needs twice the gradient: the value is gap², the gradient that of 2 gap².

    No gradient if δ - δ' = η (R - R'); in the first step, where δ = δ' = 0, that is for equal returns. Pairs of
    identical replies are dropped, because δ = δ' whatever the weights. η: 1 in the released code; 1e3 in its README's
    first run, where R is ArmoRM's score. Source: Gao et al. 2024, "Regressing the Relative Future".
    """
    assert tokens.rivals is not None
    own = tokens.sum_by(tokens.turns, tokens.logprobs - tokens.old)
    gap = own - tokens.rivals - eta * tokens.advantages
    return TokenLoss(2.0 * gap**2 - gap.detach() ** 2, tokens.learned.new_zeros(len(tokens.learned)))


def dpo(
    tokens: TokenBatch, *, beta: Annotated[float, Field(gt=0)] = 0.1, reference: Literal["update", "initial"] = "update"
) -> TokenLoss:
    """DPO: prefer the reply with the higher return to the other reply to the same messages.

    -log σ(β (δ_w - δ_l)), w the reply with A > 0, δ as in `refuel`. The reference of δ is the policy at the start of
    the update (online DPO, REFUEL's baseline) or, with `initial`, the frozen reference weights. Has `refuel`'s
    requirements and doubled gradient; pairs of a data set need no branches. Uses only the order of the returns. 0 for
    equal returns (A = 0), in value and gradient. Source: Rafailov et al. 2023; on pairs of finished continuations as
    the "DPO" runs of Gao et al. 2024.
    """
    import torch

    base = tokens.old if reference == "update" else tokens.reference
    assert tokens.rivals is not None and base is not None
    own, sign = tokens.sum_by(tokens.turns, tokens.logprobs - base), tokens.advantages.sign()
    loss = -sign.abs() * torch.nn.functional.logsigmoid(beta * sign * (own - tokens.rivals))
    return TokenLoss(2.0 * loss - loss.detach(), torch.zeros_like(tokens.learned))


dpo.needs = lambda *, beta, reference: ("pairs",) if reference == "update" else ("pairs", "reference")  # type: ignore[attr-defined]


@needs("baselines", "reference")
def kto(
    tokens: TokenBatch,
    *,
    beta: Annotated[float, Field(gt=0)] = 0.1,
    desirable: Annotated[float, Field(ge=0)] = 1.0,
    undesirable: Annotated[float, Field(ge=0)] = 1.0,
) -> TokenLoss:
    """KTO: raise the probability of completions labelled desirable (A > 0), and lower that of others.

    λ_d (1 - σ(β (δ - z))) if desirable, else λ_u (1 - σ(β (z - δ))), δ = log π(y) - log π_ref(y) summed over the
    completion. The constant z estimates the KL as the mean of δ over the step's mismatched completions, at least 0.
    Needs labelled completions of a data set and the aggregate `turn_mean`. Source: Ethayarajh et al. 2024, eq. 7 and 8,
    as in TRL's KTOTrainer.
    """
    assert tokens.rivals is not None and tokens.reference is not None
    sign = tokens.advantages.sign()
    gap = tokens.sum_by(tokens.turns, tokens.logprobs - tokens.reference) - tokens.rivals
    weight = (sign > 0).float() * desirable + (sign < 0).float() * undesirable
    loss = weight * (1.0 - (beta * sign * gap).sigmoid())
    return TokenLoss(loss, tokens.learned.new_zeros(len(tokens.learned)))


LOSSES: dict[str, Callable[..., TokenLoss]] = {f.__name__: f for f in (policy_gradient, likelihood, refuel, dpo, kto)}
LOSS = Kind("loss", LOSSES)
