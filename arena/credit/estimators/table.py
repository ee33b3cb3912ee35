"""The table of estimators, in a separate module because combined estimators refer to it."""

from collections.abc import Callable

from arena.credit.batch import Floats, TokenAdvantages
from arena.parts.part_config import Kind

Estimator = Callable[..., Floats | TokenAdvantages]
"""(TurnBatch, [T] turn rewards, *, settings) -> [T] advantages, or one per token."""

ESTIMATORS: dict[str, Estimator] = {}
ESTIMATOR = Kind("estimator", ESTIMATORS)
