"""Controls: what learning looks like when credit says nothing."""

from typing import Annotated

import numpy as np

from arena.credit.batch import Floats, Ints, Key, TurnBatch
from arena.credit.estimators.mars import AGENT
from arena.credit.estimators.table import ESTIMATOR
from arena.credit.tokens import TokenAdvantages
from arena.parts.chosen import Chosen


def zero(batch: TurnBatch, rewards: Floats) -> Floats:
    """The control that learns nothing: every turn is worth 0."""
    return np.zeros(len(rewards))


def shuffled(
    batch: TurnBatch,
    rewards: Floats,
    *,
    of: Annotated[Chosen, ESTIMATOR] = Chosen(ESTIMATOR, "mars"),
    by: list[Key] = AGENT,
) -> Floats | TokenAdvantages:
    """The matched-random control: another estimator's advantages, permuted over the turns of each group.

    Numbers stay within their group (`by`), so their mean and spread there are those of the estimator `of`, and only
    which turn gets which is broken. Where tokens differ, a turn takes over the tokens of the turn it draws, stretched
    or shortened to its own length. The same seed deals the same. Zero as often as the estimator's own.
    """
    estimate, groups = of(batch, rewards), batch.groups(by)
    if not isinstance(estimate, TokenAdvantages):
        return np.asarray(estimate[_dealt(batch, np.arange(len(groups)), groups)])
    spoken = np.flatnonzero(batch.turn_tokens > 0)
    source = np.arange(len(groups))
    source[spoken] = _dealt(batch, spoken, groups[spoken])
    order = np.argsort(batch.token_turns, kind="stable")  # turn by turn, as streams need not be
    starts = np.cumsum(batch.turn_tokens) - batch.turn_tokens
    turns = batch.token_turns[order]
    place = np.arange(len(order)) - starts[turns]
    drawn = source[turns]
    values = np.empty(len(order))
    values[order] = estimate.values[order][
        starts[drawn] + place * batch.turn_tokens[drawn] // np.maximum(batch.turn_tokens[turns], 1)
    ]
    return TokenAdvantages(values)


def _dealt(batch: TurnBatch, rows: Ints, groups: Ints) -> Ints:
    """The same rows, dealt at random within each group."""
    dealt = np.empty_like(rows)
    dealt[np.argsort(groups, kind="stable")] = rows[np.lexsort((batch.rng.random(len(rows)), groups))]
    return dealt
