"""Rewards for what happens on the way: tools used, pivotal turns, and how far the policy has moved."""

from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from arena.credit.batch import Floats, TurnBatch
from arena.credit.rewards.columns import Columns, Part, Regex, column, earlier, holding
from arena.parts.chosen import Chosen, needs
from arena.parts.schedules import SCHEDULE


def tool_bonus(
    batch: TurnBatch,
    rewards: Columns,
    *,
    pattern: Regex = "<tool_call>",
    part: Part | None = None,
    bonus: Annotated[float, Field(ge=0)] = 0.1,
    cap: Annotated[float, Field(ge=0)] = 1.0,
    weight: Annotated[Chosen, SCHEDULE] = Chosen(SCHEDULE, "cosine", {"start": 1.0, "end": 0.0, "over": 200}),
) -> dict[str, Floats]:
    """`bonus` for every turn that uses a tool, at most `cap` in a trajectory, times a weight that decays to nothing.

    A tool turn is one whose raw text holds the pattern; with `part`, one where that reward is positive instead. The
    n-th pays min(cap, n · bonus) - min(cap, (n-1) · bonus). Source: SPEAR (Qin et al. 2025), where the weight is
    (1 + cos(π t / 200)) / 2; here t counts iterations.
    """
    used = holding(batch, pattern, "raw") if part is None else column(batch, rewards, part) > 0
    before, _ = earlier(batch, used.astype(np.float64), batch.owner)
    paid = np.minimum(cap, bonus * (before + used)) - np.minimum(cap, bonus * before)
    return {"tool_bonus": weight(batch.clock) * paid}


def pivotal(
    batch: TurnBatch, rewards: Columns, *, part: Part, goal: Part, full: Annotated[float, Field(gt=0)] = 10.0
) -> dict[str, Floats]:
    """1 on pivotal turns, the total of `goal` divided by `full` on the last turn, 0 elsewhere.

    A turn is pivotal where a game or a judge gave it a positive `part`; the last one has the goal's share alone. Both
    parts are replaced by this one. Source: EPO (explicit policy optimisation, ACL 2025), where a large model marks the
    turns and goals go up to 10; `epo_weighted` makes returns of it.
    """
    marked = (column(batch, rewards, part) > 0).astype(np.float64)
    share = batch.totals(column(batch, rewards, goal)) / full
    nothing = np.zeros(len(marked))
    return {part: nothing, goal: nothing, "pivotal": np.where(batch.last, share[batch.owner], marked)}


@needs("old", "reference")
def kl_penalty(
    batch: TurnBatch,
    rewards: Columns,
    *,
    weight: Annotated[float, Field(ge=0)] = 0.01,
    kind: Literal["k1", "k2", "k3"] = "k1",
) -> dict[str, Floats]:
    """The KL to the policy's own beginning as a cost in the reward: minus `weight` times its estimate over a turn.

    Summed over the turn's tokens, with d = reference - old and old the policy that is about to learn: k1 = -d, k2 =
    d²/2, k3 = exp(d) - d - 1. All estimate KL(old ‖ reference) for tokens drawn from `old`: k1 and k3 without bias,
    k2 nearly for small KL; k1 may be negative, the others never. As a reward only k1 has the gradient of the KL: then
    later turns' tokens answer for what earlier ones led to. Published: 0.01 with PPO, 0.001 with RLOO
    (meow-tea-taro, verl). Zero in the first iteration, when the policy is its own beginning. Source: Schulman 2020,
    "Approximating KL divergence".
    """
    d = np.clip(batch.measure("reference") - batch.measure("old"), -20.0, 20.0)
    estimate = -d if kind == "k1" else d**2 / 2.0 if kind == "k2" else np.exp(d) - d - 1.0
    sums = np.bincount(batch.token_turns, estimate, len(batch.owner)).astype(np.float64)
    return {"kl_penalty": -weight * sums}
