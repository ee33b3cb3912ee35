"""Micro-batches of tokens, in float64."""

from typing import Any

import torch

from arena.learn.batches import TokenBatch


def make_floats(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def make_integers(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int64)


def make_batch(logprobs: torch.Tensor, old: torch.Tensor, advantages: torch.Tensor, **changes: Any) -> TokenBatch:
    """Return a batch in which each token is its own turn and stream, on-policy and in the loss, with changes."""
    positions = torch.arange(len(logprobs))
    fields: dict[str, Any] = {
        "logprobs": logprobs, "entropy": torch.ones_like(old), "old": old, "behaviour": old, "advantages": advantages,
        "turns": positions, "streams": positions, "places": torch.zeros_like(positions),
        "learned": torch.ones_like(positions) > 0,
    }  # fmt: skip
    return TokenBatch(**{**fields, **changes})


def compute_gradient(value: torch.Tensor, variable: torch.Tensor) -> list[float]:
    """Return the gradient of the sum."""
    (gradient,) = torch.autograd.grad(value.sum(), variable, retain_graph=True)
    return [float(x) for x in gradient]
