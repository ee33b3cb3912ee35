"""Random generators from a run's seed and the place of use."""

import numpy as np


def generator(seed: int, k: int, *place: str) -> np.random.Generator:
    """Return a new random generator for one use in iteration `k` of a run; `place` names the use in one or more words.

    It depends on its arguments alone, so that no state must be saved.
    """
    return np.random.default_rng((seed, k, *map(number, place)))


def number(name: str) -> int:
    """Return an integer for the name of a use: its bytes, padded to 8, as a big-endian number."""
    return int.from_bytes(name.encode().ljust(8, b"\0"), "big")
