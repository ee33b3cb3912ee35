"""The estimator of MARS, as its paper has it: the house's default."""

from typing import Annotated

from pydantic import Field

from arena.credit.batch import Floats, Key, TurnBatch

AGENT: list[Key] = ["game", "role", "policy"]
"""Agent-specific: turns are compared within the same game, role and policy."""
Discount = Annotated[float, Field(ge=0, le=1)]


def mars(
    batch: TurnBatch, rewards: Floats, *, gamma: Discount = 1.0, by: list[Key] = AGENT, std: bool = False
) -> Floats:
    """Return-to-go of each turn minus the mean over the turns of the same game, role and policy.

    A_k = R_k - mean(R), R_k = Σ_{k' ≥ k} γ^(k'-k) r_k', the mean turn-weighted over the group; with `std` divided by
    the group's deviation. Zero where a turn's return is its group's mean. Source: MARSHAL (ICLR 2026), the paper's
    formula; the released code computes another one, `mars_released`.
    """
    return centred(batch, batch.returns(rewards, gamma), by, std)


def centred(batch: TurnBatch, values: Floats, by: list[Key], std: bool) -> Floats:
    """[T] values minus their group's mean over turns, with `std` divided by its deviation + 1e-6."""
    groups = batch.groups(by)
    gaps = values - batch.mean_by(values, groups)
    return gaps / (batch.std_by(values, groups) + 1e-6) if std else gaps
