"""Number of tactics that a proof search tries, with and without subgoals from the hidden proof.

    python benchmarks/prover_subgoals.py [--quick]

Writes results/prover-subgoals.json.
"""

import argparse
import json
from pathlib import Path

import numpy as np

from arena.doctor import describe_environment
from simulators.prover import Prover
from simulators.prover.planning import Planner
from simulators.prover.rewriting import RewriteProof

BUDGET = 100_000
THEOREMS = 100
RESULT = Path(__file__).parent / "results" / "prover-subgoals.json"
DEPTHS = (2, 4, 6, 8)
PIECES = (1, 2, 4, 8)


def count_tried(depth: int, count: int, theorems: int) -> float:
    """Return the mean number of tactics tried per theorem of this depth, if its proof is cut into `count` pieces."""
    game, nodes = Prover(depth=depth, operators=[3, 4]), 0
    for seed in range(theorems):
        game.reset(seed=seed)
        planner = Planner(np.random.default_rng(seed), budget=BUDGET)
        assert isinstance(game.proof, RewriteProof)
        assert planner.prove(game.proof, count), "no proof was found within the budget"
        nodes += planner.nodes
    return nodes / theorems


def main() -> None:
    """Print a line per depth with a column per number of pieces, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    is_quick, rows = parser.parse_args().quick, []
    theorems = 5 if is_quick else THEOREMS
    print("depth", *(f"{count:>8}" for count in PIECES))
    for depth in DEPTHS:
        means = {str(count): count_tried(depth, count, theorems) for count in PIECES if count <= depth}
        rows.append({"depth": depth, "tried": means})
        print(f"{depth:5}", *(f"{mean:8.0f}" for mean in means.values()), flush=True)
    if not is_quick:
        result = {
            "command": "python benchmarks/prover_subgoals.py",
            "machine": describe_environment(),
            "theorems": theorems,
        }
        RESULT.write_text(json.dumps({**result, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
