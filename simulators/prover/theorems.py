"""Random theorems of the rewriting prover: equations with a proof of known length."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from simulators.prover.rules import list_successors
from simulators.prover.terms import LEAVES, OPERATORS, Equation, Term

MAX_PROOF = 8
"""Maximum number of tactics of a hidden proof."""
WALKS = 20
"""Maximum number of random walks for a theorem of one shape."""
SHAPES = 1000
"""Maximum number of shapes drawn for a theorem."""
CONSTANT = 0.3
"""Probability that a leaf is 0 or 1."""


class Theorem(NamedTuple):
    """Equation with a proof: tactics that rewrite its left side into its right side."""

    equation: Equation
    proof: tuple[str, ...]


def draw_shape(rng: np.random.Generator, operators: tuple[int, int]) -> Term:
    """Draw the shape of a theorem's left side: a term whose leaves are all `a`. `operators`: range of their number."""
    return _draw_term(rng, int(rng.integers(operators[0], operators[1] + 1)))


def _draw_term(rng: np.random.Generator, operators: int) -> Term:
    if operators == 0:
        return LEAVES[0]
    left = int(rng.integers(operators))
    operator = OPERATORS[int(rng.integers(len(OPERATORS)))]
    return operator, _draw_term(rng, left), _draw_term(rng, operators - 1 - left)


def draw_theorem(rng: np.random.Generator, shape: Term, length: int) -> Theorem | None:
    """Draw leaves for a shape, and a walk of `length` tactics from that term that visits no term twice.

    The walk's last term is the right side; a shorter proof may exist. Returns None if `WALKS` walks reach dead ends, as
    happens with small terms.
    """
    for _ in range(WALKS):
        term = start = _draw_leaves(rng, shape)
        seen, proof = {term}, list[str]()
        while len(proof) < length:
            steps = [(act, after[0]) for act, after in list_successors((term, "a"), (0,)) if after[0] not in seen]
            if not steps:
                break
            act, term = steps[int(rng.integers(len(steps)))]
            seen.add(term)
            proof.append(act)
        else:
            return Theorem((start, term), tuple(proof))
    return None


def _draw_leaves(rng: np.random.Generator, shape: Term) -> Term:
    if not isinstance(shape, str):
        return shape[0], _draw_leaves(rng, shape[1]), _draw_leaves(rng, shape[2])
    if rng.random() < CONSTANT:
        return LEAVES[4 + int(rng.integers(2))]
    return LEAVES[int(rng.integers(4))]
