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
    """Return True if the gradient norm is finite, and False if the step must be skipped.

    Raises DivergedError if the norm is not finite and `rule` is `stop`. The other arguments are texts for its message;
    `setting` is the name of the setting with the rule.
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
