"""Pools of items, the worth of shares, and the instances of "Deal or No Deal" (Lewis et al. 2017).

A pool has 5 to 7 items of 3 kinds, at least one of each. The whole pool is worth exactly 10 to either side; every kind
is worth something to some side, and some kind to both.
"""

from __future__ import annotations

import functools
import itertools

import numpy as np

Triple = tuple[int, ...]  # always three: counts or values per item, by kind
Instance = tuple[Triple, tuple[Triple, Triple]]  # the pool, and the values of the opener and of the responder

WORTH = 10  # of the whole pool, to either seat


def worth(values: Triple, share: Triple) -> int:
    """Return the total worth of a share (items by kind) at these values per item."""
    return values[0] * share[0] + values[1] * share[1] + values[2] * share[2]


def remainder(pool: Triple, share: Triple) -> Triple:
    """Return the items of the pool outside this share, by kind."""
    return pool[0] - share[0], pool[1] - share[1], pool[2] - share[2]


@functools.lru_cache(maxsize=64)
def splits(pool: Triple) -> tuple[Triple, ...]:
    """Return every possible share of the pool, in lexicographic order. Cached."""
    return tuple(itertools.product(*(range(count + 1) for count in pool)))


@functools.lru_cache(maxsize=64)
def offers(pool: Triple) -> tuple[str, ...]:
    """Return every offer of the pool as an act text `OFFER a b c`, in the order of `splits`. Cached."""
    return tuple(f"OFFER {a} {b} {c}" for a, b, c in splits(pool))


@functools.cache
def list_valuations(pool: Triple) -> tuple[Triple, ...]:
    """Return all values per item at which the whole pool is worth 10. Cached."""
    return tuple(v for v in itertools.product(range(WORTH + 1), repeat=3) if worth(v, pool) == WORTH)


@functools.cache
def list_partner_values(pool: Triple, own: Triple) -> tuple[Triple, ...]:
    """Return the other side's possible values per item, given one side's, by the module's constraints. Cached."""
    return tuple(v for v in list_valuations(pool) if all(map(max, own, v)) and any(map(min, own, v)))


@functools.cache
def instances() -> tuple[Instance, ...]:
    """Return all 5,793 instances (pool, both sides' values) that satisfy the constraints, in lexicographic order."""
    pools = [pool for pool in itertools.product(range(1, 6), repeat=3) if 5 <= sum(pool) <= 7]
    return tuple((pool, (u, v)) for pool in pools for u in list_valuations(pool) for v in list_partner_values(pool, u))


def draw_twins(rng: np.random.Generator, seat: int) -> tuple[Instance, Instance]:
    """Draw two instances with the same pool and values of side `seat` (0 or 1), and different values of the other."""
    others: tuple[Triple, ...] = ()
    while len(others) < 2:
        pool, (own, _) = instances()[rng.integers(len(instances()))]
        others = list_partner_values(pool, own)
    pairs = [(own, others[n]) for n in rng.permutation(len(others))[:2]]
    one, two = pairs if seat == 0 else [pair[::-1] for pair in pairs]
    return (pool, one), (pool, two)


@functools.cache
def _share_values(pool: Triple, values: Triple) -> tuple[int, ...]:
    return tuple(worth(values, share) for share in splits(pool))


@functools.cache
def frontier(pool: Triple, one: Triple, two: Triple) -> tuple[tuple[int, int], ...]:
    """Return the Pareto-optimal pairs of payoffs for sides with values `one` and `two`, the first side's best first."""
    optimal, best = [], -1
    # Reversed, because the remainders of the shares, in order, are the shares in reverse order.
    for deal in sorted(zip(_share_values(pool, one), reversed(_share_values(pool, two)), strict=True), reverse=True):
        if deal[1] > best:
            optimal.append(deal)
            best = deal[1]
    return tuple(optimal)
