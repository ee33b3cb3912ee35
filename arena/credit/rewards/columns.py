"""Setting types of reward stages, and conversions between turns and trajectories."""

from collections.abc import Mapping
from typing import Annotated, Literal

import numpy as np
from pydantic import AfterValidator, Field

from agents.patterns import Pattern
from arena.credit.batch import Bools, Floats, Ints, TurnBatch
from arena.parts.part_config import RewardName
from arena.records import Turn

Columns = Mapping[str, Floats]
"""The named rewards so far, [T] each."""


def _check_pattern(pattern: str) -> str:
    Pattern(pattern)
    return pattern


Part = Annotated[str, Field(min_length=1), RewardName()]
"""Name of a reward, the game's or an earlier stage's."""
Regex = Annotated[str, AfterValidator(_check_pattern)]
"""A Python regular expression, searched for anywhere in a text."""
Text = Literal["raw", "action", "public", "private"]
"""Texts of a turn: the raw reply, the parsed action, the public part, the private part."""


def get_column(batch: TurnBatch, rewards: Columns, part: str) -> Floats:
    """Return the named reward `part` of each turn, [T]; zeros if no turn of this iteration has it."""
    return rewards[part] if part in rewards else np.zeros(len(batch.owner))


def match_turns(batch: TurnBatch, pattern: str, text: Text) -> Bools:
    """Return a mask of turns, [T], True if the regular expression matches anywhere in the turn's text `text`."""
    compiled = Pattern(pattern)
    return batch.column(lambda turn: get_text(turn, text) in compiled) > 0


def get_text(turn: Turn, text: Text) -> str:
    """Return the turn's text `text`, such as its `raw` reply."""
    value: str = getattr(turn, text)
    return value


def put_on_last_turn(batch: TurnBatch, values: Floats) -> Floats:
    """Return each trajectory's value on its last turn and 0 on the others ([M] to [T])."""
    return np.where(batch.last, values[batch.owner], 0.0)


def sum_earlier(batch: TurnBatch, values: Floats, units: Ints) -> tuple[Floats, Floats]:
    """Return, for each turn, the sum of values over the earlier turns of its unit, and their number, both [T].

    `units` has a number per turn, such as that of its trajectory or match.
    """
    width = int(batch.place.max(initial=-1)) + 1
    cells, rows = units * width + batch.place, int(units.max(initial=-1)) + 1

    def sum_before(weights: Floats) -> Floats:
        table = np.zeros((rows, width + 1))
        table[:, 1:] = np.bincount(cells, weights, rows * width).reshape(rows, width).cumsum(1)
        sums: Floats = table[units, batch.place]
        return sums

    return sum_before(values), sum_before(np.ones(len(values)))
