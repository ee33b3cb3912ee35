"""Log-probability, entropy and divergence of tokens from logits, with gradients, but no float32 copy of the logits."""

from collections.abc import Iterator
from typing import Any

import torch


class TokenScores(torch.autograd.Function):
    """Map logits [N, V] to log-probability and entropy of each of N tokens, both [N] float32.

    Works on a few rows at a time, and again in the backward pass, so that no [N, V] tensor is held in float32. With x =
    logits / temperature, p = softmax(x), H = -Σ p log p and target t: ∂ log p_t / ∂ x_j = [j = t] - p_j and ∂H / ∂ x_j
    = -p_j (log p_j + H).
    """

    @staticmethod
    def forward(
        ctx: Any, logits: torch.Tensor, targets: torch.Tensor, temperatures: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        logprobs, entropy = torch.empty_like(temperatures), torch.empty_like(temperatures)
        for rows in _chunk_rows(logits):
            log_p = log_softmax(logits[rows], temperatures[rows])
            logprobs[rows] = log_p.gather(-1, targets[rows, None]).squeeze(-1)
            entropy[rows] = -log_p.exp().mul_(log_p).sum(-1)
        ctx.save_for_backward(logits, targets, temperatures, entropy)
        return logprobs, entropy

    @staticmethod
    def backward(ctx: Any, grad_logprobs: torch.Tensor, grad_entropy: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        logits, targets, temperatures, entropy = ctx.saved_tensors
        gradient = torch.empty_like(logits)
        for rows in _chunk_rows(logits):
            log_p = log_softmax(logits[rows], temperatures[rows])
            p = log_p.exp()
            slope = log_p.add_(entropy[rows, None]).mul_(p).mul_(-grad_entropy[rows, None])
            slope -= p.mul_(grad_logprobs[rows, None])
            slope.scatter_add_(-1, targets[rows, None], grad_logprobs[rows, None])
            gradient[rows] = slope.div_(temperatures[rows, None])
        return gradient, None, None


class Divergence(torch.autograd.Function):
    """Map logits [N, V] and a teacher's log-probabilities [N, V] to KL(p ‖ teacher) of each of N tokens, [N] float32.

    Works on a few rows at a time, as `TokenScores`. With x = logits / temperature, p = softmax(x) and d = log p -
    teacher: KL = Σ p d, and ∂KL / ∂ x_j = p_j (d_j - KL). Banned ids (p = 0) add nothing.
    """

    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor, teacher: torch.Tensor, temperatures: torch.Tensor) -> torch.Tensor:
        divergence = torch.empty_like(temperatures)
        for rows in _chunk_rows(logits):
            divergence[rows] = _weigh_gaps(logits[rows], teacher[rows], temperatures[rows])[1].sum(-1)
        ctx.save_for_backward(logits, teacher, temperatures, divergence)
        return divergence

    @staticmethod
    def backward(ctx: Any, grad_divergence: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        logits, teacher, temperatures, divergence = ctx.saved_tensors
        gradient = torch.empty_like(logits)
        for rows in _chunk_rows(logits):
            p, weighted = _weigh_gaps(logits[rows], teacher[rows], temperatures[rows])
            slope = weighted.sub_(p.mul_(divergence[rows, None]))
            gradient[rows] = slope.mul_(grad_divergence[rows, None] / temperatures[rows, None])
        return gradient, None, None


def _weigh_gaps(
    logits: torch.Tensor, teacher: torch.Tensor, temperatures: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return p and p (log p - teacher) of logits [N, V]. Both are 0 where p is 0."""
    log_p = log_softmax(logits, temperatures)
    p = log_p.exp()
    return p, (log_p - teacher).mul_(p).masked_fill_(p == 0.0, 0.0)


def log_softmax(logits: torch.Tensor, temperatures: torch.Tensor) -> torch.Tensor:
    """Return log softmax(logits / temperature) of each row in float32, [N, V]."""
    return torch.log_softmax(logits.float() / temperatures[:, None], -1)


def _chunk_rows(logits: torch.Tensor) -> Iterator[slice]:
    """Yield slices of the rows of a matrix [N, V], small enough for a CPU's cache in float32 or to keep a GPU busy."""
    step = max(1, (1 << 20 if logits.device.type == "cpu" else 1 << 26) // logits.shape[1])
    return (slice(start, start + step) for start in range(0, len(logits), step))
