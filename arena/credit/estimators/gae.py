"""Generalised advantage estimation over turns, over sampled tokens, and over both levels.

All use δ_t = r_t + γ V_{t+1} - V_t and A_t = δ_t + γ λ A_{t+1} (Schulman et al. 2016), with values that the critic
predicted before it learned from these trajectories. The value after the end of a match is 0: a game's own limit is an
end, and aborted matches get no credit at all. Only sampled tokens are steps. Observed tokens between them are skipped,
so the advantages do not depend on their number. Turn ids, not rewards, mark the end of a turn. Advantages are not
whitened here; `transforms: [whiten]` does that, over the same tokens as verl's estimator.
"""

from typing import NamedTuple

import numpy as np

from arena.credit.batch import Bools, Floats, Ints, TokenAdvantages, TurnBatch
from arena.credit.estimators.mars import Discount
from arena.parts.part_config import PartConfig, needs


@needs("values")
def gae_turn(batch: TurnBatch, rewards: Floats, *, gamma: Discount = 1.0, lam: Discount = 1.0) -> Floats:
    """Compute GAE along a trajectory's turns, with a critic's value of each turn.

    δ_k = r_k + γ V_{k+1} - V_k, A_k = δ_k + γ λ A_{k+1}; [T]. With V = 0 and γ = λ = 1 it is the return-to-go; with the
    group's mean turn return as V it is `mars`. Zero if the critic predicts the returns exactly. Source: Schulman et al.
    2016, with turns for steps.
    """
    values = batch.measure("values")
    return batch.scan_backward(
        _compute_td_errors(rewards, values, batch.last, gamma), np.full(len(rewards), gamma * lam)
    )


@needs("token_values")
def gae_token(batch: TurnBatch, rewards: Floats, *, gamma: Discount = 1.0, lam: Discount = 1.0) -> TokenAdvantages:
    """Compute GAE along a trajectory's sampled tokens; a turn's reward arrives at its last token.

    δ_t = r_t + γ V_{t+1} - V_t, A_t = δ_t + γ λ A_{t+1}; [N], where t + 1 is the next *sampled* token in any turn or
    stream. The reward of a turn without tokens arrives at the last token before it, and is lost if there is none. Zero
    if the critic predicts the returns exactly. Source: PPO for language models as in verl, whose recursion carries
    value and advantage unchanged through observed tokens.
    """
    last = _mark_ends(batch.owner[batch.token_turns])
    return TokenAdvantages(
        _compute_gae(_move_to_tokens(batch, rewards), batch.measure("token_values"), last, gamma, lam)
    )


@needs("token_values")
def gae_bilevel(
    batch: TurnBatch, rewards: Floats, *, gamma: Discount = 1.0, lam: Discount = 1.0, turn_gamma: Discount = 0.95
) -> TokenAdvantages:
    """Compute GAE over the last tokens of turns, discounted by `turn_gamma`; then GAE over tokens inside each turn.

    First GAE(turn_gamma, λ) over turn ends gives each turn's value A + V. With that value as the reward, GAE(γ, λ) runs
    from the turn's end to its first token and never across turns; [N]. Source: RAGEN (Wang et al. 2025), which
    recognises turn ends by nonzero rewards, so that turns without reward merge into the next; here turn ids mark them.
    """
    values, rewards = batch.measure("token_values"), _move_to_tokens(batch, rewards)
    ends = np.flatnonzero(_mark_ends(batch.token_turns))
    last = _mark_ends(batch.owner[batch.token_turns])[ends]
    turn_values = np.zeros(len(values))
    turn_values[ends] = _compute_gae(rewards[ends], values[ends], last, turn_gamma, lam) + values[ends]
    return TokenAdvantages(_compute_gae(turn_values, values, _mark_ends(batch.token_turns), gamma, lam))


class Discounts(NamedTuple):
    """Discount factors of an estimator from token to token and from turn to turn, for the returns of its critic."""

    token: float = 1.0
    """Factor from each token to the next of the same turn."""
    turn: float | None = 1.0
    """Factor from each turn to the next; None if tokens alone are discounted, across turns too."""


def read_discounts(estimator: PartConfig) -> Discounts:
    """Return an estimator's discount factors from its settings `gamma` and `turn_gamma`, 1 by default.

    A combined estimator has those of its first part that needs a critic.
    """
    settings = estimator.with_defaults().settings
    if "gamma" not in settings:
        inner = [part for part in estimator.parts if part.needs & {"values", "token_values"}]
        return read_discounts(inner[0]) if inner else Discounts()
    gamma = float(settings["gamma"])
    return Discounts(gamma, settings.get("turn_gamma")) if "token_values" in estimator.needs else Discounts(1.0, gamma)


def compute_turn_returns(batch: TurnBatch, rewards: Floats, discounts: Discounts) -> Floats:
    """Return each turn's discounted return-to-go at its last token, [T].

    The next turn's return is discounted by `discounts.turn`, or if that is None by `discounts.token` per token of the
    next turn.
    """
    following = np.append(batch.turn_tokens, 0)[1:]
    carry = discounts.token**following if discounts.turn is None else np.full(len(rewards), discounts.turn)
    return batch.scan_backward(rewards, carry.astype(np.float64))


def compute_token_returns(batch: TurnBatch, rewards: Floats, discounts: Discounts) -> Floats:
    """Return each sampled token's return, [N]: its turn's return, discounted by the tokens left in the turn."""
    turns = batch.token_turns
    remaining = np.cumsum(batch.turn_tokens)[turns] - 1 - np.arange(len(turns))
    return np.asarray(discounts.token**remaining * compute_turn_returns(batch, rewards, discounts)[turns])


def _mark_ends(labels: Ints) -> Bools:
    """Return a mask, True for each last entry of a run of equal labels."""
    return np.append(labels[1:] != labels[:-1], True)[: len(labels)]


def _move_to_tokens(batch: TurnBatch, rewards: Floats) -> Floats:
    """Return the rewards per sampled token, [N]: each turn's reward at its last token, 0 elsewhere.

    The reward of a turn without tokens goes to the last token before it in the trajectory; it is lost if there is none.
    """
    turns = batch.token_turns
    last_tokens = np.searchsorted(turns, np.arange(len(rewards)), side="right") - 1
    has_token = last_tokens >= 0
    has_token[has_token] = batch.owner[turns[last_tokens[has_token]]] == batch.owner[has_token]
    return np.bincount(last_tokens[has_token], rewards[has_token], len(turns)).astype(np.float64)


def _compute_gae(rewards: Floats, values: Floats, last: Bools, gamma: float, lam: float) -> Floats:
    """Return the advantages of steps, [N], by GAE along the runs of steps that end where `last` is True."""
    return _scan_backward(_compute_td_errors(rewards, values, last, gamma), np.where(last, 0.0, gamma * lam))


def _compute_td_errors(rewards: Floats, values: Floats, last: Bools, gamma: float) -> Floats:
    """Return the TD errors δ = r + γ V(next) - V, with V(next) = 0 at the end of a run, where `last` is True."""
    return np.asarray(rewards + gamma * np.where(last, 0.0, np.roll(values, -1)) - values)


def _scan_backward(values: Floats, carry: Floats) -> Floats:
    """Return x_t = values_t + carry_t · x_{t+1} for all steps, [N]; the last carry is 0.

    Each pass doubles every step's horizon (Hillis and Steele's scan), so a thousand tokens take ten passes.
    """
    sums, carry, span = values.astype(np.float64, copy=True), carry.copy(), 1
    while span < len(sums) and carry.any():
        sums[:-span] += carry[:-span] * sums[span:]
        carry[:-span] *= carry[span:]
        span *= 2
    return sums
