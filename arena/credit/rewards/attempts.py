"""Rewards for trying again: where the turns of a trajectory are attempts at one answer, each right or wrong."""

from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from agents.patterns import Pattern
from arena.credit.batch import Floats, TurnBatch
from arena.credit.rewards.columns import Columns, Part, Regex, Text, column, earlier, on_last, text_of

Over = Literal["own", "match"]
"""Whose earlier turns: the trajectory's own, or those of all seats of the match that are in the batch."""


def unary_decay(
    batch: TurnBatch, rewards: Columns, *, part: Part, base: Annotated[float, Field(ge=1)] = 2.0
) -> dict[str, Floats]:
    """A right answer is worth the less the later it comes: the part divided by base^place, 0 where it was not positive.

    r · base^-k with k = 0 at the trajectory's first turn. Takes the part's place. Source: UFO (Liu et al. 2025,
    unary feedback as observation), 2^-k; an unreadable answer counts as a turn there as well.
    """
    return {part: np.maximum(column(batch, rewards, part), 0.0) * base ** -batch.place.astype(np.float64)}


def repetition(
    batch: TurnBatch,
    rewards: Columns,
    *,
    weight: float = 0.5,
    text: Text = "action",
    pattern: Regex | None = None,
) -> dict[str, Floats]:
    """On the last turn minus weight · (1 - E/T): E different ones among the T answers that a trajectory gave.

    An answer is the `text` of a valid turn, or with `pattern` the part of it that the pattern's first group (without
    groups, the pattern) matches; case and blanks make no difference. 0 where nothing was answered. Source: UFO (Liu
    et al. 2025); one of its released environments leaves this penalty out.
    """
    read = Pattern(pattern) if pattern is not None else None
    penalties = np.zeros(len(batch.lengths))
    for row, trajectory in enumerate(batch.trajectories):
        texts = (text_of(turn, text) for turn in trajectory.turns if turn.valid)
        answers = [answer for content in texts if (answer := _answer(content, read)) is not None]
        if answers:
            penalties[row] = 1.0 - len(set(answers)) / len(answers)
    return {"repetition": -weight * on_last(batch, penalties)}


def _answer(text: str, read: Pattern | None) -> str | None:
    """The answer in a text, normalised; None where it holds none."""
    if read is not None:
        answer = read.first(text)
        if answer is None:
            return None
        text = answer
    return " ".join(text.casefold().split())


def attempts(batch: TurnBatch, rewards: Columns, *, part: Part) -> dict[str, Floats]:
    """The part under two names, `first_attempt` on a trajectory's first turn and `later_attempts` on the others.

    So that they can weigh differently: SCoRe's stage one (Kumar et al. 2024) is `weights: {first_attempt: 0}` with the
    regulariser `kl: {turns: {"0": 0.5}}`, which pins what earns nothing.
    """
    right, first = column(batch, rewards, part), batch.place == 0
    return {
        part: np.zeros(len(right)),
        "first_attempt": np.where(first, right, 0.0),
        "later_attempts": np.where(first, 0.0, right),
    }


def self_correction(
    batch: TurnBatch,
    rewards: Columns,
    *,
    part: Part,
    alpha: float = 10.0,
    credited: Literal["second", "both", "all"] = "second",
) -> dict[str, Floats]:
    """The bonus α (r_2 - r_1) for a second attempt that is better than the first, r the part that says how right.

    The attempts are a trajectory's first two turns; with one turn there is no bonus. `credited` says whose advantage
    is credited for it under an estimator of undiscounted returns (`gamma: 1`): the `second` alone (also taken from the
    first, which cancels it there), `both` attempts (paid on the second, so that it is in the return of each), or `all`
    turns (paid on the last). An estimator of whole trajectories tells no turns apart, and `second` is 0 to it.

    Source: SCoRe (Kumar et al. 2024), α = 10, which adds the bonus to the reward of the second attempt; no code was
    released. Beware of `both` and `all`: the first attempt's return is r_1 + r_2 + α (r_2 - r_1), which pays it nothing
    for being right at α = 1, and beyond that pays for failing on purpose, unless something holds it in place (stage
    one's KL there). With `second` its return is r_1 + r_2.
    """
    right = column(batch, rewards, part)
    first = np.flatnonzero((batch.place == 0) & ~batch.last)
    bonus = alpha * (right[first + 1] - right[first])
    values = np.zeros(len(right))
    if credited == "all":
        values[batch.starts[batch.owner[first] + 1] - 1] = bonus
    else:
        values[first + 1] = bonus
        values[first] = -bonus if credited == "second" else 0.0
    return {"self_correction": values}


def margin(
    batch: TurnBatch, rewards: Columns, *, part: Part, alpha: float = 0.5, over: Over = "own"
) -> dict[str, Floats]:
    """α (R - Q): how much better a turn is than the mean Q of the earlier ones, besides the part itself.

    R is the turn's part, Q its mean over turns of an earlier place; 0 on first turns. Source: MARTI (ICLR 2026),
    R + α (R - Q). Its released code averages over all agents' earlier rounds in a debate (`over: match`), over the
    own ones in a chain. Zero where a turn equals the earlier mean.
    """
    right, mean = _with_earlier_mean(batch, rewards, part, over)
    return {"margin": alpha * np.where(batch.place > 0, right - mean, 0.0)}


def quality(
    batch: TurnBatch, rewards: Columns, *, part: Part, alpha: float = 0.5, over: Over = "own"
) -> dict[str, Floats]:
    """α (Q R - (1 - Q)(1 - R)): keeping what was right so far pays, staying wrong costs; besides the part itself.

    R in [0, 1] and Q as for `margin`; 0 on first turns. The term is Q + R - 1: +1 for right after right, -1 for wrong
    after wrong, 0 for a change either way. Source: MARTI (ICLR 2026); `over` as for `margin`.
    """
    right, mean = _with_earlier_mean(batch, rewards, part, over)
    change = mean * right - (1.0 - mean) * (1.0 - right)
    return {"quality": alpha * np.where(batch.place > 0, change, 0.0)}


def _with_earlier_mean(batch: TurnBatch, rewards: Columns, part: str, over: Over) -> tuple[Floats, Floats]:
    """[T] a part, and its mean over the turns of an earlier place; 0 for first turns."""
    right = column(batch, rewards, part)
    units = batch.owner if over == "own" else batch.trajectory_groups(["match"])[batch.owner]
    sums, counts = earlier(batch, right, units)
    return right, sums / np.maximum(counts, 1.0)
