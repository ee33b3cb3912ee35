"""Regularisers: terms that are added to each token's loss and do not depend on its advantage.

A regulariser is `regulariser(tokens, loss, *, settings) -> [N] float`, the term to add to each token's loss; the
aggregate weights it like the loss. `loss` is the `TokenLoss` of the update's loss, for regularisers that remove parts
of it. Mark a regulariser that reads `tokens.reference` with `needs("reference")`, one that reads `tokens.divergence`
with `needs("reference", "distribution")`, and one with state over updates with `remembers(…)`. A `weight` is a number
or a schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import AfterValidator, Field

from arena.learn.batches import TokenBatch
from arena.learn.losses import TokenLoss
from arena.parts.part_config import Kind, PartConfig, part
from arena.parts.schedules import SCHEDULE, Clock

if TYPE_CHECKING:
    import torch


def _require_not_negative(weight: PartConfig) -> PartConfig:
    if isinstance(weight.to_plain(), float | int) and weight.to_plain() < 0:
        raise ValueError("must be at least 0: a negative weight would push the policy away")
    return weight


Weight = Annotated[PartConfig, SCHEDULE]
Hold = Annotated[PartConfig, SCHEDULE, AfterValidator(_require_not_negative)]
Turns = Annotated[dict[Annotated[int, Field(ge=0, strict=False)], Hold], Field(min_length=1)]
Ratio = Annotated[float, Field(ge=0)]


class Memory(NamedTuple):
    """Functions that update the state of a regulariser, which it reads as `tokens.memory[name]`."""

    collect: Callable[[TokenBatch], Any]
    """Return statistics of a micro-batch, as JSON."""
    merge: Callable[[Any, Clock, Any], Any]
    """(state, clock, statistics): return the state, None at first, updated with a micro-batch's statistics."""


def remembers(collect: Callable[[TokenBatch], Any], merge: Callable[[Any, Clock, Any], Any]) -> Callable[[Any], Any]:
    """Return a decorator that gives a regulariser state between updates; `collect` and `merge` as in `Memory`."""

    def mark(function: Any) -> Any:
        function.memory = Memory(collect, merge)
        return function

    return mark


def find_memories(names: Iterable[str]) -> dict[str, Memory]:
    """Return the `Memory` of the stateful regularisers among `names`, by name."""
    memories = {name: getattr(part(REGULARISER, name), "memory", None) for name in names}
    return {name: memory for name, memory in memories.items() if memory}


def kl(
    tokens: TokenBatch,
    loss: TokenLoss,
    *,
    weight: Hold = PartConfig(SCHEDULE, "constant", {"value": 0.01}),
    estimate: Literal["k1", "k2", "k3", "exact"] = "k3",
    turns: Turns | None = None,
) -> torch.Tensor:
    """Return `weight` times the KL to the reference policy per token, exact or estimated, to add to the loss.

    With d = log π - log ref of a token drawn from π (Schulman 2020, "Approximating KL divergence"):

    | estimate | value | its mean | its gradient's mean |
    |---|---|---|---|
    | k1 | d | KL(π ‖ ref) | 0: only noise. Use it in a reward, not in a loss |
    | k2 | d²/2 | not the KL | that of KL(π ‖ ref), exactly |
    | k3 | exp(-d) + d - 1 | KL(π ‖ ref), never negative | that of KL(ref ‖ π); the same near ref |
    | exact | Σ π (log π - log ref) over the vocabulary | KL(π ‖ ref) | that of KL(π ‖ ref), without noise |

    `exact` stores the reference's log-probabilities of all ids for an update's tokens: 0.2 MB per token with SmolLM2.

    The table holds for tokens drawn from the current weights, and for each token's own distribution; no gradient
    includes a token's effect on later states. TRL's default, k3 times the ratio (DeepSeek-V3.2), has the same mean
    gradient as k2. `turns` are weights by the turn's position in its trajectory, from 0, which replace `weight` there:
    SCoRe (Kumar et al. 2024) uses .01 for all turns, and in its first stage .5 for the first attempt, {"0": .5}.
    """
    assert tokens.reference is not None
    scale = tokens.logprobs.new_full((len(tokens.logprobs),), weight(tokens.clock))
    for place, other in (turns or {}).items():
        scale[tokens.places == place] = other(tokens.clock)
    if estimate == "exact":
        assert tokens.divergence is not None
        return scale * tokens.divergence
    return scale * ESTIMATES[estimate](tokens.logprobs, tokens.reference)


kl.needs = lambda *, weight, estimate, turns: ("reference", "distribution")[: 1 + (estimate == "exact")]  # type: ignore[attr-defined]


def k1(logprobs: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
    """Return Schulman's k1 estimate of KL(policy ‖ reference) per token, [N]: d = logprobs - reference."""
    return logprobs - reference


def k2(logprobs: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
    """Return Schulman's k2 estimate of KL(policy ‖ reference) per token, [N]: d²/2 with d = logprobs - reference."""
    return (logprobs - reference) ** 2 / 2.0


def k3(logprobs: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
    """Return Schulman's k3 estimate of KL(policy ‖ reference) per token, [N]: exp(-d) + d - 1.

    d = logprobs - reference, clamped to ±20. Unbiased for tokens drawn from the policy, and never negative.
    """
    d = (logprobs - reference).clamp(-20.0, 20.0)
    return (-d).exp() + d - 1.0


ESTIMATES: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {"k1": k1, "k2": k2, "k3": k3}


def entropy(
    tokens: TokenBatch, loss: TokenLoss, *, weight: Weight = PartConfig(SCHEDULE, "constant", {"value": 0.0})
) -> torch.Tensor:
    """Return the entropy bonus per token, to add to the loss: minus `weight` times the entropy of its distribution.

    Common values: .001 (UFO, EPO); DAPO and GSPO use no bonus.
    """
    scale: float = weight(tokens.clock)
    return -scale * tokens.entropy


def _get_entropy_statistics(memory: Mapping[str, Any] | None, clock: Clock, places: int) -> list[np.ndarray]:
    """Return [mean, iterations, sums, counts] by turn position, for at least `places` positions.

    `mean` and `iterations` describe the entropies of past iterations. `sums` and `counts` are over the tokens in the
    loss of the current iteration; they are added to the past once the clock shows the next iteration.
    """
    memory = memory or {"now": clock.iteration}
    mean, iterations, sums, counts = (_pad(memory.get(name, []), places) for name in _STATISTICS)
    if memory["now"] != clock.iteration:
        seen = counts > 0
        iterations += seen
        mean += np.where(seen, sums / np.maximum(counts, 1.0) - mean, 0.0) / np.maximum(iterations, 1.0)
        sums, counts = np.zeros_like(sums), np.zeros_like(counts)
    return [mean, iterations, sums, counts]


def _sum_entropies(tokens: TokenBatch) -> list[list[float]]:
    """Return a micro-batch's [sums of entropies, counts of tokens] in the loss, each a list by turn position."""
    own, size = tokens.learned, _count_positions(tokens)
    places = tokens.places[own].cpu().numpy()
    sums = np.bincount(places, tokens.entropy.detach()[own].double().cpu().numpy(), size)
    return [sums.tolist(), np.bincount(places, minlength=size).astype(float).tolist()]


def _add_entropies(memory: Mapping[str, Any] | None, clock: Clock, seen: list[list[float]]) -> dict[str, Any]:
    """Return the state `memory` with one micro-batch's sums and counts (`seen`) added."""
    values = _get_entropy_statistics(memory, clock, len(seen[0]))
    for value, more in zip(values[2:], seen, strict=True):
        value += _pad(more, len(value))
    return {"now": clock.iteration} | {name: value.tolist() for name, value in zip(_STATISTICS, values, strict=True)}


def _count_positions(tokens: TokenBatch) -> int:
    return int(tokens.places.max()) + 1 if len(tokens.places) else 0


_STATISTICS = ("mean", "iterations", "sums", "counts")


def _pad(values: list[float], size: int) -> np.ndarray:
    return np.array([*values, *[0.0] * (size - len(values))], np.float64)


@remembers(_sum_entropies, _add_entropies)
def entropy_band(
    tokens: TokenBatch,
    loss: TokenLoss,
    *,
    low: Ratio = 0.8,
    high: Ratio = 1.2,
    weight: Hold = PartConfig(SCHEDULE, "constant", {"value": 1e-4}),
    level: Literal["token", "turn"] = "token",
) -> torch.Tensor:
    """EPO: penalise entropy outside a band around its past mean, by `weight` times the distance.

    For the k-th turn of a trajectory, the past mean Hbar[k] is the mean over past iterations of the mean entropy of the
    tokens in the loss at that turn. The term is `weight` times max(0, low Hbar - H, H - high Hbar), where H is the
    token's entropy, or with `level: turn` (EPO's `seq`) the mean of its turn. The gradient with respect to H is ±weight
    outside the band and 0 inside. The term is 0 in the first iteration, and at turns that no iteration has reached.

    This is a reconstruction of EPO (Xu et al. 2025). The released penalty is a constant alpha outside the band and 0
    inside: its gradient is zero everywhere, so it changes only the logged loss. Other differences of the released code:
    it penalises only micro-batches with a step beyond half of the allowed number; it pads short histories in front with
    zeros, which shifts them to later steps; its past includes the update's own play. Presets (low/high, alpha times its
    entropy weight .001): .8/1.2, 1e-4; .5/1.5; 0/2, 5e-5 (ScienceWorld) or 1e-4 (ALFWorld).
    """
    import torch

    scale: float = weight(tokens.clock)
    mean, iterations, *_ = _get_entropy_statistics(
        tokens.memory.get("entropy_band"), tokens.clock, _count_positions(tokens)
    )
    past, entropies = np.where(iterations > 0, mean, np.nan), tokens.entropy
    if level == "turn":
        entropies = tokens.mean_by(tokens.turns, entropies)
    past_entropy = torch.as_tensor(past, dtype=entropies.dtype, device=entropies.device)[tokens.places]
    outside = torch.relu(low * past_entropy - entropies) + torch.relu(entropies - high * past_entropy)
    return scale * torch.where(past_entropy.isnan(), torch.zeros_like(outside), outside)


def covariance_clip(
    tokens: TokenBatch,
    loss: TokenLoss,
    *,
    share: Annotated[float, Field(gt=0, le=1)] = 0.02,
    low: float = 1.0,
    high: float = 40.0,
    of: Literal["all", "replayed"] = "all",
) -> torch.Tensor:
    """Clip-Cov: remove the loss of a few tokens with a high covariance of advantage and log-probability.

    Returns minus the loss for these tokens and 0 for all others. Candidates are the tokens with low < (A - mean A)
    (log π - mean log π) < high, because learning from them reduces entropy. Means are over the micro-batch's tokens in
    the loss, so the selection depends on `token_budget`. With `of: replayed`, only replayed tokens count and are
    affected. Tokens that the loss has clipped are no candidates, and there are none if all advantages are equal.

    At most a `share` of the tokens is removed, but at least one if there is a candidate. If there are more candidates,
    the removed ones are evenly spaced; the released code draws them at random, so equal batches may differ there.
    Presets (share, low to high): Clip-Cov (Cui et al. 2025) 2e-4, 1 to 5; SPEAR (Qin et al. 2025) `of: replayed`, .02,
    1 to 40, or 2 to 60 in its ALFWorld and WebShop scripts.
    """
    import torch

    own, logprobs = tokens.learned, tokens.logprobs.detach()
    if of == "replayed":
        own = own & tokens.replayed if tokens.replayed is not None else torch.zeros_like(own)
    if not own.any():
        return torch.zeros_like(loss.loss)
    middle = (tokens.advantages[own].mean(), logprobs[own].mean())
    covariance = (tokens.advantages - middle[0]) * (logprobs - middle[1])
    candidates = torch.nonzero(own & ~loss.clipped & (covariance > low) & (covariance < high)).squeeze(-1)
    count = min(len(candidates), max(1, int(share * int(own.sum()))))
    spaced = torch.arange(count, device=own.device) * len(candidates) // max(1, count)
    removed = torch.zeros_like(loss.loss).index_fill(0, candidates[spaced], 1.0)
    return -loss.loss * removed


REGULARISERS: dict[str, Callable[..., torch.Tensor]] = {
    f.__name__: f for f in (kl, entropy, entropy_band, covariance_clip)
}
REGULARISER = Kind("regulariser", REGULARISERS)
