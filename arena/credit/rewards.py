"""Reward stages: each adds named rewards to a turn; a weighted sum of all names is the turn's reward."""

from collections.abc import Callable, Mapping, Sequence

from arena.records import Trajectory, Turn

Stage = Callable[[Turn, Mapping[str, float]], dict[str, float]]
"""(turn, the stage's parameters) -> named rewards to add to the turn."""


def valid_act(turn: Turn, parameters: Mapping[str, float]) -> dict[str, float]:
    """`bonus` for every act that the game could read and allow."""
    return {"valid_act": parameters.get("bonus", 0.1)} if turn.valid else {}


def overlong(turn: Turn, parameters: Mapping[str, float]) -> dict[str, float]:
    """`penalty` for a reply cut off by its token limit, linear from `free` tokens on when that is given.

    Source of the linear ramp: DAPO's soft overlong punishment (Yu et al. 2025).
    """
    penalty, free = parameters.get("penalty", 0.1), parameters.get("free")
    if free is not None:
        return {"overlong": -penalty * max(0.0, turn.tokens - free)}
    return {"overlong": -penalty} if turn.finish == "length" else {}


STAGES: dict[str, Stage] = {"valid_act": valid_act, "overlong": overlong}


def turn_rewards(
    trajectory: Trajectory,
    stages: Sequence[tuple[str, Mapping[str, float]]],
    weights: Mapping[str, float],
) -> list[float]:
    """One number per turn: Σ weight[name] · reward[name], the game's and the stages' rewards alike.

    A name without a weight counts once.
    """
    totals = []
    for turn in trajectory.turns:
        named = dict(turn.rewards)
        for name, parameters in stages:
            for part, value in STAGES[name](turn, parameters).items():
                named[part] = named.get(part, 0.0) + value
        totals.append(sum(weights.get(name, 1.0) * value for name, value in named.items()))
    return totals
