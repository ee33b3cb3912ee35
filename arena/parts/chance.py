"""Random generators from a run's seed and the purpose."""

import numpy as np


def generator(seed: int, k: int, *place: str) -> np.random.Generator:
    """Return a new random generator for one purpose in iteration `k` of a run; `place` are words that name the purpose.

    It depends on its arguments alone, so no state needs to be saved.
    """
    return np.random.default_rng((seed, k, *map(number, place)))


def number(name: str) -> int:
    """Return an integer for a purpose's name: its bytes, padded to 8, as a big-endian number."""
    return int.from_bytes(name.encode().ljust(8, b"\0"), "big")
