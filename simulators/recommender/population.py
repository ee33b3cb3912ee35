"""Populations of users: segments of similar taste, and friends who recommend items to each other.

Friendships form a planted-partition graph (Condon and Karp 2001): about six friends within a segment and one outside. A
user recommends an enjoyed item to each friend with probability 1/2. The friend then finds the item among its next
candidates and is more likely to click it. An item is shown with its stars from all users.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from simulators.recommender.audience import Visitor
from simulators.recommender.chance import uniform
from simulators.recommender.record import Floats

SEGMENT = 50
"""Approximate number of users per segment; at most `MAX_SEGMENTS` segments."""
MAX_SEGMENTS = 8
TELL = 10
"""Key of the random draw whether a user tells a friend."""
MIN_TIP_JOY = 0.4
"""Minimum joy of an item that a user recommends to friends."""
INSIDE, OUTSIDE = 6.0, 1.0
"""Mean number of friends within and outside the segment."""
LIKENESS = 8.0
"""Similarity of tastes in a segment: the Dirichlet parameters are this factor times the segment's taste."""

Friends = tuple[tuple[int, ...], ...]


def assign_segments(users: int) -> list[int]:
    """Return the segment index of each user. Segments have nearly equal sizes of about `SEGMENT` users."""
    count = max(1, min(MAX_SEGMENTS, users // SEGMENT))
    return [user * count // users for user in range(users)]


def draw_friendships(segments: Sequence[int], seed: int) -> Friends:
    """Draw each user's friends, as sorted user numbers. Raises ValueError for several users if networkx is missing."""
    users = len(segments)
    if users == 1:
        return ((),)
    networkx = _import_networkx()
    sizes = [segments.count(segment) for segment in sorted(set(segments))]
    size = users / len(sizes)
    inside = min(1.0, INSIDE / max(1.0, size - 1))
    outside = min(inside, OUTSIDE / max(1.0, users - size)) if len(sizes) > 1 else 0.0
    graph = networkx.random_partition_graph(sizes, inside, outside, seed=seed)
    return tuple(tuple(sorted(graph[user])) for user in range(users))


def spread_word(teller: Visitor, item: int, audience: Sequence[Visitor], friends: Friends) -> list[int]:
    """Recommend an item to the teller's friends, each with probability 1/2, and return the numbers of those told."""
    listeners = [number for number in friends[teller.number] if uniform(teller.key, TELL, item, number) < 0.5]
    for number in listeners:
        audience[number].tips.setdefault(item, teller.number)
    return listeners


def draw_segment_tastes(rng: np.random.Generator, concentration: Floats, segments: int) -> list[Floats]:
    """Draw the Dirichlet parameters [genres] of each segment's tastes. A single segment has `concentration` itself."""
    if segments == 1:
        return [concentration]
    return [LIKENESS * (rng.dirichlet(concentration) + 1e-3) for _ in range(segments)]


def _import_networkx() -> Any:
    try:
        import networkx
    except ImportError as error:
        raise ValueError(f"users over 1 needs networkx: pip install 'arena-selfplay[recommender]' ({error})") from None
    return networkx
