"""A baseline with a memory: what a role has come to expect over the run."""

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
    """RAE of SPIRAL: each trajectory's return minus its role's running mean over the run, on all of its turns.

    In the order of the trajectories: A = R - b, then b ← decay·b + (1 - decay)·R; turn k of K gets A·γ^(K-k). R is
    the undiscounted sum of the trajectory's rewards. b begins at 0, one for each `by`, and is kept in
    `memory["rae"]`, so it goes on through iterations and resumes; a trajectory out of the statistics leaves it as it
    is. The early iterations have hardly a baseline: b has gone half of its way after 14 trajectories.

    Each b is from before its trajectory, so with `gamma: 1` its expectation is the gradient, whichever seat ends the
    match. The order matters within a role and nowhere else. Zero where a return is what its role expects, as in a first
    return of 0. Source: SPIRAL (ICLR 2026); its code keeps one b per actor process, ours is one for the run, and it
    leaves turns of advantage 0 out of the batch.
    """
    expected: dict[str, float] = batch.memory.setdefault("rae", {})
    returns, counts = batch.totals(rewards).tolist(), (batch.counts & (batch.lengths > 0)).tolist()
    gaps = np.zeros(len(returns))
    for m, trajectory in enumerate(batch.trajectories):
        key = ", ".join(str(getattr(trajectory, name)) for name in by)
        baseline = expected.get(key, 0.0)
        gaps[m] = returns[m] - baseline
        if counts[m]:
            expected[key] = decay * baseline + (1.0 - decay) * returns[m]
    to_end = batch.lengths[batch.owner] - 1 - batch.place
    return gaps[batch.owner] * np.float64(gamma) ** to_end
