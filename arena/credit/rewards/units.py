"""The stage `unit`, which keeps replies to one unit of thought each."""

from typing import Annotated

import numpy as np
from pydantic import Field

from agents.patterns import Pattern
from arena.credit.batch import Floats, TurnBatch
from arena.credit.rewards.columns import Columns, Regex


def unit(
    batch: TurnBatch,
    rewards: Columns,
    *,
    pattern: Regex = r"\\boxed\{",
    penalty: Annotated[float, Field(ge=0)] = 1.0,
) -> dict[str, Floats]:
    """Subtract `penalty` for a turn with several attempts, as the reward `unit`.

    An attempt is a match of `pattern` in the raw reply, such as a boxed answer. Source: MinD (Zeng et al. 2025), whose
    reward is format + accuracy + this term; reviewers found that replies shorten without it, too.
    """
    attempts = Pattern(pattern)
    several = batch.column(lambda turn: len(attempts.ends(turn.raw)) > 1)
    return {"unit": np.where(several > 0, -penalty, 0.0)}
