"""Stage kind `expert_iteration`: play, select the best trajectories, imitate them, and repeat with new weights."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from arena.errors import ConfigError
from arena.parts.spec import Matches, Positive
from arena.stages.base import StageContext
from arena.stages.offline import Share, make_imitation


def expert_iteration(
    context: StageContext,
    *,
    iterations: Positive,
    at_least: float | None = None,
    best: Share = 1.0,
    group: Matches = 1,
    of: str | None = None,
    filter: Literal["none", "low", "high", "both"] = "none",
    deviations: Annotated[float, Field(gt=0)] = 1.0,
) -> Mapping[str, Any]:
    """Play, select trajectories by return (`at_least`, and the top share `best` of their deal), and imitate them.

    The return is the sum of all rewards, or of the game's reward `of`. A deal is played `group` times, so `best` of
    1 / group selects the best trajectory, or several that tie. Each iteration continues from the weights of the one
    before. To train the base weights on what the newest weights sampled (STaR, Zelikman et al. 2022; BFS-Prover's soft
    reset, Xin et al. 2025), write stages in turn: `play` with `learn: {lr: 0.0}`, then `offline` on its log with
    `method: filtered_bc`, `at_least` and `start: base`. `filter` drops turns of selected trajectories whose surprise is
    more than `deviations` standard deviations below (`low`) or above (`high`) the mean (BFS-Prover's tactic filter;
    selector `surprise`). Raises ConfigError if all trajectories would be selected.
    """
    if at_least is None and best == 1.0:
        raise ConfigError("give `at_least`, or `best` below 1: else every trajectory would be imitated")
    top = {"share": best, "at_least": at_least, "by": ["game", "seed", "role"], "of": of}
    tails = [] if filter == "none" else [{"surprise": {"drop": filter, "deviations": deviations}}]
    return {
        "iterations": iterations,
        "play": {"group": group},
        **make_imitation([{"top_returns": top}, *tails]),
    }
