"""Rewards for the form of a reply: whether it could be read, and how long it is."""

from collections.abc import Mapping
from typing import Annotated

import numpy as np
from pydantic import Field

from arena.credit.batch import Floats, TurnBatch


def valid_act(batch: TurnBatch, rewards: Mapping[str, Floats], *, bonus: float = 0.1) -> dict[str, Floats]:
    """`bonus` for every act that the game could read and allow."""
    return {"valid_act": bonus * batch.column(lambda turn: turn.valid)}


def overlong(
    batch: TurnBatch,
    rewards: Mapping[str, Floats],
    *,
    penalty: float = 0.1,
    free: Annotated[int, Field(ge=0)] | None = None,
) -> dict[str, Floats]:
    """`penalty` for a reply cut off by its token limit; with `free`, for every token beyond that many."""
    if free is None:
        return {"overlong": -penalty * batch.column(lambda turn: turn.finish == "length")}
    return {"overlong": -penalty * np.maximum(0.0, batch.column(lambda turn: turn.tokens) - free)}
