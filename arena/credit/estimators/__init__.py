"""Advantage estimators: from turn rewards to what each turn, or each token, was worth. One function and its name.

An estimator is `estimator(batch, rewards, *, settings) -> [T] float64`, or `TokenAdvantages` where it tells the tokens
of a turn apart. Groups and their statistics come from the batch, which leaves out what selection took out of them.
"""

from collections.abc import Callable

from arena.credit.batch import Floats, TurnBatch
from arena.credit.estimators.controls import shuffled, zero
from arena.credit.estimators.mars import mars
from arena.credit.tokens import TokenAdvantages

Estimator = Callable[..., Floats | TokenAdvantages]
"""(TurnBatch, [T] turn rewards, *, settings) -> [T] advantages, or one per token."""

ESTIMATORS: dict[str, Estimator] = {f.__name__: f for f in (mars, zero, shuffled)}

__all__ = ["ESTIMATORS", "Estimator", "TokenAdvantages", "TurnBatch"]
