"""Compare searches of the prover at equal numbers of replies: by samples, best-first, and best-first by depth.

python benchmarks/prover_search.py [THEOREMS]

The policy has no weights. With probability `RIGHT` it writes the hidden proof's next tactic, else another that applies.
It reports the true log-probability of the tactic, spread evenly over its tokens.
"""

import asyncio
import math
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from agents.chat import ChatFrame
from agents.engines.base import Completion, Request
from agents.policy import Policy
from agents.role import Search, load_role
from agents.weights import load_tokenizer, resolve
from arena.play.contenders import ModelContender, play_one
from arena.play.match import Limits, MatchPlan
from arena.records import Seating
from games.contracts import MatchId
from simulators.prover import Prover
from simulators.prover.rewriting import RewriteProof
from simulators.prover.rules import successors
from simulators.prover.terms import Equation, read_equation

RIGHT = (0.5, 0.2)
BUDGETS = (8, 16, 32, 64)
OPTIONS: dict[str, Any] = {"depth": 4, "operators": [3, 4]}
SEARCHES: dict[str, dict[str, Any]] = {
    "samples": {"order": "sample", "width": 4},
    "best_first": {"alpha": 0.0, "width": 4},
    "by depth": {"alpha": 1.0, "width": 4},
}


class Informed:
    """Engine that samples tactics with known probabilities, given the goal in the context."""

    max_context = 10**9

    def __init__(self, frame: ChatFrame, right: float, hints: dict[Equation, str]) -> None:
        self.frame, self.right, self.hints = frame, right, hints

    async def generate(self, requests: Sequence[Request]) -> list[Completion]:
        """Return one reply per request."""
        return [self._reply(request) for request in requests]

    def _reply(self, request: Request) -> Completion:
        goal = self.frame.decode(request.ids).rpartition("prover")[2]
        equation = read_equation(re.sub(r"([+*])[0-9]+ ", r"\1", re.sub(r"<[^>]*>", "", goal)))
        acts = [act for act, _ in successors(equation, (0,))] or ["comm 1"]
        chances = dict.fromkeys(acts, (1 - self.right) / len(acts))
        if hint := self.hints.get(equation):
            chances[hint] = chances.get(hint, 0.0) + self.right
        total = sum(chances.values())
        rng, names = np.random.default_rng(request.seed), list(chances)
        act = names[int(rng.choice(len(names), p=[chances[name] / total for name in names]))]
        ids = (*self.frame.encode(act), self.frame.stop_id)
        return Completion(ids, (math.log(chances[act] / total) / len(ids),) * len(ids), "stop", 1)

    def forget(self, key: str) -> None:
        """Do nothing: there is no cache."""


def proved(right: float, search: dict[str, Any], nodes: int, theorems: int, frame: ChatFrame) -> float:
    """Return the share of theorems that the policy proves with this search and budget."""
    role = load_role("nano_prover")
    rule = Search.model_validate({**search, "nodes": nodes})
    role = role.model_copy(update={"sampling": role.sampling.model_copy(update={"search": rule})})
    policy = Policy(name="p", source=Path(), model=None, tokenizer=None, frame=frame, trained=False, version=1)
    game, wins = Prover(**OPTIONS), 0
    for seed in range(theorems):
        game.reset(seed=seed)
        assert isinstance(game.proof, RewriteProof)
        engine: Any = Informed(frame, right, dict(game.proof.states()))
        contender = ModelContender("p", engine, lambda game, seat: (policy, role))
        seats = {"prover": Seating("nano_prover", "p", 1, False, "model")}
        plan = MatchPlan(identity=MatchId(0, seed), game="prover", options=OPTIONS, seed=seed, seats=seats)
        record = asyncio.run(play_one(plan, {"prover": contender}, 0, Limits(), keep_turns=False))
        assert record.status == "finished", record.reason
        wins += bool(record.report["success"])
    return wins / theorems


def main() -> None:
    """Print one line per policy and search, with a column per budget."""
    theorems = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    frame = ChatFrame(load_tokenizer(resolve("nano")))
    print("right search    ", *(f"{nodes:>6}" for nodes in BUDGETS))
    for right in RIGHT:
        for name, search in SEARCHES.items():
            shares = (proved(right, search, nodes, theorems, frame) for nodes in BUDGETS)
            print(f"{right:5} {name:10}", *(f"{share:6.2f}" for share in shares), flush=True)


if __name__ == "__main__":
    main()
