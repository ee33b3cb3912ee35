"""Replies that proof searches need: sampling, best-first search, best-first search by depth, and subgoals.

    python benchmarks/prover_search.py [--quick]

The policy is simulated. With probability `RIGHT` it writes the hidden proof's next tactic, else a random applicable
one. It reports the tactic's true log-probability, divided evenly over its tokens. With subgoals, the hidden proof is
cut into pieces, each of which is searched best-first; the replies of all pieces are added. Writes
results/prover-search.json after every row. Rows in the file are not measured again, so an interrupted measurement
continues.
"""

import argparse
import asyncio
import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from agents.chat import ChatFrame
from agents.engines.base import Completion, Request
from agents.model_folder import load_tokenizer
from agents.players.model import ChatPlayer
from agents.policy import Policy
from agents.role import Search, load_role
from agents.weights import resolve
from arena.doctor import describe_environment
from arena.play.best_first import BestFirstSearch, Node
from arena.play.contenders import ModelContender
from arena.play.match import MatchPlan
from arena.play.texts import view_of
from arena.records import Seating
from arena.statistics import SHARE, mean_ci, paired_ci
from games.contracts import MatchId
from simulators.base import Simulator
from simulators.prover import Prover
from simulators.prover.planning import cut_into_pieces
from simulators.prover.rewriting import RewriteProof, Rewriting
from simulators.prover.rules import list_successors
from simulators.prover.terms import Equation, read_equation
from simulators.prover.theorems import Theorem

RIGHT = (0.5, 0.2)
BUDGETS = (8, 16, 32, 64, 128)
"""Numbers of replies within which a theorem has to be proved."""
THEOREMS = 200
RESULT = Path(__file__).parent / "results" / "prover-search.json"
OPTIONS: dict[str, Any] = {"depth": 4, "operators": [3, 4]}
SEARCHES: dict[str, tuple[int, dict[str, Any]]] = {
    "sampled": (1, {"order": "sample"}),
    "best first": (1, {"alpha": 0.0}),
    "best first, by depth": (1, {"alpha": 1.0}),
    "2 subgoals": (2, {"alpha": 0.0}),
    "4 subgoals": (4, {"alpha": 0.0}),
}
"""Number of pieces of the hidden proof, and settings of each piece's search."""


class HintedEngine:
    """Engine that samples tactics with known probabilities, given the goal in the context.

    `hints` are the hidden proof's tactics by goal, and `right` is the additional probability of the hint.
    """

    max_context = 10**9

    def __init__(self, frame: ChatFrame, right: float, hints: dict[Equation, str]) -> None:
        self.frame, self.right, self.hints = frame, right, hints

    async def generate(self, requests: Sequence[Request]) -> list[Completion]:
        """Sample a reply for each request."""
        return [self._reply(request) for request in requests]

    def _reply(self, request: Request) -> Completion:
        goal = self.frame.decode(request.ids).rpartition("prover")[2]
        equation = read_equation(re.sub(r"([+*])[0-9]+ ", r"\1", re.sub(r"<[^>]*>", "", goal)))
        acts = [act for act, _ in list_successors(equation, (0,))] or ["comm 1"]
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


class SingleTheorem(Rewriting):
    """Theorem source that always deals the same theorem."""

    def __init__(self, theorem: Theorem) -> None:
        super().__init__((1, 1), (2, 2))
        self.theorem = theorem

    def deal(self, game: Simulator, rng: np.random.Generator) -> RewriteProof:
        """Return an empty proof of the theorem."""
        return RewriteProof(self.theorem, "given")


class Searches:
    """Proof searches by one policy, which writes the hidden proof's next tactic with probability `right`."""

    def __init__(self, right: float, settings: dict[str, Any], frame: ChatFrame) -> None:
        self.right, self.frame = right, frame
        self.role = load_role("nano_prover")
        self.settings = Search.model_validate({**settings, "width": 4, "nodes": BUDGETS[-1]})

    def count_replies(self, seed: int, count: int) -> int | None:
        """Return the number of replies until a theorem is proved in `count` pieces, or None if a search fails."""
        game = Prover(**OPTIONS)
        game.reset(seed=seed)
        proof = game.proof
        assert isinstance(proof, RewriteProof)
        total, goals = 0, [state[0] for state, _ in proof.list_states()] + [proof.theorem[1]]
        for equation in cut_into_pieces(proof, count):
            start, end = goals.index(equation[0]), goals.index(equation[1])
            game.source = SingleTheorem(Theorem(equation, tuple(proof.hidden_proof[start:end])))
            game.reset(seed=seed)
            replies = asyncio.run(self._search(seed, game))
            if replies is None:
                return None
            total += replies
        return total

    async def _search(self, seed: int, game: Prover) -> int | None:
        assert isinstance(game.proof, RewriteProof)
        engine: Any = HintedEngine(self.frame, self.right, dict(game.proof.list_states()))
        policy = Policy(name="p", source=Path(), model=None, tokenizer=None, frame=self.frame, trained=False, version=1)
        contender = ModelContender("p", engine, lambda game, seat: (policy, self.role))
        seats = {"prover": Seating("nano_prover", "p", 1, False, "model")}
        plan = MatchPlan(identity=MatchId(0, seed), game="prover", options=OPTIONS, seed=seed, seats=seats)
        player: Any = contender.player("prover", plan, game, 0)
        assert isinstance(player, ChatPlayer)
        search = BestFirstSearch(self.settings, Node(game.clone(), player), view_of(game, "prover", 0))
        return search.sampled if await search.run() else None


def list_proved(row: dict[str, Any], budget: int) -> list[bool]:
    """Return, for each theorem of a row, whether it is proved within the budget."""
    return [count is not None and count <= budget for count in row["needed"]]


def compare_with_first(rows: Sequence[dict[str, Any]]) -> None:
    """Add to each row its paired difference to the first row with the same `right`, for each budget."""
    for row in rows:
        first = next(other for other in rows if other["right"] == row["right"])
        row["against_sampled"] = {
            str(budget): list(paired_ci(list_proved(first, budget), list_proved(row, budget), SHARE))
            for budget in BUDGETS
            if row is not first
        }


def main() -> None:
    """Print a line per policy and search with a column per budget, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    is_quick = parser.parse_args().quick
    setting = {"command": "python benchmarks/prover_search.py", "theorems": 2 if is_quick else THEOREMS, **OPTIONS}
    saved: dict[str, Any] = json.loads(RESULT.read_text()) if RESULT.exists() and not is_quick else {}
    rows = list(saved.get("rows", [])) if {name: saved.get(name) for name in setting} == setting else []
    frame = ChatFrame(load_tokenizer(resolve("nano")))
    print(f"right {'search':22}", *(f"{nodes:>6}" for nodes in BUDGETS))
    for right in RIGHT:
        for name, (count, settings) in SEARCHES.items():
            row = next((row for row in rows if (row["right"], row["search"]) == (right, name)), None)
            if row is None:
                searches = Searches(right, settings, frame)
                needed = [searches.count_replies(seed, count) for seed in range(setting["theorems"])]
                row = {"right": right, "search": name, "needed": needed}
                row["proved"] = {str(budget): list(mean_ci(list_proved(row, budget), SHARE)) for budget in BUDGETS}
                rows.append(row)
            print(f"{right:5} {name:22}", *(f"{share[0]:6.2f}" for share in row["proved"].values()), flush=True)
            compare_with_first(rows)
            if not is_quick:
                lines = ",\n".join(json.dumps(row) for row in rows)
                head = json.dumps({**setting, "machine": describe_environment()}, indent=1).removesuffix("\n}")
                RESULT.write_text(f'{head},\n "rows": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
