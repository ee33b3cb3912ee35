"""Combinations of other estimators."""

from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from arena.credit.batch import Floats, TokenAdvantages, TurnBatch, spread_to_tokens
from arena.credit.estimators.table import ESTIMATOR
from arena.parts.part_config import PartConfig


class Part(BaseModel):
    """Settings of one term of `weighted_sum`: an estimator and its weight."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    estimator: Annotated[PartConfig, ESTIMATOR]
    weight: float = 1.0


def weighted_sum(
    batch: TurnBatch, rewards: Floats, *, parts: Annotated[list[Part], Field(min_length=1)]
) -> Floats | TokenAdvantages:
    """Add up the parts' advantages, Σ weight · advantage: per token if any part gives token advantages, else per turn.

    A part's state is in `memory["weighted_sum"]`, under its position in `parts` and its estimator's name.
    """
    memories: dict[str, Any] = batch.memory.get("weighted_sum", {})
    estimates = []
    for number, part in enumerate(parts):
        key = f"{number} {part.estimator.name}"
        part_memory = memories.get(key, {})
        estimates.append(part.estimator(batch.with_memory(part_memory), rewards))
        if part_memory:
            batch.memory["weighted_sum"] = memories
            memories[key] = part_memory
    weights = [part.weight for part in parts]
    if not any(isinstance(estimate, TokenAdvantages) for estimate in estimates):
        return np.asarray(sum(w * estimate for w, estimate in zip(weights, estimates, strict=True)))
    tokens = [
        estimate.values if isinstance(estimate, TokenAdvantages) else spread_to_tokens(batch, estimate)
        for estimate in estimates
    ]
    return TokenAdvantages(np.asarray(sum(w * estimate for w, estimate in zip(weights, tokens, strict=True))))
