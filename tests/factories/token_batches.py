"""Micro-batches of tokens made by hand, in float64."""

from typing import Any

import torch

from arena.learn.batches import TokenBatch


def make_floats(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def make_integers(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int64)


def make_batch(logprobs: torch.Tensor, old: torch.Tensor, advantages: torch.Tensor, **changes: Any) -> TokenBatch:
    """Each token a turn and a stream of its own, in the loss, sampled by the old weights; but for what is changed."""
    own = torch.arange(len(logprobs))
    fields: dict[str, Any] = {
        "logprobs": logprobs, "entropy": torch.ones_like(old), "old": old, "behaviour": old, "advantages": advantages,
        "turns": own, "streams": own, "places": torch.zeros_like(own), "learned": torch.ones_like(own) > 0,
    }  # fmt: skip
    return TokenBatch(**{**fields, **changes})


def compute_gradient(value: torch.Tensor, by: torch.Tensor) -> list[float]:
    """The gradient of the sum."""
    (found,) = torch.autograd.grad(value.sum(), by, retain_graph=True)
    return [float(x) for x in found]
