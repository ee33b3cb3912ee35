"""Populations: users in segments of like taste, friends of each other, who tell their friends what they enjoyed.

Friends are a planted partition (Condon and Karp 2001; networkx): within a segment about six friends each, beyond it
about one. An item that was enjoyed is recommended to each friend with chance a half: the friend sees it among the next
candidates and is readier to try it; and everybody's stars for an item are shown with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from simulators.recommender.audience import Visitor
from simulators.recommender.chance import uniform
from simulators.recommender.record import Floats

SEGMENT = 50
"""Users of a segment, about; there are at most `MOST_SEGMENTS`."""
MOST_SEGMENTS = 8
TELL = 10
"""Key of the chance to tell a friend."""
ENJOYED = 0.4
"""The joy from which on an item is recommended to friends."""
INSIDE, OUTSIDE = 6.0, 1.0
"""Friends that a user has on average, in its segment and beyond."""
LIKENESS = 8.0
"""Likeness of tastes within a segment: they are Dirichlet with this times the segment's own taste."""

Friends = tuple[tuple[int, ...], ...]


def segments_of(users: int) -> list[int]:
    """The segment of each user: of alike sizes, in order."""
    count = max(1, min(MOST_SEGMENTS, users // SEGMENT))
    return [user * count // users for user in range(users)]


def friendships(segments: Sequence[int], seed: int) -> Friends:
    """Draw the friends of each user; none where there is one user. ValueError without networkx."""
    users = len(segments)
    if users == 1:
        return ((),)
    networkx = _networkx()
    sizes = [segments.count(segment) for segment in sorted(set(segments))]
    size = users / len(sizes)
    inside = min(1.0, INSIDE / max(1.0, size - 1))
    outside = min(inside, OUTSIDE / max(1.0, users - size)) if len(sizes) > 1 else 0.0
    graph = networkx.random_partition_graph(sizes, inside, outside, seed=seed)
    return tuple(tuple(sorted(graph[user])) for user in range(users))


def word_of_mouth(teller: Visitor, item: int, audience: Sequence[Visitor], friends: Friends) -> list[int]:
    """The teller enjoyed an item: those of its friends who learn of it."""
    told = [number for number in friends[teller.number] if uniform(teller.key, TELL, item, number) < 0.5]
    for number in told:
        audience[number].heard_of.setdefault(item, teller.number)
    return told


def tastes(rng: np.random.Generator, concentration: Floats, segments: int) -> list[Floats]:
    """The Dirichlet parameters [genres] of each segment's users: one segment's are the population's own."""
    if segments == 1:
        return [concentration]
    return [LIKENESS * (rng.dirichlet(concentration) + 1e-3) for _ in range(segments)]


def _networkx() -> Any:
    try:
        import networkx
    except ImportError as error:
        raise ValueError(f"users over 1 needs networkx: pip install 'arena-selfplay[recommender]' ({error})") from None
    return networkx
