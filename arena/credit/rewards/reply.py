"""Rewards for the form of a reply: validity, format and length."""

from typing import Annotated

import numpy as np
from pydantic import Field

from arena.credit.batch import Floats, TurnBatch
from arena.credit.rewards.columns import Columns, Regex, Text, match_turns

Tokens = Annotated[int, Field(ge=1, le=10**9)]


def valid_act(batch: TurnBatch, rewards: Columns, *, bonus: float = 0.1) -> dict[str, Floats]:
    """Pay `bonus` for every act that the game could read and allow, as the reward `valid_act`."""
    return {"valid_act": bonus * batch.column(lambda turn: turn.valid)}


def format(
    batch: TurnBatch,
    rewards: Columns,
    *,
    pattern: Regex | None = None,
    text: Text = "raw",
    match: float = 0.0,
    miss: float = -1.0,
) -> dict[str, Floats]:
    """Pay `match` for a reply that contains the pattern, or without a pattern for a valid act; else `miss`.

    The pattern is searched for in the turn's `text`; \\A and \\Z anchor it, (?s) lets a dot match newlines. Adds
    `format`. Published values of `miss` for malformed tags: -1 (ARPO), -2 (IGPO, instead of the outcome).
    """
    good = batch.column(lambda turn: turn.valid) > 0 if pattern is None else match_turns(batch, pattern, text)
    return {"format": np.where(good, match, miss)}


def cut_off(batch: TurnBatch, rewards: Columns, *, penalty: float = 0.1) -> dict[str, Floats]:
    """Subtract `penalty` for a reply cut off by its token limit, as the reward `cut_off`."""
    return {"cut_off": -penalty * batch.column(lambda turn: turn.finish == "length")}


def length(
    batch: TurnBatch, rewards: Columns, *, penalty: float = 0.001, free: Annotated[int, Field(ge=0, le=10**9)] = 0
) -> dict[str, Floats]:
    """Subtract `penalty` for every token of a reply beyond the first `free`, as the reward `length`.

    MARSHAL's release: 0.5 · max(0, (tokens - 2048) / 2037), which is `penalty: 2.4546e-4, free: 2048`.
    """
    return {"length": -penalty * np.maximum(0.0, batch.column(lambda turn: turn.tokens) - free)}


def overlong(
    batch: TurnBatch, rewards: Columns, *, max_tokens: Tokens, buffer: Tokens, weight: float = 1.0
) -> dict[str, Floats]:
    """Penalise long replies as DAPO: from 0 at max_tokens - buffer tokens down to -weight at max_tokens.

    The reward `overlong` is weight · clip((max_tokens - buffer - tokens) / buffer, -1, 0), by the tokens of each turn.
    `max_tokens` is usually the role's own limit. Source: DAPO (Yu et al. 2025), which penalises a whole response, as
    its replies are one turn.
    """
    tokens = batch.column(lambda turn: turn.tokens)
    return {"overlong": weight * np.clip((max_tokens - buffer - tokens) / buffer, -1.0, 0.0)}
