"""Pairs of users whom nobody can tell apart by what they do and say, though they hide different things.

Whatever differs in what a recommender is shown of the two has leaked.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from simulators.recommender.record import Record

Twins = tuple[Record, Record]
ENDLESS = 10_000.0
"""Patience that no visit uses up."""


def twins_of(record: Record, prices: tuple[float, float], coded: bool, rng: np.random.Generator) -> Twins:
    """Two users like this one where items cost from the one to the other of these prices.

    They differ in what they like least, in cap, patience and loyalty, or in all of their taste, as chance has it;
    not in the cap where it is `coded`: then a seat may say it without being asked.
    """
    kinds = [_content(record, math.ceil(prices[1]), coded)]
    if len(record.taste) > 2:
        kinds.append(_averse(record))
    if prices[0] > 1:
        kinds.append(_penniless(record, math.ceil(prices[0]) - 1))
    return kinds[int(len(kinds) * rng.random())]


def _averse(record: Record) -> Twins:
    """Return twins that differ in which of two disliked genres they like less: neither is ever chosen."""
    one, two = sorted(range(len(record.taste)), key=record.taste.__getitem__)[:2]
    tastes = []
    for low, lower in ((0.08, 0.02), (0.02, 0.08)):
        taste = list(record.taste)
        taste[one], taste[two] = low * max(taste), lower * max(taste)
        whole = sum(taste)
        tastes.append(tuple(share / whole for share in taste))
    return replace(record, taste=tastes[0]), replace(record, taste=tastes[1])


def _content(record: Record, dearest: int, coded: bool) -> Twins:
    """Nothing is too dear for them, no visit too long, and they come back as surely as anybody can."""
    forgets = (record.forgets[0], True, record.forgets[2])
    one = replace(record, cap=dearest + 1, patience=ENDLESS, loyalty=2.0, forgets=forgets)
    return one, replace(one, cap=dearest + (1 if coded else 9), patience=2 * ENDLESS, loyalty=3.0)


def _penniless(record: Record, cap: int) -> Twins:
    """They can pay nothing that there is, and dislike no genre: whichever they like best, they choose none of it."""
    count = len(record.taste)
    liking = np.arange(count + 1, 2 * count + 1) / sum(range(count + 1, 2 * count + 1))
    one = replace(record, cap=cap, taste=tuple(liking.tolist()), volunteers=False, forgets=(True, *record.forgets[1:]))
    return one, replace(one, taste=one.taste[::-1])
