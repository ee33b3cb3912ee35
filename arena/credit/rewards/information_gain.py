"""Information gain: reward turns by the growth of the policy's own belief in the right answer."""

from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple

import numpy as np
from pydantic import Field

from arena.credit.batch import Floats, Key, TurnBatch
from arena.credit.rewards.columns import Columns, Part, get_column, put_on_last_turn
from arena.credit.rewards.shaping import DEAL
from arena.parts.part_config import PartConfig, needs


class Gold(NamedTuple):
    """Settings for the right answer: the match report's entry that holds it, and the text to put before it."""

    entry: str
    """Entry of the match's report."""
    before: str
    """Text before the answer, as part of the policy's own reply."""


def find_gold(stages: Sequence[PartConfig]) -> Gold | None:
    """Return the stages' common setting of `gold`; None if no stage needs it. Raises ValueError if two differ."""
    settings_of_stages = [stage.with_defaults().settings for stage in stages if "gold" in stage.needs]
    golds = {Gold(settings["gold"], settings["before"]) for settings in settings_of_stages}
    if len(golds) > 1:
        raise ValueError("two stages ask for the right answer differently: give both the same `gold` and `before`")
    return golds.pop() if golds else None


@needs("gold")
def information_gain(
    batch: TurnBatch,
    rewards: Columns,
    *,
    outcome: Part,
    gold: Annotated[str, Field(min_length=1)] = "answer",
    before: str = "The answer is ",
    unit: Literal["probability", "log_probability"] = "probability",
    normalise: Literal["joint", "separate", "none"] = "joint",
    by: list[Key] = DEAL,
) -> dict[str, Floats]:
    """Reward each turn by its gain in the policy's belief in the right answer; the outcome stays on the last turn.

    IG_k = P_{k+1} - P_k for all turns but the last, k from 0, with P_k = exp(mean log-probability of the answer's
    tokens) before turn k: P_0 after the bare prompt, P_{k+1} after the response to turn k. Gains sum to P_last - P_0.
    The last turn, after which there is no observation, has the outcome alone. With `unit: log_probability`, differences
    of logarithms. Adds the reward `information_gain` and replaces the reward `outcome`.

    The answer is the entry `gold` of the match's report, scored after the fixed text `before` in the policy's own reply
    (`arena.credit.gold`): one forward pass per turn, no gradient. `normalise` subtracts the mean over the group `by`
    from gains and outcomes and divides by the deviation + 1e-6: `joint` over both together, `separate` over each kind.
    Both whiten, so use the estimator `reinforce`, which subtracts no further mean.

    Source: IGPO (Wang et al. 2025), "joint" being its released default, deviation sqrt(var + 1e-8) + 1e-6. There a gain
    of exactly 0 is left out of the statistics and ends no turn, so that the turn's tokens get the next one's advantage;
    here turn numbers separate turns. There the answer is in think and answer tags, and a malformed reply's outcome is
    -2 (the reward stage `format`). Gains are zero if the policy's belief never changes; with `joint` and `separate` so
    are all rewards of a group with a single value.
    """
    belief = batch.measure("gold")
    if unit == "probability":
        belief = np.exp(belief)
    open_turns = ~batch.last
    rows = np.flatnonzero(open_turns)
    gains, ends = np.zeros(len(belief)), put_on_last_turn(batch, batch.totals(get_column(batch, rewards, outcome)))
    gains[rows] = belief[rows + 1] - belief[rows]
    if normalise != "none":
        groups = batch.groups(by) * 2 + (batch.last if normalise == "separate" else 0)
        scores = _standardise(batch, gains + ends, groups)
        gains, ends = np.where(open_turns, scores, 0.0), np.where(open_turns, 0.0, scores)
    return {"information_gain": gains, outcome: ends}


def _standardise(batch: TurnBatch, values: Floats, groups: np.ndarray) -> Floats:
    return (values - batch.mean_by(values, groups)) / (batch.std_by(values, groups) + 1e-6)
