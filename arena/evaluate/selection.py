"""Selection of one match among several of the same deal, and its expected result for every number of matches.

Rules: `majority` takes the first match with the most frequent answer (self-consistency, Wang et al. 2022); `p_yes` the
one whose answer a policy most likely calls right; `reward_model` the one with the highest score; `oracle` the one that
is truly best, whose success is pass@k. Ties go to the match sampled first.

From n matches of a deal, best-of-k is estimated for every k up to n. A rule that takes the highest value has an exact
mean over all subsets of k matches: if x_1 <= … <= x_n are the results in the order of the rule's values, it is

    Σ_i x_i · C(i - 1, k - 1) / C(n, k)

which is unbiased. For `oracle` and successes of 0 and 1 it equals 1 - C(n - c, k) / C(n, k), with c successes (pass@k,
Chen et al. 2021). `majority` has no such form and is averaged over seeded random subsets.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from agents.players.voting import elected

Rule = Literal["majority", "p_yes", "reward_model", "oracle"]
RULES: tuple[Rule, ...] = get_args(Rule)
Figure = Literal["success", "score", "payoff"]
FIGURES: tuple[Figure, ...] = get_args(Figure)
SUBSETS = 256
"""Random subsets of each size over which `majority` is averaged."""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Finished match of a deal as selection sees it: its answer, its result, its cost, and what judges say of it."""

    answer: str
    """The seat's answer in canonical form, "" for none."""
    success: float
    score: float
    payoff: float
    tokens: int = 0
    """Tokens that the contender sampled, also those that its decoding did not keep."""
    turns: int = 0
    """Acts of the contender."""
    p_yes: float = -math.inf
    """Probability with which the judge says yes; -inf if it could not read the match."""
    reward_model: float = -math.inf


def choose(samples: Sequence[Sample], rule: Rule) -> int:
    """Return the index of the match that the rule selects."""
    return elected([sample.answer for sample in samples]) if rule == "majority" else _ranked(samples, rule)[-1]


def mean(samples: Sequence[Sample]) -> dict[Figure, float]:
    """Return the mean result of a single match."""
    return expected(samples, "oracle", 1)  # of one match every rule selects that


def expected(samples: Sequence[Sample], rule: Rule, k: int, seed: Sequence[int] = ()) -> dict[Figure, float]:
    """Return the expected result of selecting one of k random matches of `samples`, in the order of sampling.

    `seed` determines the random subsets of `majority`. Raises ValueError for k outside 1..len(samples).
    """
    n = len(samples)
    if not 1 <= k <= n:
        raise ValueError(f"no best of {k} among {n} matches")
    if rule == "majority" and 1 < k < n:
        rng = np.random.default_rng([*seed])
        subsets = [sorted(rng.permutation(n)[:k].tolist()) for _ in range(SUBSETS)]
        picked = [subset[choose([samples[i] for i in subset], rule)] for subset in subsets]
        weights = {i: picked.count(i) / SUBSETS for i in dict.fromkeys(picked)}
    elif rule == "majority" and k == n:
        weights = {choose(samples, rule): 1.0}
    else:
        ranked = _ranked(samples, "oracle" if rule == "majority" else rule)  # any order gives the mean if k is 1
        weights = {place: math.comb(rank, k - 1) / math.comb(n, k) for rank, place in enumerate(ranked)}
    # Weights sum to 1 up to rounding, and a success of more than 1 would be out of bounds.
    return {name: round(math.fsum(w * getattr(samples[i], name) for i, w in weights.items()), 12) for name in FIGURES}


def sizes(n: int) -> list[int]:
    """Return the powers of two below n, and n."""
    return [*(1 << power for power in range((n - 1).bit_length())), n]


def _ranked(samples: Sequence[Sample], rule: Rule) -> list[int]:
    """Return the indices by the rule's value, ascending; of equal ones, the match sampled first comes last."""

    def key(i: int) -> tuple[float, ...]:
        sample = samples[i]
        value = (sample.success, sample.score, sample.payoff) if rule == "oracle" else (getattr(sample, rule),)
        return (*value, -i)

    return sorted(range(len(samples)), key=key)
