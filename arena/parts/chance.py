"""Random generators from a run's seed and the place of use."""

import numpy as np


def generator(seed: int, k: int, *place: str) -> np.random.Generator:
    """Return the random generator of one use in iteration `k` of a run; it has no state to save."""
    return np.random.default_rng((seed, k, *map(number, place)))


def number(name: str) -> int:
    """Return a number for the name of a use."""
    return int.from_bytes(name.encode().ljust(8, b"\0"), "big")
