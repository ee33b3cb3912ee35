"""Selection: which turns and trajectories are learned from. Four different acts, never one flag.

*Out of the loss*: a turn's tokens are context only, its reward still counts in its group's statistics. *Out of the
statistics*: a trajectory learns but does not tell others what is normal. *Dropped*: a trajectory is as if it had not
been played; with `play.resample` others are played in its place. *Ended during play* is the game's doing (`illegal:
end`, limits) and in the record already.

A selector is `selector(batch, rewards, selection, *, settings) -> Selection`; it can only take away. What it compares
are scores: the sum of a trajectory's turn rewards, after stages and weights, or with `of` that of one of the game's
named rewards, unweighted. Groups are judged by those of them that count, and a group of one is not judged: it stays.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Literal, NamedTuple

import numpy as np
from pydantic import Field

from arena.credit.batch import Bools, Floats, Ints, TrajectoryKey, TurnBatch
from arena.credit.estimators.relative import PROBLEM
from arena.credit.tokens import gathered
from arena.parts.chosen import Kind, RewardName, needs
from games.contracts import CUT, UNREAD, TurnSource

AGENT: list[TrajectoryKey] = ["game", "role", "policy"]
CUT_OFF = list(CUT)
SUMMARIES: list[TurnSource] = ["summary"]
Share = Annotated[float, Field(ge=0, le=1)]
Spread = Annotated[float, Field(ge=0)]


@dataclass(frozen=True)
class Selection:
    """Masks over a batch: what is in the loss, in the statistics, and kept at all."""

    learned: Bools
    """[T] whether the turn's tokens are in the loss."""
    counted: Bools
    """[M] whether the trajectory is in the statistics of its groups."""
    kept: Bools
    """[M] whether the trajectory is there at all; a dropped one is neither counted nor learned."""

    @classmethod
    def everything(cls, batch: TurnBatch) -> "Selection":
        """A selection of the whole batch."""
        trajectories = np.ones(len(batch.lengths), bool)
        return cls(np.ones(len(batch.owner), bool), trajectories, trajectories.copy())

    def out_of_loss(self, turns: Bools) -> "Selection":
        """Take these [T] turns out of the loss."""
        return replace(self, learned=self.learned & ~turns)

    def out_of_statistics(self, trajectories: Bools) -> "Selection":
        """Take these [M] trajectories out of the statistics."""
        return replace(self, counted=self.counted & ~trajectories)

    def drop(self, batch: TurnBatch, trajectories: Bools) -> "Selection":
        """Drop these [M] trajectories altogether."""
        kept = self.kept & ~trajectories
        return Selection(self.learned & kept[batch.owner], self.counted & kept, kept)


Selector = Callable[..., Selection]
"""(TurnBatch, [T] rewards, Selection so far, *, settings) -> Selection."""


def scores(batch: TurnBatch, rewards: Floats, of: str | None = None) -> Floats:
    """[M] what each trajectory earned altogether, or of one of the game's named rewards."""
    return batch.totals(rewards if of is None else batch.column(lambda turn: turn.rewards.get(of, 0.0)))


def lost_deals(batch: TurnBatch, selection: Selection) -> float:
    """Return the number of deals that were dropped: a deal counts 1, each of its trajectories an equal part."""
    deals = batch.trajectory_groups(["game", "seed"])
    return float(np.sum(np.bincount(deals, ~selection.kept) / np.bincount(deals)))


# -- out of the loss, or of the statistics -----------------------------------------------------------------


def void_turns(
    batch: TurnBatch, rewards: Floats, selection: Selection, *, void: Literal["empty", "invalid"] = "invalid"
) -> Selection:
    """Trajectories with a void turn are out of the loss, and stay in the statistics.

    Void is a turn whose act the game could not read or allow (invalid), or only one without an act (empty). Source:
    SimpleTIR (Xue et al. 2025), where a turn with neither code nor a final answer, prose alone, is void and ends the
    episode; here ending it is the game's business (`illegal: end`), and it is out of the loss either way.
    """
    column = batch.column(
        lambda turn: turn.source not in UNREAD and not (turn.valid if void == "invalid" else turn.action.strip())
    )
    return selection.out_of_loss(batch.totals(column)[batch.owner] > 0)


def overlong(
    batch: TurnBatch,
    rewards: Floats,
    selection: Selection,
    *,
    unit: Literal["turn", "trajectory"] = "trajectory",
    counted: bool = True,
) -> Selection:
    """Trajectories, or only the turns, that the token limit cut off are out of the loss.

    With `counted: false` such trajectories are out of the statistics too. Source: DAPO's overlong filtering (Yu et
    al. 2025), one turn per trajectory there; SUPO masks whole rollouts.
    """
    cut = batch.column(lambda turn: turn.finish == "length") > 0
    trajectories = batch.totals(cut.astype(np.float64)) > 0
    selection = selection.out_of_loss(cut if unit == "turn" else trajectories[batch.owner])
    return selection if counted else selection.out_of_statistics(trajectories)


def ended(
    batch: TurnBatch,
    rewards: Floats,
    selection: Selection,
    *,
    how: Annotated[list[str], Field(min_length=1)] = CUT_OFF,
) -> Selection:
    """Trajectories of matches that ended in one of these ways are out of the loss, and stay in the statistics.

    The ways are those of a game's report; by itself those in which a match is cut off: `context`, full with no summary
    left to write (SUPO's overlong masking, Lu et al. 2025), and `stopped`, by `play.stop`.
    """
    cut = np.array([t.report.get("ended") in how for t in batch.trajectories], bool)
    return selection.out_of_loss(cut[batch.owner])


def written_as(
    batch: TurnBatch,
    rewards: Floats,
    selection: Selection,
    *,
    sources: Annotated[list[TurnSource], Field(min_length=1)] = SUMMARIES,
) -> Selection:
    """Turns of these sources are out of the loss; by itself summaries, so that acts alone are learned."""
    return selection.out_of_loss(batch.column(lambda turn: turn.source in sources) > 0)


@needs("entropy")
def high_entropy(
    batch: TurnBatch,
    rewards: Floats,
    selection: Selection,
    *,
    quantile: Share = 0.2,
    by: list[TrajectoryKey] = AGENT,
) -> Selection:
    """Turns written with less entropy than most are out of the loss: those below a quantile of their group.

    A turn's entropy is the mean over its tokens, the quantile is linear between the turns of the kept trajectories
    alike in `by`. Source: the paper of DART-GUI (Li et al. 2025), over the whole batch (`by: []`); in its released
    code the filter is commented out.
    """
    entropy = gathered(batch, batch.measure("entropy"))
    groups, spoken = batch.groups(by), (batch.turn_tokens > 0) & selection.kept[batch.owner]
    low = np.zeros(len(entropy), bool)
    for group in np.unique(groups[spoken]).tolist():
        rows = np.flatnonzero(spoken & (groups == group))
        low[rows] = entropy[rows] < np.quantile(entropy[rows], quantile) - _ROUNDING
    return selection.out_of_loss(low)


def replayed(batch: TurnBatch, rewards: Floats, selection: Selection) -> Selection:
    """Trajectories that `learn.replay` brought back are out of the statistics: they learn, and set no standard.

    Without it they count, as in ARPO-GUI. An estimator that divides by the group's deviation finds none in a group of
    equal failures, so that the replayed success beside them is worth 0.
    """
    return selection.out_of_statistics(np.array([t.source == "recalled" for t in batch.trajectories], bool))


# -- dropped -----------------------------------------------------------------------------------------------


def zero_variance(
    batch: TurnBatch,
    rewards: Floats,
    selection: Selection,
    *,
    by: list[TrajectoryKey] = PROBLEM,
    of: Annotated[str, RewardName()] | None = None,
    tolerance: Spread = 1e-6,
) -> Selection:
    """Groups whose scores are all equal are dropped: DAPO's dynamic sampling, which `play.resample` completes.

    Equal is a range of at most `tolerance`. Source: Yu et al. 2025; verl's recipe keeps groups of one, too.
    """
    judged = _judged(batch, rewards, selection, by, of)
    size, own = len(judged.score), judged.groups[selection.counted]
    low, high = np.full(size, np.inf), np.full(size, -np.inf)
    np.minimum.at(low, own, judged.score[selection.counted])
    np.maximum.at(high, own, judged.score[selection.counted])
    return selection.drop(batch, judged.several & ((high - low)[judged.groups] <= tolerance))


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
    """Groups whose mean score lies outside [low, high] are dropped: too hard, or too easy.

    Source: SimpleTIR (Xue et al. 2025), for scores of 0 and 1.
    """
    judged = _judged(batch, rewards, selection, by, of)
    mean = judged.batch.mean_by(judged.score, judged.groups)
    return selection.drop(batch, judged.several & ((mean < low - _ROUNDING) | (mean > high + _ROUNDING)))


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
    """Groups whose scores deviate by less than `low` are dropped, and all but the `top` share that deviates most.

    The deviation is the population's. Of G groups ⌈top · G⌉ are kept, and what ties with the last of them; groups are
    ranked among those alike in `among`, since roles earn on different scales. As published: low 1e-3 SimpleTIR, .3
    UI-S1; top .25 UFO, .75 SPEAR, over all groups together (`among: []`).
    """
    judged = _judged(batch, rewards, selection, by, of)
    std = judged.batch.std_by(judged.score, judged.groups)
    first = np.unique(judged.groups, return_index=True)[1]
    kinds, least = batch.trajectory_groups(among)[first][judged.groups], np.full(len(std), low)
    first = first[judged.several[first]]
    for kind in np.unique(kinds[first]).tolist():
        ranked = np.sort(std[first[kinds[first] == kind]])[::-1]
        least[kinds == kind] = max(low, ranked[int(np.ceil(top * len(ranked) - _ROUNDING)) - 1])
    return selection.drop(batch, judged.several & (std < least - _ROUNDING))


def random(
    batch: TurnBatch,
    rewards: Floats,
    selection: Selection,
    *,
    fraction: Share,
    unit: Literal["turn", "trajectory", "group"] = "trajectory",
    by: list[TrajectoryKey] = PROBLEM,
) -> Selection:
    """The control: a fraction of what is left, drawn at random; turns and trajectories out of the loss, groups dropped.

    So each does what the selectors do whose control it is: `high_entropy` takes turns, `void_turns` and `overlong`
    trajectories, the bands groups (by `by`). The number taken is the nearest to the fraction.
    """
    if unit == "turn":
        left = np.flatnonzero(selection.learned)
    elif unit == "trajectory":
        left = np.unique(batch.owner[selection.learned])
    else:
        groups = batch.trajectory_groups(by)
        left = np.unique(groups[selection.kept])
    taken = batch.rng.choice(left, round(fraction * len(left)), replace=False) if len(left) else left
    if unit == "group":
        return selection.drop(batch, np.isin(groups, taken))
    return selection.out_of_loss(np.isin(np.arange(len(batch.owner)) if unit == "turn" else batch.owner, taken))


class _Judged(NamedTuple):
    """Scores by group."""

    batch: TurnBatch
    """Whose statistics are over what counts so far."""
    score: Floats
    """[M]"""
    groups: Ints
    """[M]"""
    several: Bools
    """[M] whether at least two of the group count, so that it can be judged."""


def _judged(
    batch: TurnBatch, rewards: Floats, selection: Selection, by: list[TrajectoryKey], of: str | None
) -> _Judged:
    counting, groups = batch.counting(selection.counted), batch.trajectory_groups(by)
    return _Judged(counting, scores(batch, rewards, of), groups, counting.count_by(groups) > 1)


_ROUNDING = 1e-9
"""Sums of the same numbers in another order may differ by so much."""

SELECTORS: dict[str, Selector] = {
    f.__name__: f
    for f in (
        void_turns,
        overlong,
        ended,
        written_as,
        high_entropy,
        replayed,
        zero_variance,
        accuracy_band,
        std_band,
        random,
    )
}
SELECTOR = Kind("selector", SELECTORS)
