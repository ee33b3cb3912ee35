"""Control estimators, whose advantages carry no information."""

from dataclasses import replace
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from arena.credit.batch import Floats, Key, TokenAdvantages, TrajectoryKey, TurnBatch
from arena.credit.estimators.mars import AGENT
from arena.credit.estimators.steps import get_situations
from arena.credit.estimators.table import ESTIMATOR
from arena.parts.part_config import PartConfig

Label = Literal["game", "seat", "role", "situation"]
"""Properties of turns that estimators compare by."""
SEAT: list[Label] = ["seat"]
POLICY: list[TrajectoryKey] = ["policy"]


def zero(batch: TurnBatch, rewards: Floats) -> Floats:
    """Control without learning: return an advantage of 0 for every turn."""
    return np.zeros(len(rewards))


def shuffled(
    batch: TurnBatch,
    rewards: Floats,
    *,
    of: Annotated[PartConfig, ESTIMATOR] = PartConfig(ESTIMATOR, "mars"),
    by: list[Key] = AGENT,
) -> Floats | TokenAdvantages:
    """Permute another estimator's advantages at random over the turns of each group: a matched random control.

    Values stay within their group (`by`), so mean and spread are those of the estimator `of`, and only the assignment
    to turns is random. With token advantages a turn gets the values of another turn's tokens, stretched to its own
    length. The same seed gives the same permutation. As many turns have advantage zero as with `of`.
    """
    estimate, groups = of(batch, rewards), batch.groups(by)
    if not isinstance(estimate, TokenAdvantages):
        return np.asarray(estimate[batch.permute_within(np.arange(len(groups)), groups)])
    turns_with_tokens = np.flatnonzero(batch.turn_tokens > 0)
    source = np.arange(len(groups))
    source[turns_with_tokens] = batch.permute_within(turns_with_tokens, groups[turns_with_tokens])
    order = np.argsort(batch.token_turns, kind="stable")  # in turn order, unlike streams
    starts = np.cumsum(batch.turn_tokens) - batch.turn_tokens
    turns = batch.token_turns[order]
    place = np.arange(len(order)) - starts[turns]
    source_turns = source[turns]
    values = np.empty(len(order))
    values[order] = estimate.values[order][
        starts[source_turns] + place * batch.turn_tokens[source_turns] // np.maximum(batch.turn_tokens[turns], 1)
    ]
    return TokenAdvantages(values)


def regrouped(
    batch: TurnBatch,
    rewards: Floats,
    *,
    of: Annotated[PartConfig, ESTIMATOR] = PartConfig(ESTIMATOR, "mars"),
    what: Annotated[list[Label], Field(min_length=1)] = SEAT,
    within: list[TrajectoryKey] = POLICY,
) -> Floats | TokenAdvantages:
    """Run another estimator with randomly permuted comparison labels: the control of comparing like with like.

    `what` names the labels. Those of a trajectory (`game`, `seat`, `role`) move together to another trajectory of the
    same group (`within`), a `situation` to another turn. Rewards and turns stay in place. Returns and the number and
    sizes of the groups are unchanged; only the similarity of compared turns is lost. Zero under the conditions of
    `of`.
    """
    groups, trajectories = batch.trajectory_groups(within), list(batch.trajectories)
    labels = [name for name in what if name != "situation"]
    if labels:
        permutation = batch.permute_within(np.arange(len(trajectories)), groups)
        trajectories = [
            replace(trajectory, **{name: getattr(batch.trajectories[i], name) for name in labels})
            for trajectory, i in zip(trajectories, permutation.tolist(), strict=True)
        ]
    if "situation" in what:
        situations = batch.number_labels(get_situations(batch))[
            batch.permute_within(np.arange(len(batch.owner)), groups[batch.owner])
        ]
        trajectories = [
            replace(
                trajectory,
                turns=tuple(t._replace(situation=f"{situations[start + k]}") for k, t in enumerate(trajectory.turns)),
            )
            for trajectory, start in zip(trajectories, batch.starts.tolist(), strict=False)
        ]
    return of(replace(batch, trajectories=trajectories), rewards)  # type: ignore[no-any-return]
