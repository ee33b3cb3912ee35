"""Reward stages: each looks at the named rewards so far and returns the columns that it makes or changes.

A stage is `stage(batch, rewards, *, settings) -> {name: [T] float64}`; `rewards` maps every name, the game's and those
of earlier stages, to a column of the batch's turns, 0 where a turn did not get it. Stages run in the order given.
"""

from collections.abc import Callable, Mapping

from arena.credit.batch import Floats
from arena.credit.rewards.reply import overlong, valid_act

Columns = Mapping[str, Floats]
Stage = Callable[..., dict[str, Floats]]
"""(TurnBatch, Columns, *, settings) -> the columns it makes or changes."""

STAGES: dict[str, Stage] = {f.__name__: f for f in (valid_act, overlong)}

__all__ = ["STAGES", "Columns", "Stage"]
