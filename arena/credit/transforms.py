"""Transforms of token advantages, applied after the estimator in the given order.

A transform is `transform(batch, advantages, *, settings) -> [N] float64`, over all sampled tokens.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated

import numpy as np
from pydantic import Field

from arena.credit.batch import Floats, Key, TurnBatch, standardise_tokens
from arena.credit.branches import average_over_copies
from arena.parts.part_config import Kind, PartConfig, needs

Transform = Callable[..., Floats]
"""(TurnBatch, [N] advantages, *, settings) -> [N] advantages."""
POLICY: list[Key] = ["policy"]
"""Group by policy: all tokens that one policy learns from in this iteration."""
Positive = Annotated[float, Field(gt=0)]


def whiten(batch: TurnBatch, advantages: Floats, *, by: list[Key] = POLICY) -> Floats:
    """Standardise token advantages over all tokens of the policy: (A - mean) / (deviation + 1e-6).

    With `by` over the tokens of turns in the same group; longer turns weigh more. Zero if all are equal.
    """
    return standardise_tokens(batch, advantages, by)


@needs("entropy")
def entropy_scale(batch: TurnBatch, advantages: Floats, *, alpha: float = 0.2, by: list[Key] = POLICY) -> Floats:
    """AEPO: scale advantages up at uncertain tokens, A' = A · (1 + alpha · z(H)), z over the policy's tokens.

    H is the entropy of the distribution from which a token was drawn, computed before the update and without gradient.
    Advantages of tokens more than 1/alpha deviations below the mean change sign. Zero if A is. Source: AEPO (Dong et
    al. 2025); its release computes z within each micro-batch of the update, with the current weights.
    """
    return advantages * (1.0 + alpha * standardise_tokens(batch, batch.measure("entropy"), by))


def shared_prefix(batch: TurnBatch, advantages: Floats) -> Floats:
    """ARPO: average the advantages of each token over the match and the branches that share it.

    The sum over a token's copies is unchanged, so the gradient is too, unless a ratio is clipped. Source: ARPO (Dong et
    al. 2025), "hard" attribution; its release leaves each copy its own advantage ("soft").
    """
    return average_over_copies(batch, advantages)


def exponential(batch: TurnBatch, advantages: Floats, *, beta: Positive = 1.0, most: Positive = 20.0) -> Floats:
    """AWR: turn advantages into weights of imitation, min(exp(A / beta), most), for `loss: likelihood`.

    The update is then a regression on the turns, weighted by how good they were. It solves the problem of maximising
    the return with a penalty of `beta` on the KL to the policy that sampled the turns, so it needs no importance
    weights. A = 0 weighs 1: after the estimator `zero` it is behaviour cloning, which a large `beta` approaches.
    Weights are positive; the bound `most` binds at A = beta · log(most). Source: AWR (Peng et al. 2019), bound 20; IQL
    (Kostrikov et al. 2021) extracts its policy in the same way.
    """
    return np.minimum(np.exp(np.minimum(advantages / beta, 700.0)), most)


TRANSFORMS: dict[str, Transform] = {}
TRANSFORM = Kind("transform", TRANSFORMS)


def dealt_measures(
    batch: TurnBatch,
    advantages: Floats,
    *,
    of: Annotated[PartConfig, TRANSFORM] = PartConfig(TRANSFORM, "entropy_scale"),
    by: list[Key] = POLICY,
) -> Floats:
    """Control: apply another transform with its measures permuted among tokens of the same group (`by`).

    Each token gets the entropy of a random other token, so the amount of scaling is the same but placed at random.
    """
    permutation = batch.permute_within(np.arange(len(advantages)), batch.groups(by)[batch.token_turns])
    measures = {name: [batch.measure(name)[permutation].astype(np.float32)] for name in of.needs}
    return of(replace(batch, measures={**batch.measures, **measures}), advantages)  # type: ignore[no-any-return]


TRANSFORMS |= {f.__name__: f for f in (whiten, entropy_scale, shared_prefix, exponential, dealt_measures)}
