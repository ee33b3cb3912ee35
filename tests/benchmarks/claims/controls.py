"""Matched-random controls of parts other than estimators: the same numbers, dealt anew, so that they say nothing.

Importing this module puts them among Arena's parts; they are of use to these studies alone.
"""

from collections.abc import Mapping

import numpy as np
import torch

from arena.credit.batch import Floats, Key, TurnBatch
from arena.credit.rewards import STAGES
from arena.learn.batches import TokenBatch
from arena.learn.corrections import CORRECTIONS, truncated


def permuted(
    batch: TurnBatch, rewards: Mapping[str, Floats], *, name: str, by: list[Key] = ["seed", "turn"]
) -> dict[str, Floats]:  # fmt: skip
    """A column dealt anew among the turns of each group, here those of the same deal and number."""
    if name not in rewards:
        return {}
    groups = batch.groups(by)
    dealt = np.empty_like(rewards[name])
    dealt[np.argsort(groups, kind="stable")] = rewards[name][np.lexsort((batch.rng.random(len(groups)), groups))]
    return {name: dealt}


def truncated_permuted(tokens: TokenBatch, *, cap: float = 2.0) -> torch.Tensor:
    """The weights of `truncated`, dealt to other tokens, the same way every time for the same number of tokens."""
    weights = truncated(tokens, cap=cap)
    generator = torch.Generator().manual_seed(tokens.clock.iteration)
    return weights[torch.randperm(len(weights), generator=generator)]


STAGES["permuted"] = permuted
CORRECTIONS["truncated_permuted"] = truncated_permuted
