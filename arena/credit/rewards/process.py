"""Process rewards: tool use, pivotal turns, and distance from the reference policy."""

from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from agents.patterns import Pattern
from arena.credit.batch import Floats, TurnBatch
from arena.credit.rewards.columns import Columns, Part, Regex, get_column, match_turns, put_on_last_turn, sum_earlier
from arena.parts.part_config import PartConfig, needs
from arena.parts.schedules import SCHEDULE


def tool_bonus(
    batch: TurnBatch,
    rewards: Columns,
    *,
    pattern: Regex = "<tool_call>",
    part: Part | None = None,
    bonus: Annotated[float, Field(ge=0)] = 0.1,
    cap: Annotated[float, Field(ge=0)] = 1.0,
    weight: Annotated[PartConfig, SCHEDULE] = PartConfig(SCHEDULE, "cosine", {"start": 1.0, "end": 0.0, "over": 200}),
) -> dict[str, Floats]:
    """Pay `bonus` for every turn that uses a tool, at most `cap` per trajectory, times a decaying weight.

    Adds the reward `tool_bonus`. A tool turn is one whose raw text contains the pattern, or with `part` one where that
    reward is positive. The n-th pays min(cap, n · bonus) - min(cap, (n-1) · bonus). Source: SPEAR (Qin et al. 2025),
    where the weight is (1 + cos(π t / 200)) / 2; here t counts iterations.
    """
    uses_tool = match_turns(batch, pattern, "raw") if part is None else get_column(batch, rewards, part) > 0
    before, _ = sum_earlier(batch, uses_tool.astype(np.float64), batch.owner)
    bonuses = np.minimum(cap, bonus * (before + uses_tool)) - np.minimum(cap, bonus * before)
    return {"tool_bonus": weight(batch.clock) * bonuses}


def tool_success(
    batch: TurnBatch,
    rewards: Columns,
    *,
    sender: str = "tool",
    failed: Regex = r"^Error: |^Traceback |^\[(stopped|refused)|^\w*Error\b",
    bonus: float = 0.1,
) -> dict[str, Floats]:
    """Pay `bonus` for every turn that a tool answered without an error, as the reward `tool_success`.

    Answers are messages by `sender` that the seat reads on its next turn. A call failed if the pattern `failed` matches
    on any line of an answer. A last turn earns nothing, because its result is never observed. Source: ARTIST (Singh et
    al. 2025), which adds such a reward for tools to those for answer and format; its weights are not public.
    """
    error_pattern = Pattern(failed, lines=True)
    bonuses = np.zeros(len(batch.owner))
    for row in np.flatnonzero(~batch.last):
        answers = [message.text for message in batch.turns[row + 1].messages if message.sender == sender]
        bonuses[row] = bonus if answers and not any(answer in error_pattern for answer in answers) else 0.0
    return {"tool_success": bonuses}


def graded_failure(
    batch: TurnBatch,
    rewards: Columns,
    *,
    part: Part,
    pattern: Regex = "<code>",
    right: float = 1.0,
    wrong: float = -1.0,
    call: Annotated[float, Field(ge=0)] = 0.1,
    most: float = -0.6,
) -> dict[str, Floats]:
    """Grade failure by the number of tool calls: `right`, or min(most, wrong + call · n).

    Replaces the reward `part`, on the last turn: `right` if the trajectory's total of it is 1 or more; n is the number
    of its turns whose raw text contains the pattern. With `call` 0 all failures are alike. Source: ReTool (Feng et al.
    2025) as verl has it, min(-0.6, -1 + 0.1 (messages - 2) / 2), where a call and its result are two messages.
    """
    calls = batch.totals(match_turns(batch, pattern, "raw").astype(np.float64))
    grades = np.where(
        batch.totals(get_column(batch, rewards, part)) >= 1.0, right, np.minimum(most, wrong + call * calls)
    )
    return {part: put_on_last_turn(batch, grades)}


def pivotal(
    batch: TurnBatch, rewards: Columns, *, part: Part, goal: Part, full: Annotated[float, Field(gt=0)] = 10.0
) -> dict[str, Floats]:
    """Pay 1 on pivotal turns, the total of `goal` divided by `full` on the last turn, and 0 elsewhere.

    A turn is pivotal if a game or a judge gave it a positive reward `part`; the last turn gets only the goal's share.
    Adds the reward `pivotal`, and sets the rewards `part` and `goal` to 0. Source: EPO (explicit policy optimisation,
    ACL 2025), where a large model marks the turns and goals go up to 10; `epo_weighted` makes returns of it.
    """
    pivotal_turns = (get_column(batch, rewards, part) > 0).astype(np.float64)
    share = batch.totals(get_column(batch, rewards, goal)) / full
    zeros = np.zeros(len(pivotal_turns))
    return {part: zeros, goal: zeros, "pivotal": np.where(batch.last, share[batch.owner], pivotal_turns)}


@needs("old", "reference")
def kl_penalty(
    batch: TurnBatch,
    rewards: Columns,
    *,
    weight: Annotated[float, Field(ge=0)] = 0.01,
    kind: Literal["k1", "k2", "k3"] = "k1",
) -> dict[str, Floats]:
    """Subtract `weight` times the estimated KL to the reference policy over each turn, as the reward `kl_penalty`.

    Summed over the turn's tokens, with d = reference - old, where old is the policy before the update: k1 = -d, k2 =
    d²/2, k3 = exp(d) - d - 1. All estimate KL(old ‖ reference) for tokens drawn from `old`: k1 and k3 without bias, k2
    nearly for small KL; k1 may be negative, the others never. As a reward only k1 has the gradient of the KL, because
    turns are then also credited for the KL of the later turns that they led to. Published: 0.01 with PPO, 0.001 with
    RLOO (meow-tea-taro, verl). Zero in the first iteration, when the policy is its own reference. Source: Schulman
    2020, "Approximating KL divergence".
    """
    d = np.clip(batch.measure("reference") - batch.measure("old"), -20.0, 20.0)
    estimate = -d if kind == "k1" else d**2 / 2.0 if kind == "k2" else np.exp(d) - d - 1.0
    sums = np.bincount(batch.token_turns, estimate, len(batch.owner)).astype(np.float64)
    return {"kl_penalty": -weight * sums}
