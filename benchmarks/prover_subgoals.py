"""Measure how many tactics a search of the prover tries with and without subgoals from the hidden proof.

python benchmarks/prover_subgoals.py [THEOREMS]
"""

import sys

import numpy as np

from simulators.prover import Prover
from simulators.prover.planning import Planner
from simulators.prover.rewriting import RewriteProof

BUDGET = 100_000
DEPTHS = (2, 4, 6, 8)
PIECES = (1, 2, 4, 8)


def tried(depth: int, count: int, theorems: int) -> float:
    """Return the mean number of tactics tried per theorem of this depth, cut into `count` pieces."""
    game, nodes = Prover(depth=depth, operators=[3, 4]), 0
    for seed in range(theorems):
        game.reset(seed=seed)
        planner = Planner(np.random.default_rng(seed), budget=BUDGET)
        assert isinstance(game.proof, RewriteProof)
        assert planner.prove(game.proof, count), "not found within the budget"
        nodes += planner.nodes
    return nodes / theorems


def main() -> None:
    """Print one line per depth, with a column per number of pieces."""
    theorems = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    print("depth", *(f"{count:>8}" for count in PIECES))
    for depth in DEPTHS:
        print(f"{depth:5}", *(f"{tried(depth, count, theorems):8.0f}" for count in PIECES if count <= depth))


if __name__ == "__main__":
    main()
