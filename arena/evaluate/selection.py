"""Selection of one match among several of the same deal, and the expected result of best-of-k.

Rules: `majority` selects the first match with the most frequent answer (self-consistency, Wang et al. 2022), `p_yes`
the match whose answer the judge most probably calls right, `reward_model` the match with the highest score, and
`oracle` the truly best match, whose success is pass@k. Ties go to the match sampled first.

Best-of-k is estimated from n matches of a deal for every k up to n. For a rule that selects the highest value, the mean
over all subsets of k matches is exact: if x_1, …, x_n are the results in ascending order of the rule's values, it is

    Σ_i x_i · C(i - 1, k - 1) / C(n, k)

This is unbiased. For `oracle` and successes of 0 and 1 it equals 1 - C(n - c, k) / C(n, k), with c successes (pass@k,
Chen et al. 2021). `majority` has no closed form and is averaged over seeded random subsets.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from agents.players.voting import elect

Rule = Literal["majority", "p_yes", "reward_model", "oracle"]
RULES: tuple[Rule, ...] = get_args(Rule)
Figure = Literal["success", "score", "payoff"]
FIGURES: tuple[Figure, ...] = get_args(Figure)
SUBSETS = 256
"""Random subsets of each size over which `majority` is averaged."""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Finished match to select from: its answer, result, costs and judges' scores."""

    answer: str
    """The seat's answer in canonical form, "" for none."""
    success: float
    score: float
    payoff: float
    tokens: int = 0
    """Tokens that the contender sampled, including those that its decoding discarded."""
    turns: int = 0
    """Acts of the contender."""
    p_yes: float = -math.inf
    """Probability that the judge says yes; -inf if it could not read the match."""
    reward_model: float = -math.inf


def select_match(samples: Sequence[Sample], rule: Rule) -> int:
    """Return the index of the match that the rule selects."""
    return elect([sample.answer for sample in samples]) if rule == "majority" else _rank(samples, rule)[-1]


def average_results(samples: Sequence[Sample]) -> dict[Figure, float]:
    """Return the mean result of a single match."""
    return estimate_best_of(samples, "oracle", 1)  # with k = 1 the rule does not matter


def estimate_best_of(samples: Sequence[Sample], rule: Rule, k: int, seed: Sequence[int] = ()) -> dict[Figure, float]:
    """Return the expected result of the rule's selection among k random matches of `samples`.

    `samples` are in the order of sampling. `seed` determines the random subsets of `majority`. Raises ValueError for k
    outside 1..len(samples).
    """
    n = len(samples)
    if not 1 <= k <= n:
        raise ValueError(f"the best of {k} matches cannot be estimated from {n}")
    if rule == "majority" and 1 < k < n:
        rng = np.random.default_rng([*seed])
        subsets = [sorted(rng.permutation(n)[:k].tolist()) for _ in range(SUBSETS)]
        best_samples = [subset[select_match([samples[i] for i in subset], rule)] for subset in subsets]
        weights = {i: best_samples.count(i) / SUBSETS for i in dict.fromkeys(best_samples)}
    elif rule == "majority" and k == n:
        weights = {select_match(samples, rule): 1.0}
    else:
        ranked = _rank(samples, "oracle" if rule == "majority" else rule)  # for k = 1 any order gives the mean
        weights = {place: math.comb(rank, k - 1) / math.comb(n, k) for rank, place in enumerate(ranked)}
    # The weights sum to 1 only up to rounding, and intervals reject a success above 1.
    return {name: round(math.fsum(w * getattr(samples[i], name) for i, w in weights.items()), 12) for name in FIGURES}


def list_curve_sizes(n: int) -> list[int]:
    """Return the numbers of matches of a curve: the powers of two below n, and n."""
    return [*(1 << power for power in range((n - 1).bit_length())), n]


def _rank(samples: Sequence[Sample], rule: Rule) -> list[int]:
    """Return the indices in ascending order of the rule's value. Among ties the match sampled first comes last."""

    def key(i: int) -> tuple[float, ...]:
        sample = samples[i]
        value = (sample.success, sample.score, sample.payoff) if rule == "oracle" else (getattr(sample, rule),)
        return (*value, -i)

    return sorted(range(len(samples)), key=key)
