"""Transforms: from one advantage per token to another, after the estimator, in the order given.

A transform is `transform(batch, advantages, *, settings) -> [N] float64`, both of all sampled tokens.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated

import numpy as np

from arena.credit.batch import Floats, Key, TurnBatch
from arena.credit.branches import over_copies
from arena.credit.tokens import z_scores
from arena.parts.chosen import Chosen, Kind, needs

Transform = Callable[..., Floats]
"""(TurnBatch, [N] advantages, *, settings) -> [N] advantages."""
POLICY: list[Key] = ["policy"]
"""All that one policy learns from in this iteration."""


def whiten(batch: TurnBatch, advantages: Floats, *, by: list[Key] = POLICY) -> Floats:
    """Every token's advantage minus the mean over all tokens of its policy, divided by their deviation + 1e-6.

    With `by` over the tokens of turns alike in that; longer turns weigh more. Zero where all are equal.
    """
    return z_scores(batch, advantages, by)


@needs("entropy")
def entropy_scale(batch: TurnBatch, advantages: Floats, *, alpha: float = 0.2, by: list[Key] = POLICY) -> Floats:
    """AEPO: louder where the policy was unsure, A' = A · (1 + alpha · z(H)), z over all tokens of its policy.

    H is the entropy of the distribution each token was drawn from, before the update, and a constant to it. Advantages
    of tokens more than 1/alpha deviations below the mean turn round. Zero where A is. Source: AEPO (Dong et al. 2025);
    its release takes z within each micro-batch of the update, with the weights of that moment.
    """
    return advantages * (1.0 + alpha * z_scores(batch, batch.measure("entropy"), by))


def shared_prefix(batch: TurnBatch, advantages: Floats) -> Floats:
    """ARPO: what a match and its branches share has the mean of their advantages; nothing else changes.

    Over the copies of a token the sum stays as it was, so that the gradient does, too, as long as no ratio is clipped.
    Source: ARPO (Dong et al. 2025), "hard" attribution; its release leaves to each copy its own ("soft").
    """
    return over_copies(batch, advantages)


TRANSFORMS: dict[str, Transform] = {}
TRANSFORM = Kind("transform", TRANSFORMS)


def dealt_measures(
    batch: TurnBatch,
    advantages: Floats,
    *,
    of: Annotated[Chosen, TRANSFORM] = Chosen(TRANSFORM, "entropy_scale"),
    by: list[Key] = POLICY,
) -> Floats:
    """The random counterpart of weighing by a measure: another transform, its measures dealt among alike tokens (`by`).

    Each token gets the entropy of another one, so that as much is weighed and as strongly, but anywhere.
    """
    dealt = batch.dealt(np.arange(len(advantages)), batch.groups(by)[batch.token_turns])
    measures = {name: [batch.measure(name)[dealt].astype(np.float32)] for name in of.needs}
    return of(replace(batch, measures={**batch.measures, **measures}), advantages)  # type: ignore[no-any-return]


TRANSFORMS |= {f.__name__: f for f in (whiten, entropy_scale, shared_prefix, dealt_measures)}
