"""Selection of the turns and trajectories to learn from. There are four separate ways to exclude them.

*Out of the loss*: a turn's tokens are context only; its reward still counts in group statistics. *Out of the
statistics*: a trajectory is learned from but does not affect group statistics. *Dropped*: a trajectory is removed as if
it had not been played; with the rollout part `resample` others are played instead. *Ended during play* is up to the
game (`illegal: end`, limits) and already in the record.

A selector is `selector(batch, rewards, selection, *, settings) -> Selection` and can only remove. It compares scores:
the sum of a trajectory's turn rewards after stages and weights, or with `of` the sum of one of the game's named
rewards, unweighted. Group statistics are over counted trajectories; groups of one are kept.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Literal, NamedTuple

import numpy as np
from pydantic import Field

from arena.credit.batch import Bools, Floats, Ints, TrajectoryKey, TurnBatch, average_over_turns
from arena.credit.estimators.relative import PROBLEM
from arena.parts.part_config import Kind, RewardName, needs
from games.contracts import CUT, UNREAD, TurnSource

AGENT: list[TrajectoryKey] = ["game", "role", "policy"]
SEAT: list[TrajectoryKey] = ["game", "seat"]
CUT_OFF = list(CUT)
SUMMARIES: list[TurnSource] = ["summary"]
Share = Annotated[float, Field(ge=0, le=1)]
Spread = Annotated[float, Field(ge=0)]


@dataclass(frozen=True)
class Selection:
    """Masks of a batch's learned turns, counted trajectories and kept trajectories. Methods return changed copies.

    `learned` [T] marks turns in the loss, `counted` [M] trajectories in group statistics, and `kept` [M] is False for
    trajectories that are dropped as if they had not been played.
    """

    learned: Bools
    counted: Bools
    kept: Bools

    @classmethod
    def select_all(cls, batch: TurnBatch) -> "Selection":
        """Return a selection that excludes nothing."""
        trajectories = np.ones(len(batch.lengths), bool)
        return cls(np.ones(len(batch.owner), bool), trajectories, trajectories.copy())

    def exclude_from_loss(self, turns: Bools) -> "Selection":
        """Exclude these turns, a mask [T], from the loss."""
        return replace(self, learned=self.learned & ~turns)

    def exclude_from_statistics(self, trajectories: Bools) -> "Selection":
        """Exclude these trajectories, a mask [M], from group statistics."""
        return replace(self, counted=self.counted & ~trajectories)

    def drop(self, batch: TurnBatch, trajectories: Bools) -> "Selection":
        """Drop these trajectories, a mask [M]: they are neither learned nor counted."""
        kept = self.kept & ~trajectories
        return Selection(self.learned & kept[batch.owner], self.counted & kept, kept)


Selector = Callable[..., Selection]
"""(TurnBatch, [T] rewards, Selection so far, *, settings) -> Selection."""


def compute_scores(batch: TurnBatch, rewards: Floats, of: str | None = None) -> Floats:
    """Return each trajectory's score, [M]: the sum of `rewards`, or of the game's named reward `of`, unweighted."""
    return batch.totals(rewards if of is None else batch.column(lambda turn: turn.rewards.get(of, 0.0)))


def count_dropped_deals(batch: TurnBatch, selection: Selection) -> float:
    """Return the number of dropped deals; each of a deal's trajectories counts as an equal share of it."""
    deals = batch.trajectory_groups(["game", "seed"])
    return float(np.sum(np.bincount(deals, ~selection.kept) / np.bincount(deals)))


def void_turns(
    batch: TurnBatch, rewards: Floats, selection: Selection, *, void: Literal["empty", "invalid"] = "invalid"
) -> Selection:
    """Take trajectories with a void turn out of the loss; they stay in the statistics.

    A void turn has an act that the game could not read or allow (`invalid`), or no act at all (`empty`); summaries and
    replaced turns never are. Source: SimpleTIR (Xue et al. 2025), where a turn with neither code nor a final answer is
    void and ends the episode. Here the game decides whether the episode ends (`illegal: end`).
    """
    column = batch.column(
        lambda turn: turn.source not in UNREAD and not (turn.valid if void == "invalid" else turn.action.strip())
    )
    return selection.exclude_from_loss(batch.totals(column)[batch.owner] > 0)


def overlong(
    batch: TurnBatch,
    rewards: Floats,
    selection: Selection,
    *,
    unit: Literal["turn", "trajectory"] = "trajectory",
    counted: bool = True,
) -> Selection:
    """Take trajectories with a turn that hit the token limit, or only these turns, out of the loss.

    With `counted: false` such trajectories are out of the statistics too. Source: DAPO's overlong filtering (Yu et al.
    2025), one turn per trajectory there; SUPO masks whole rollouts.
    """
    is_truncated = batch.column(lambda turn: turn.finish == "length") > 0
    trajectories = batch.totals(is_truncated.astype(np.float64)) > 0
    selection = selection.exclude_from_loss(is_truncated if unit == "turn" else trajectories[batch.owner])
    return selection if counted else selection.exclude_from_statistics(trajectories)


def ended(
    batch: TurnBatch, rewards: Floats, selection: Selection, *, how: Annotated[list[str], Field(min_length=1)] = CUT_OFF
) -> Selection:
    """Take trajectories of matches with one of these endings out of the loss; they stay in the statistics.

    Endings are values of the entry `ended` in a game's report. The default are truncated matches: `context` is a full
    context with no summary left to write (SUPO's overlong masking, Lu et al. 2025), `stopped` an end by the part
    `stop`.
    """
    is_truncated = np.array([t.report.get("ended") in how for t in batch.trajectories], bool)
    return selection.exclude_from_loss(is_truncated[batch.owner])


def written_as(
    batch: TurnBatch,
    rewards: Floats,
    selection: Selection,
    *,
    sources: Annotated[list[TurnSource], Field(min_length=1)] = SUMMARIES,
) -> Selection:
    """Take turns whose source is in `sources` out of the loss; by default summaries, so that only acts are learned."""
    return selection.exclude_from_loss(batch.column(lambda turn: turn.source in sources) > 0)


@needs("entropy")
def high_entropy(
    batch: TurnBatch, rewards: Floats, selection: Selection, *, quantile: Share = 0.2, by: list[TrajectoryKey] = AGENT
) -> Selection:
    """Take turns whose entropy is below a quantile of their group out of the loss.

    A turn's entropy is the mean over its tokens. A group has the turns of undropped trajectories with equal `by`; the
    quantile interpolates linearly between them. Source: the paper of DART-GUI (Li et al. 2025), over the whole batch
    (`by: []`); in its released code the filter is commented out.
    """
    entropy = average_over_turns(batch, batch.measure("entropy"))
    groups, has_tokens = batch.groups(by), (batch.turn_tokens > 0) & selection.kept[batch.owner]
    low = np.zeros(len(entropy), bool)
    for group in np.unique(groups[has_tokens]).tolist():
        rows = np.flatnonzero(has_tokens & (groups == group))
        low[rows] = entropy[rows] < np.quantile(entropy[rows], quantile) - _ROUNDING
    return selection.exclude_from_loss(low)


def surprise(
    batch: TurnBatch,
    rewards: Floats,
    selection: Selection,
    *,
    drop: Literal["low", "high", "both"] = "both",
    deviations: Annotated[float, Field(gt=0)] = 1.0,
    by: list[TrajectoryKey] = AGENT,
) -> Selection:
    """Take turns whose surprise is in a tail of their group out of the loss: already known turns, or noise.

    A turn's surprise is the mean of -log p over its sampled tokens. A group has the turns of equal `by` that are still
    learned. With its mean m and population deviation s, `low` drops turns below m - deviations · s and `high` those
    above m + deviations · s. Source: the tactic filter of BFS-Prover (Xin et al. 2025), which drops both tails of a
    roughly normal distribution; we do not know the paper's bounds.
    """
    logprobs = [
        np.asarray(stream.logprobs, np.float64)[np.asarray(stream.mask, bool)]
        for trajectory in batch.trajectories
        for stream in trajectory.streams
    ]
    surprises = average_over_turns(batch, -np.concatenate(logprobs)) if logprobs else np.zeros(len(batch.owner))
    groups, has_tokens = batch.groups(by), (batch.turn_tokens > 0) & selection.learned
    tail = np.zeros(len(surprises), bool)
    for group in np.unique(groups[has_tokens]).tolist():
        rows = np.flatnonzero(has_tokens & (groups == group))
        deviation, width = surprises[rows] - surprises[rows].mean(), deviations * surprises[rows].std() + _ROUNDING
        tail[rows] = ((deviation < -width) & (drop != "high")) | ((deviation > width) & (drop != "low"))
    return selection.exclude_from_loss(tail)


def replayed(batch: TurnBatch, rewards: Floats, selection: Selection) -> Selection:
    """Take trajectories of `learn.replay` out of the statistics; they stay in the loss.

    Without this selector they count, as in ARPO-GUI. With it, a replayed success in a group of equal failures gets
    advantage 0 from an estimator that divides by the group's deviation, because the deviation is 0.
    """
    return selection.exclude_from_statistics(np.array([t.source == "recalled" for t in batch.trajectories], bool))


def zero_variance(
    batch: TurnBatch,
    rewards: Floats,
    selection: Selection,
    *,
    by: list[TrajectoryKey] = PROBLEM,
    of: Annotated[str, RewardName()] | None = None,
    tolerance: Spread = 1e-6,
) -> Selection:
    """Drop groups whose scores are all equal: DAPO's dynamic sampling, with the rollout part `resample` to refill.

    Equal means a range of at most `tolerance` among the group's counted trajectories. Groups with fewer than two of
    them are kept, as in verl's recipe. Scores are total rewards, or those of the game's reward `of`. Source: Yu et al.
    2025.
    """
    scored = _score_groups(batch, rewards, selection, by, of)
    size, counted_groups = len(scored.score), scored.groups[selection.counted]
    low, high = np.full(size, np.inf), np.full(size, -np.inf)
    np.minimum.at(low, counted_groups, scored.score[selection.counted])
    np.maximum.at(high, counted_groups, scored.score[selection.counted])
    return selection.drop(batch, scored.comparable & ((high - low)[scored.groups] <= tolerance))


def accuracy_band(
    batch: TurnBatch,
    rewards: Floats,
    selection: Selection,
    *,
    low: float = 0.1,
    high: float = 0.9,
    by: list[TrajectoryKey] = PROBLEM,
    of: Annotated[str, RewardName()] | None = None,
) -> Selection:
    """Drop groups whose mean score is outside [low, high]: too hard or too easy.

    Scores are total rewards, or those of the game's reward `of`. Groups of one are kept. Source: SimpleTIR (Xue et al.
    2025), for scores of 0 and 1.
    """
    scored = _score_groups(batch, rewards, selection, by, of)
    mean = scored.batch.mean_by(scored.score, scored.groups)
    return selection.drop(batch, scored.comparable & ((mean < low - _ROUNDING) | (mean > high + _ROUNDING)))


def std_band(
    batch: TurnBatch,
    rewards: Floats,
    selection: Selection,
    *,
    low: Spread = 0.0,
    top: Annotated[float, Field(gt=0, le=1)] = 1.0,
    by: list[TrajectoryKey] = PROBLEM,
    among: list[TrajectoryKey] = AGENT,
    of: Annotated[str, RewardName()] | None = None,
) -> Selection:
    """Drop groups whose scores deviate by less than `low`, and all but the `top` share with the largest deviation.

    Scores are total rewards, or those of the game's reward `of`; the deviation is the population's. Of G groups ⌈top ·
    G⌉ are kept, plus ties with the last of them, and groups of one. Groups are ranked among those with equal `among`,
    because roles earn on different scales. As published: low 1e-3 SimpleTIR, .3 UI-S1; top .25 UFO, .75 SPEAR, over all
    groups together (`among: []`).
    """
    scored = _score_groups(batch, rewards, selection, by, of)
    std = scored.batch.std_by(scored.score, scored.groups)
    first = np.unique(scored.groups, return_index=True)[1]
    kinds, threshold = batch.trajectory_groups(among)[first][scored.groups], np.full(len(std), low)
    first = first[scored.comparable[first]]
    for kind in np.unique(kinds[first]).tolist():
        ranked = np.sort(std[first[kinds[first] == kind]])[::-1]
        threshold[kinds == kind] = max(low, ranked[int(np.ceil(top * len(ranked) - _ROUNDING)) - 1])
    return selection.drop(batch, scored.comparable & (std < threshold - _ROUNDING))


def top_returns(
    batch: TurnBatch,
    rewards: Floats,
    selection: Selection,
    *,
    share: Annotated[float, Field(gt=0, le=1)] = 0.25,
    at_least: float | None = None,
    by: list[TrajectoryKey] = SEAT,
    of: Annotated[str, RewardName()] | None = None,
) -> Selection:
    """Take all but the best trajectories out of the loss; they stay in the statistics. For imitation of good play.

    The best of a group are the ⌈share · n⌉ with the highest scores among its n counted ones, and ties with the last of
    them: all, if scores are equal. With `at_least` they must score at least that. Scores are total rewards, or those of
    the game's reward `of`.

    As published: filtered behaviour cloning (LMRL-Gym, Abdulhai et al. 2023) takes the best of a whole data set; here
    they are of an iteration, which `source.shuffle` makes a random part of a log. Rejection sampling (RAFT, Dong et al.
    2023) is `by: [game, seed, role]` with a share of 1 / group. Expert iteration on verified results sets `at_least`.
    """
    scored = _score_groups(batch, rewards, selection, by, of)
    threshold = np.full(len(scored.score), -np.inf if at_least is None else at_least)
    for group in np.unique(scored.groups[selection.counted]).tolist():
        members = scored.groups == group
        ranked = np.sort(scored.score[members & selection.counted])[::-1]
        lowest = ranked[int(np.ceil(share * len(ranked) - _ROUNDING)) - 1]
        threshold[members] = np.maximum(threshold[members], lowest)
    return selection.exclude_from_loss((scored.score < threshold - _ROUNDING)[batch.owner])


def random(
    batch: TurnBatch,
    rewards: Floats,
    selection: Selection,
    *,
    fraction: Share,
    unit: Literal["turn", "trajectory", "group"] = "trajectory",
    by: list[TrajectoryKey] = PROBLEM,
) -> Selection:
    """Control: remove a random fraction; turns and trajectories leave the loss, groups are dropped.

    `unit: turn` is the control of `high_entropy` and `surprise`, `trajectory` of `void_turns` and `overlong`, `group`
    (by `by`) of the selectors that drop groups. The fraction is rounded to the nearest whole number.
    """
    if unit == "turn":
        remaining = np.flatnonzero(selection.learned)
    elif unit == "trajectory":
        remaining = np.unique(batch.owner[selection.learned])
    else:
        groups = batch.trajectory_groups(by)
        remaining = np.unique(groups[selection.kept])
    removed = (
        batch.rng.choice(remaining, round(fraction * len(remaining)), replace=False) if len(remaining) else remaining
    )
    if unit == "group":
        return selection.drop(batch, np.isin(groups, removed))
    return selection.exclude_from_loss(np.isin(np.arange(len(batch.owner)) if unit == "turn" else batch.owner, removed))


class _ScoredGroups(NamedTuple):
    """Scores and groups of a batch's trajectories."""

    batch: TurnBatch
    """The batch with statistics over the trajectories counted so far."""
    score: Floats
    """[M]"""
    groups: Ints
    """[M]"""
    comparable: Bools
    """[M] True if at least two of the group count, so that they can be compared."""


def _score_groups(
    batch: TurnBatch, rewards: Floats, selection: Selection, by: list[TrajectoryKey], of: str | None
) -> _ScoredGroups:
    counted, groups = batch.with_counted(selection.counted), batch.trajectory_groups(by)
    return _ScoredGroups(counted, compute_scores(batch, rewards, of), groups, counted.count_by(groups) > 1)


_ROUNDING = 1e-9
"""Tolerance for sums of the same numbers in another order."""

SELECTORS: dict[str, Selector] = {
    f.__name__: f
    for f in (
        void_turns,
        overlong,
        ended,
        written_as,
        high_entropy,
        surprise,
        replayed,
        zero_variance,
        accuracy_band,
        std_band,
        top_returns,
        random,
    )
}
SELECTOR = Kind("selector", SELECTORS)
