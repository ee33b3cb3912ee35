"""Transforms: from one advantage per token to another, after the estimator, in the order given.

A transform is `transform(batch, advantages, *, settings) -> [N] float64`, both of all sampled tokens.
"""

from collections.abc import Callable

import numpy as np

from arena.credit.batch import Floats, TurnBatch

Transform = Callable[..., Floats]
"""(TurnBatch, [N] advantages, *, settings) -> [N] advantages."""


def whiten(batch: TurnBatch, advantages: Floats) -> Floats:
    """Every token's advantage minus the mean over all tokens of the batch, divided by their deviation + 1e-6."""
    if not len(advantages):
        return advantages
    return np.asarray((advantages - advantages.mean()) / (advantages.std() + 1e-6))


TRANSFORMS: dict[str, Transform] = {f.__name__: f for f in (whiten,)}
