"""Chance: every random choice of a run comes from its seed and the place where it is made."""

import numpy as np


def generator(seed: int, k: int, *place: str) -> np.random.Generator:
    """The chance of one use in iteration `k` of a run; nothing of it needs to be saved."""
    return np.random.default_rng((seed, k, *map(number, place)))


def number(name: str) -> int:
    """A number for a named use of chance."""
    return int.from_bytes(name.encode().ljust(8, b"\0"), "big")
