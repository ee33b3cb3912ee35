"""Advantage estimators: from turn rewards to one advantage per turn or token. A plug-in is one function and its name.

An estimator is `estimator(batch, rewards, *, settings) -> [T] float64`, or `TokenAdvantages` if it distinguishes the
tokens of a turn. Group statistics come from the batch, which applies the selection.
"""

from arena.credit.batch import TokenAdvantages, TurnBatch
from arena.credit.estimators.archer import archer
from arena.credit.estimators.combined import weighted_sum
from arena.credit.estimators.controls import regrouped, shuffled, zero
from arena.credit.estimators.gae import gae_bilevel, gae_token, gae_turn
from arena.credit.estimators.group_relative import at_grpo, dr_grpo, grpo, reinforce_pp, rloo
from arena.credit.estimators.likelihood import epo_weighted
from arena.credit.estimators.mars import mars, mars_released
from arena.credit.estimators.refuel import refuel
from arena.credit.estimators.reinforce import reinforce
from arena.credit.estimators.role_baseline import rae
from arena.credit.estimators.steps import gigpo, step_episode
from arena.credit.estimators.table import ESTIMATOR, ESTIMATORS, Estimator
from arena.credit.estimators.tree import tree

ESTIMATORS |= {
    f.__name__: f
    for f in (
        *(mars, mars_released, rae, reinforce),
        *(grpo, dr_grpo, rloo, reinforce_pp, at_grpo, tree),
        *(gigpo, step_episode, epo_weighted, refuel),
        *(gae_turn, gae_token, gae_bilevel, archer),
        *(weighted_sum, shuffled, regrouped, zero),
    )
}

__all__ = ["ESTIMATOR", "ESTIMATORS", "Estimator", "TokenAdvantages", "TurnBatch"]
