"""Selection: which turns and trajectories learning hears of. Four different acts, never one flag.

*Out of the loss*: a turn's tokens are context only, its reward still counts in its group's statistics. *Out of the
statistics*: a trajectory learns but does not tell others what is normal. *Dropped*: a trajectory is as if it had not
been played; with `play.resample` others are played in its place. *Ended during play* is the game's doing (`illegal:
end`, limits) and in the record already.

A selector is `selector(batch, rewards, selection, *, settings) -> Selection`; it can only take away.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from arena.credit.batch import Bools, Floats, TurnBatch


@dataclass(frozen=True)
class Selection:
    """What is left of a batch."""

    learned: Bools
    """[T] whether the turn's tokens are in the loss."""
    counted: Bools
    """[M] whether the trajectory is in the statistics of its groups."""
    kept: Bools
    """[M] whether the trajectory is there at all; a dropped one is neither counted nor learned."""

    @classmethod
    def everything(cls, batch: TurnBatch) -> "Selection":
        """Nothing taken away yet."""
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


def void_turns(batch: TurnBatch, rewards: Floats, selection: Selection) -> Selection:
    """Trajectories with a turn that held no act are out of the loss, and stay in the statistics.

    Source: SimpleTIR (Xue et al. 2025), where a void turn is one with neither code nor a final answer.
    """
    void = batch.column(lambda turn: not turn.action.strip()) > 0
    return selection.out_of_loss(batch.totals(void.astype(np.float64))[batch.owner] > 0)


SELECTORS: dict[str, Selector] = {f.__name__: f for f in (void_turns,)}
