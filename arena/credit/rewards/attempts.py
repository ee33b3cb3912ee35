"""Rewards for repeated attempts: the turns of a trajectory are attempts at one answer, each right or wrong."""

from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from agents.patterns import Pattern
from arena.credit.batch import Floats, TurnBatch
from arena.credit.rewards.columns import Columns, Part, Regex, Text, get_column, get_text, put_on_last_turn, sum_earlier

Over = Literal["own", "match"]
"""Scope of earlier turns: the trajectory's own, or those of all seats of the match in the batch."""


def unary_decay(
    batch: TurnBatch, rewards: Columns, *, part: Part, base: Annotated[float, Field(ge=1)] = 2.0
) -> dict[str, Floats]:
    """Discount a right answer by its turn number k: divide the reward `part` by base^k, and set negative ones to 0.

    k is 0 at the trajectory's first turn. Replaces `part`. Source: UFO (Liu et al. 2025, unary feedback
    as observation), 2^-k; an unreadable answer counts as a turn there as well.
    """
    return {part: np.maximum(get_column(batch, rewards, part), 0.0) * base ** -batch.place.astype(np.float64)}


def repetition(
    batch: TurnBatch, rewards: Columns, *, weight: float = 0.5, text: Text = "action", pattern: Regex | None = None
) -> dict[str, Floats]:
    """Penalise repeated answers on the last turn: minus weight · (1 - E/T) for E different ones among T answers.

    Adds the reward `repetition`. An answer is the `text` of a valid turn, or with `pattern` the match of its first
    group (without groups, of the pattern); case and whitespace are ignored. 0 without answers. Source: UFO (Liu et al.
    2025); one of its released environments omits this penalty.
    """
    compiled = Pattern(pattern) if pattern is not None else None
    penalties = np.zeros(len(batch.lengths))
    for row, trajectory in enumerate(batch.trajectories):
        texts = (get_text(turn, text) for turn in trajectory.turns if turn.valid)
        answers = [answer for content in texts if (answer := _extract_answer(content, compiled)) is not None]
        if answers:
            penalties[row] = 1.0 - len(set(answers)) / len(answers)
    return {"repetition": -weight * put_on_last_turn(batch, penalties)}


def _extract_answer(text: str, pattern: Pattern | None) -> str | None:
    """Return the text, or its match of `pattern` (None without one), in lower case with single blanks."""
    if pattern is not None:
        answer = pattern.first(text)
        if answer is None:
            return None
        text = answer
    return " ".join(text.casefold().split())


def attempts(batch: TurnBatch, rewards: Columns, *, part: Part) -> dict[str, Floats]:
    """Split the reward `part` into `first_attempt` on a trajectory's first turn and `later_attempts` on the others.

    This allows different weights: SCoRe's stage one (Kumar et al. 2024) is `weights: {first_attempt: 0}` with the
    regulariser `kl: {turns: {"0": 0.5}}`, which holds the unrewarded first attempt in place. `part` becomes 0.
    """
    right, first = get_column(batch, rewards, part), batch.place == 0
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
    """Add the bonus α (r_2 - r_1) for a second attempt that is better than the first; r is the reward `part`.

    The attempts are a trajectory's first two turns; with one turn there is no bonus. A worse second attempt costs as
    much. `credited` selects the turns whose advantage includes it under an estimator of undiscounted returns (`gamma:
    1`): the `second` alone (also subtracted on the first, where it cancels), `both` attempts (paid on the second, so
    that it is in the return of each), or `all` turns (paid on the last). For estimators of whole trajectories `second`
    adds up to 0.

    Source: SCoRe (Kumar et al. 2024), α = 10, which adds the bonus to the reward of the second attempt; no code was
    released. Beware of `both` and `all`: the first attempt's return is r_1 + r_2 + α (r_2 - r_1), which pays it nothing
    for being right at α = 1, and beyond that pays for failing on purpose, unless something holds it in place (stage
    one's KL there). With `second` its return is r_1 + r_2.
    """
    right = get_column(batch, rewards, part)
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
    """Add the reward `margin`, α (R - Q): a turn's reward R, named `part`, minus its mean Q over earlier turns.

    Q is over turns with an earlier position in the trajectory, or with `over: match` in the match. 0 on first turns and
    if R equals Q. Source: MARTI (ICLR 2026), R + α (R - Q). Its released code averages over all agents' earlier rounds
    in a debate (`over: match`), and over the agent's own in a chain.
    """
    right, mean = _average_earlier(batch, rewards, part, over)
    return {"margin": alpha * np.where(batch.place > 0, right - mean, 0.0)}


def quality(
    batch: TurnBatch, rewards: Columns, *, part: Part, alpha: float = 0.5, over: Over = "own"
) -> dict[str, Floats]:
    """Add the reward `quality`, α (Q R - (1 - Q)(1 - R)): reward staying right and penalise staying wrong.

    R in [0, 1] is the reward `part`, Q and `over` are as for `margin`; 0 on first turns. The term is Q + R - 1: +1 for
    right after right, -1 for wrong after wrong, 0 for a change either way. Source: MARTI (ICLR 2026).
    """
    right, mean = _average_earlier(batch, rewards, part, over)
    change = mean * right - (1.0 - mean) * (1.0 - right)
    return {"quality": alpha * np.where(batch.place > 0, change, 0.0)}


def _average_earlier(batch: TurnBatch, rewards: Columns, part: str, over: Over) -> tuple[Floats, Floats]:
    """Return each turn's reward `part`, and its mean over earlier turns (0 without any), both [T]."""
    right = get_column(batch, rewards, part)
    units = batch.owner if over == "own" else batch.trajectory_groups(["match"])[batch.owner]
    sums, counts = sum_earlier(batch, right, units)
    return right, sums / np.maximum(counts, 1.0)
