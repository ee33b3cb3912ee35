"""Planner of the rewriting prover: it divides a proof into subgoals and searches for the proof of each separately.

The subgoals are states of the hidden proof, as a perfect planner would choose them. The search is breadth first over
the tactics that apply to the left side, in random order. It counts the tactics that it tries: about b**d for a proof of
d steps with b choices each, and k * b**(d/k) for k equal pieces. If the budget does not suffice for a piece, the
planner starts again with twice as many pieces; proofs of pieces stay in a cache. Source: the planner of BFS-Prover-V2
(Xin et al. 2025), whose subgoals a model writes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from simulators.prover.rewriting import RewriteProof
from simulators.prover.rules import list_successors, rewrite
from simulators.prover.terms import Equation, format_equation

BUDGET = 300
"""Maximum number of tactics that the search for one piece tries."""


class Search(NamedTuple):
    """Result of a search."""

    proof: tuple[str, ...] | None
    """Tactics that rewrite the left side into the right side; None if no proof was found."""
    nodes: int
    """Number of tactics tried."""


def search(goal: Equation, budget: int, rng: np.random.Generator) -> Search:
    """Search for a proof of an equation, breadth first, with at most `budget` tactics."""
    if goal[0] == goal[1]:
        return Search((), 0)
    queue, seen, nodes = deque([(goal, tuple[str, ...]())]), {goal[0]}, 0
    while queue:
        equation, proof = queue.popleft()
        successors = list(list_successors(equation, (0,)))
        for index in rng.permutation(len(successors)).tolist():
            act, after = successors[index]
            if nodes == budget:
                return Search(None, nodes)
            nodes += 1
            if after[0] == after[1]:
                return Search((*proof, act), nodes)
            if after[0] not in seen:
                seen.add(after[0])
                queue.append((after, (*proof, act)))
    return Search(None, nodes)


def cut_into_pieces(proof: RewriteProof, count: int) -> list[Equation]:
    """Cut the hidden proof into at most `count` pieces of nearly equal length and return their equations."""
    terms = [state[0] for state, _ in proof.list_states()] + [proof.theorem[1]]
    steps = len(terms) - 1
    cuts = sorted({round(n * steps / count) for n in range(count + 1)})
    return [(terms[start], terms[end]) for start, end in pairwise(cuts)]


@dataclass
class Planner:
    """Planner with a cache of proved pieces. `nodes` counts all tactics that it tried."""

    rng: np.random.Generator
    budget: int = BUDGET
    cache: dict[Equation, tuple[str, ...]] = field(default_factory=dict)
    nodes: int = 0

    def prove(self, proof: RewriteProof, first: int = 1) -> list[str]:
        """Return the acts that prove a theorem by subgoals; [] if that fails even with single steps as pieces.

        The hidden proof is cut into `first` pieces, then into twice as many, and so on.
        """
        count, longest = first, len(proof.hidden_proof)
        while True:
            plan = cut_into_pieces(proof, min(count, longest))
            if all([self._prove(piece) for piece in plan]):  # a list, so that all pieces are searched and cached
                return self._list_acts(plan)
            if count >= longest:
                return []
            count *= 2

    def _prove(self, piece: Equation) -> bool:
        """Return True if the cache has a valid proof of the piece or the search finds one."""
        if piece in self.cache and is_proof(piece, self.cache[piece]):
            return True
        found = search(piece, self.budget, self.rng)
        self.nodes += found.nodes
        if found.proof is not None:
            self.cache[piece] = found.proof
        return found.proof is not None

    def _list_acts(self, plan: Sequence[Equation]) -> list[str]:
        acts = list[str]()
        for number, piece in enumerate(plan[:-1], 1):
            acts += [f"have {format_equation(piece)}", *self.cache[piece], f"h{number}"]
        return [*acts, *self.cache[plan[-1]]]


def is_proof(goal: Equation, tactics: Sequence[str]) -> bool:
    """Return True if the tactics make both sides of the equation equal."""
    equation: Equation | None = goal
    for tactic in tactics:
        rule, number = tactic.split()
        equation = equation and rewrite(equation, rule, int(number))
    return equation is not None and equation[0] == equation[1]
