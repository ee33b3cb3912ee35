"""Random numbers by key: equal keys give equal numbers, whatever was drawn before.

Equal replies therefore give equal matches, and a counterfactual differs only by the changed act.
"""

from __future__ import annotations

MASK = (1 << 64) - 1
GOLDEN, FIRST, SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def uniform(key: int, *parts: int) -> float:
    """Return a number in [0, 1) fixed by the key and the integers: splitmix64 (Steele et al. 2014), one step each."""
    state = key & MASK
    for part in parts:
        state = (state + GOLDEN + part * SECOND) & MASK
        state = ((state ^ state >> 30) * FIRST) & MASK
        state = ((state ^ state >> 27) * SECOND) & MASK
        state ^= state >> 31
    return (state >> 11) / (1 << 53)
