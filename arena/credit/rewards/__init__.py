"""Reward stages: each reads the named rewards so far and returns the columns that it adds or changes.

A stage is `stage(batch, rewards, *, settings) -> {name: [T] float64}`. `rewards` maps every name, the game's and those
of earlier stages, to a column over the batch's turns, 0 for turns without that reward. Stages run in the given order.
Weights (`credit.weights`) apply after all stages, and can scale and schedule a stage's reward by its name.
"""

from collections.abc import Callable

from arena.credit.batch import Floats
from arena.credit.rewards.attempts import attempts, margin, quality, repetition, self_correction, unary_decay
from arena.credit.rewards.belief import belief
from arena.credit.rewards.columns import Columns
from arena.credit.rewards.information_gain import information_gain
from arena.credit.rewards.judge import judge
from arena.credit.rewards.process import graded_failure, kl_penalty, pivotal, tool_bonus, tool_success
from arena.credit.rewards.reply import cut_off, format, length, overlong, valid_act
from arena.credit.rewards.reward_model import reward_model
from arena.credit.rewards.shaping import clip, dense, gate, outcome_only, shuffle
from arena.credit.rewards.units import unit
from arena.parts.part_config import Kind

Stage = Callable[..., dict[str, Floats]]
"""(TurnBatch, Columns, *, settings) -> added or changed columns."""

STAGES: dict[str, Stage] = {
    f.__name__: f
    for f in (
        valid_act, format, cut_off, length, overlong, unit,
        clip, gate, dense, outcome_only, shuffle,
        information_gain, tool_bonus, tool_success, graded_failure, pivotal, kl_penalty,
        unary_decay, repetition, attempts, self_correction, margin, quality, judge, reward_model, belief,
    )
}  # fmt: skip
STAGE = Kind("stage", STAGES)

__all__ = ["STAGE", "STAGES", "Columns", "Stage"]
