"""Divergence: checks that an update's numbers are finite.

A step counts if its gradient norm is finite, which fails for a non-finite loss. An update counts if after its last step
the weights and their log-probabilities of one stream are finite.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

from arena.errors import DivergedError
from arena.learn.ranks import max_over_ranks

if TYPE_CHECKING:
    import torch

Nonfinite = Literal["stop", "skip"]
"""Treatment of a step whose gradient is not finite."""


def is_finite_step(
    norm: float,
    rule: Nonfinite,
    label: str,
    advice: str,
    quantity: str = "the gradient's norm",
    setting: str = "learn.nonfinite",
) -> bool:
    """Return True if the gradient norm is finite, False if the step must be skipped because it is not.

    Raises DivergedError instead of returning False if `rule`, the value of `setting`, is "stop". The other arguments
    are parts of the message.
    """
    if math.isfinite(norm):
        return True
    if rule == "stop":
        raise DivergedError(
            f"{label}: {quantity} is {norm}, so the update does not count: {advice}, "
            f"or skip such steps with {setting}=skip"
        )
    return False


def require_finite(tensors: Iterable[torch.Tensor], label: str, finding: str, advice: str) -> None:
    """Raise DivergedError unless the tensors' norm is finite on all ranks. The texts are for its message."""
    import torch  # here, because the critic `linear` works without torch

    norm = max_over_ranks(float(torch.nn.utils.get_total_norm([t.detach() for t in tensors])))
    if not math.isfinite(norm):
        raise DivergedError(f"{label}: {finding} (norm {norm}), so the update does not count: {advice}")
