"""A running baseline per role over the run."""

from typing import Annotated

import numpy as np
from pydantic import Field

from arena.credit.batch import Floats, TrajectoryKey, TurnBatch
from arena.credit.estimators.mars import Discount

ROLE: list[TrajectoryKey] = ["game", "role"]


def rae(
    batch: TurnBatch,
    rewards: Floats,
    *,
    decay: Annotated[float, Field(ge=0, lt=1)] = 0.95,
    gamma: Discount = 1.0,
    by: list[TrajectoryKey] = ROLE,
) -> Floats:
    """RAE of SPIRAL: subtract the role's running mean over the run from each trajectory's return, on all turns.

    In the order of the trajectories: A = R - b, then b ← decay·b + (1 - decay)·R; turn k of K gets A·γ^(K-k). R is the
    undiscounted sum of the trajectory's rewards. Each `by` has its own b, which starts at 0 and is stored in
    `memory["rae"]` over iterations and resumes. A trajectory outside the statistics does not change it. Early
    iterations have almost no baseline: b reaches half its level after 14 trajectories.

    Each b predates its trajectory, so with `gamma: 1` the gradient is unbiased, whichever seat ends the match. Only the
    order within a role matters. Zero if a return equals its role's baseline, as a first return of 0 does.
    Source: SPIRAL (ICLR 2026); its code has one b per actor process, ours one per run, and it leaves turns of advantage
    0 out of the batch.
    """
    expected: dict[str, float] = batch.memory.setdefault("rae", {})
    returns, counts = batch.totals(rewards).tolist(), (batch.counted_mask & (batch.lengths > 0)).tolist()
    gaps = np.zeros(len(returns))
    for m, trajectory in enumerate(batch.trajectories):
        key = ", ".join(str(getattr(trajectory, name)) for name in by)
        baseline = expected.get(key, 0.0)
        gaps[m] = returns[m] - baseline
        if counts[m]:
            expected[key] = decay * baseline + (1.0 - decay) * returns[m]
    to_end = batch.lengths[batch.owner] - 1 - batch.place
    return gaps[batch.owner] * np.float64(gamma) ** to_end
