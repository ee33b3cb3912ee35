"""Sample tokens from logits: temperature, truncation and inverse-CDF draws."""

from collections.abc import Sequence
from typing import NamedTuple

import torch


class SamplingSettings(NamedTuple):
    """Settings of a sampling distribution. Temperature 0 is greedy; `top_k` 0 and `top_p` 1 keep all tokens."""

    temperature: float
    top_k: int
    top_p: float


def compute_distributions(logits: torch.Tensor, settings: Sequence[SamplingSettings]) -> torch.Tensor:
    """Return the log-probabilities [D, V] to sample from, for float32 logits [D, V] and each row's settings.

    Excluded tokens have -inf.
    """
    if any(row.temperature not in (0, 1) for row in settings):
        logits = logits / torch.tensor([[row.temperature or 1.0] for row in settings], device=logits.device)
    logprobs = torch.log_softmax(logits, -1)
    if any(row.top_k or row.top_p < 1 for row in settings):
        logprobs = truncate(logprobs, [row.top_k for row in settings], [row.top_p for row in settings])
    if greedy := [i for i, row in enumerate(settings) if row.temperature == 0]:
        best = logprobs[greedy]
        logprobs[greedy] = torch.full_like(best, -torch.inf).scatter(-1, best.argmax(-1, keepdim=True), 0.0)
    return logprobs


def truncate(logprobs: torch.Tensor, top_k: list[int], top_p: list[float]) -> torch.Tensor:
    """Keep the top-k tokens of log-probabilities [B, V], then the smallest set with mass top-p, and renormalise.

    Other tokens get -inf. `top_k` 0 and `top_p` 1 keep all. Source: Holtzman et al. 2020, "The Curious Case of Neural
    Text Degeneration".
    """
    ordered, order = logprobs.sort(dim=-1, descending=True, stable=True)
    rank = torch.arange(logprobs.shape[-1], device=logprobs.device)
    k = torch.tensor([k or logprobs.shape[-1] for k in top_k], device=logprobs.device)
    p = torch.tensor([p if p < 1 else 2.0 for p in top_p], device=logprobs.device)  # 2: never cut by rounding
    ordered = torch.log_softmax(ordered.masked_fill(rank >= k[:, None], -torch.inf), -1)
    before = ordered.exp().cumsum(-1) - ordered.exp()
    ordered = ordered.masked_fill((before >= p[:, None]) & (rank > 0), -torch.inf)
    return torch.log_softmax(torch.full_like(logprobs, -torch.inf).scatter(-1, order, ordered), -1)


def draw_tokens(p: torch.Tensor, owners: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
    """Draw tokens [N] by inverse CDF from rows `owners` [N] of the probabilities `p` [D, V], at draws [N] in [0, 1).

    `p` is float32. Sums are float64: over blocks first, then within the block of the draw.
    """
    blocks = torch.nn.functional.pad(p, (0, -p.shape[1] % _BLOCK)).view(len(p), -1, _BLOCK)
    by_block = blocks.sum(-1, dtype=torch.double).cumsum(-1)[owners]
    mass = draws[:, None] * by_block[:, -1:]
    block = _find_first_above(by_block, mass)
    before = torch.nn.functional.pad(by_block, (1, 0)).gather(-1, block)
    within = blocks[owners, block.squeeze(-1)].double().cumsum(-1)
    at = block * _BLOCK + _find_first_above(within, mass - before)
    return at.squeeze(-1).clamp(max=p.shape[1] - 1)  # no sum of NaN exceeds the draw


_BLOCK = 256


def _find_first_above(sums: torch.Tensor, mass: torch.Tensor) -> torch.Tensor:
    """Return, as [B, 1], the first column of increasing sums [B, N] above mass [B, 1], never a column that adds 0.

    Returns the last column for NaN, because an index out of range would kill a GPU's context.
    """
    below_all = torch.nextafter(sums[:, -1:], torch.zeros_like(mass))
    return torch.searchsorted(sums, torch.minimum(mass, below_all), right=True).clamp(max=sums.shape[1] - 1)
