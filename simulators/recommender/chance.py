"""Pseudo-random numbers by key: equal keys give equal numbers, whatever was drawn before.

Equal replies therefore give equal matches, and a counterfactual match differs only by its changed act.
"""

from __future__ import annotations

MASK = (1 << 64) - 1
GOLDEN, FIRST, SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def uniform(key: int, *parts: int) -> float:
    """Return a number in [0, 1) determined by `key` and `parts`: one splitmix64 step per part (Steele et al. 2014)."""
    state = key & MASK
    for part in parts:
        state = (state + GOLDEN + part * SECOND) & MASK
        state = ((state ^ state >> 30) * FIRST) & MASK
        state = ((state ^ state >> 27) * SECOND) & MASK
        state ^= state >> 31
    return (state >> 11) / (1 << 53)
