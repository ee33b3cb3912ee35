"""The matched-random control of a correction: the same weights, dealt again, so that they say nothing.

Importing this module puts it among Arena's corrections; it is of use to these studies alone.
"""

import torch

from arena.learn.batches import TokenBatch
from arena.learn.corrections import CORRECTIONS, truncated


def truncated_permuted(tokens: TokenBatch, *, cap: float = 2.0) -> torch.Tensor:
    """The weights of `truncated`, dealt to other tokens, the same way every time for the same number of tokens."""
    weights = truncated(tokens, cap=cap)
    generator = torch.Generator().manual_seed(tokens.clock.iteration)
    return weights[torch.randperm(len(weights), generator=generator)]


CORRECTIONS["truncated_permuted"] = truncated_permuted
