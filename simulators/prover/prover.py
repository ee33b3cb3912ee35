"""Game of proving theorems tactic by tactic, after BFS-Prover-V2 (Xin et al. 2025)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, ClassVar, Literal

import numpy as np

from games.base import IllegalAct, choice, flag, number_range, whole_number
from games.contracts import TOOL, View
from simulators.base import Script, Simulator
from simulators.prover.coq import CoqLibrary
from simulators.prover.coq_guard import HEADS
from simulators.prover.coqtop import find_coq_obstacle
from simulators.prover.planning import Planner
from simulators.prover.proof import Kind, Proof
from simulators.prover.rewriting import RewriteProof, Rewriting
from simulators.prover.theorems import MAX_PROOF

SEAT = "prover"
PROVED = "proved"
SPARE_TURNS = 4
"""Default number of turns beyond the longest hidden proof."""
FLOOR_MATCHES = {"rewrite": 2000, "coq": 200}
"""Number of matches of the player `random` that measure the floor."""


class Prover(Simulator):
    """Game of one prover, who writes one tactic per turn until the theorem is proved or no turn is left.

    Options in addition to Simulator's: kind, `rewrite` (equations and a few rewrite rules) or `coq` (lemmas of Coq's
    library; raises ValueError if coqtop is not installed); depth, the length of the hidden proof or its range as
    [shortest, longest]; operators, the number of operators on an equation's left side, or its range; terse, short rules
    and refusals; max_turns, by default the longest hidden proof and 4 more. A tactic that does not apply costs a turn
    and is reported; only text that is not a tactic is an illegal act. There is no talk, so an act may contain "|".

    The effect of an act depends only on what the seat sees, so players may search ahead on clones.

    Reward part "proved": 1 when the theorem is proved.
    """

    name = "prover"
    seats = (SEAT,)
    whole_acts = True
    perfect_information = True
    metadata: ClassVar[dict[str, Any]] = {"name": "prover_v0", "render_modes": ["ansi"]}
    blocks = False
    reward_parts: Mapping[str, str] = {PROVED: "the theorem was proved"}

    def __init__(
        self,
        *,
        kind: Literal["rewrite", "coq"] = "rewrite",
        depth: int | Sequence[int] = (1, 3),
        operators: int | Sequence[int] = (2, 3),
        terse: bool = False,
        max_turns: int | None = None,
        **options: Any,
    ) -> None:
        self.kind, self.terse = choice("kind", kind, "rewrite", "coq"), flag("terse", terse)
        self.depth = number_range("depth", depth, 1, MAX_PROOF)
        self.operators = number_range("operators", operators, 2, 6)
        turns = self.depth[1] + SPARE_TURNS if max_turns is None else max_turns
        self.max_turns = whole_number("max_turns", turns, least=self.depth[1])
        if kind == "coq" and (why := find_coq_obstacle()):
            raise ValueError(why)
        self.blocks = kind == "coq"  # while Coq works
        self.source: Kind = CoqLibrary(self.depth) if kind == "coq" else Rewriting(self.depth, self.operators)
        super().__init__(talk=False, **options)

    def set_up(self, rng: np.random.Generator, options: Mapping[str, Any]) -> None:
        """Draw a theorem of the split. The reset option `proof`, which `twin_deals` uses, replaces the hidden proof."""
        self.proof: Proof = self.source.deal(self, rng)
        if "proof" in options:
            self.proof.hidden_proof = tuple(options["proof"])
        self._change_count = self._refusal_count = 0
        self.tell(f"Goal: {self.proof.goal}")

    @property
    def turns_left(self) -> int:
        """Remaining acts, the next one included."""
        return self.max_turns - self.turns

    def rules(self) -> str:
        """Return the rules as text: the acts, the aim and the number of turns."""
        return f"{self.source.rules(self.terse)} {self.max_turns} turns in all."

    def public(self) -> dict[str, Any]:
        """Return `goal` (the goal in focus), `turns_left`, and the kind's facts (`Proof.facts`)."""
        return {"goal": self.proof.goal, "turns_left": self.turns_left, **self.proof.facts()}

    def situation(self, seat: str) -> str:
        """Return the open goals and lemmas as text."""
        return self.proof.situation()

    def hidden(self) -> dict[str, tuple[str, ...]]:
        """Return the hidden proof as one text if it has several tactics, else {}."""
        proof = self.proof.hidden_proof
        # An error message lists the names of all tactics, so a proof that occurs in that list is no leak.
        is_listed = f" {' '.join(tactic.rstrip('.') for tactic in proof)} " in f" {' '.join(HEADS)} "
        return {"the proof": (" ; ".join(proof),)} if len(proof) > 1 and not is_listed else {}

    def twin_deals(self, seat: str, rng: np.random.Generator) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return reset options of two deals with the same theorem but different hidden proofs."""
        one, two = self.proof.draw_act(rng), self.proof.draw_act(rng)
        return {"proof": [one]}, {"proof": [one, two]}

    def play(self, seat: str, act: str) -> str:
        """Apply a tactic to the goal in focus and show the new goal. Raises IllegalAct for other texts."""
        try:
            step = self.proof.apply(act)
        except ValueError as why:
            raise IllegalAct(str(why)) from None
        self._refusal_count += bool(step.refusal)
        self._change_count += not step.refusal
        if self.proof.is_proved:
            self.pay(seat, PROVED, 1.0)
            self.end(PROVED, "Proved.")
            return step.act
        if step.refusal:
            self.tell("no" if self.terse else f"No change: {step.refusal}.", seat, sender=TOOL)
        else:
            self.tell(f"Goal: {self.proof.goal}", seat, sender=TOOL)
        if self.turns_left == 1:
            self.end("turns", "No turns are left, and the theorem is not proved.")
        return step.act

    def figures(self) -> dict[str, float | bool | str]:
        """Return `score`, `success`, `tactics` (number applied), `refused` (number refused) and the proof's `depth`."""
        counts = {"tactics": self._change_count, "refused": self._refusal_count, "depth": len(self.proof.hidden_proof)}
        return {"score": float(self.proof.is_proved), "success": self.proof.is_proved, **counts}

    @property
    def floor(self) -> float:
        """Success rate of the player `random` with these options, over `FLOOR_MATCHES` matches with fixed seeds."""
        return _measure_floor(self.split, self.kind, self.depth, self.operators, self.max_turns)


@cache
def _measure_floor(split: Any, kind: Any, depth: tuple[int, int], operators: tuple[int, int], max_turns: int) -> float:
    game, proved = Prover(split=split, kind=kind, depth=depth, operators=operators, max_turns=max_turns), 0
    matches = FLOOR_MATCHES[kind]
    for seed in range(matches):
        game.reset(seed=seed)
        rng = np.random.default_rng([seed, 2])
        for _ in range(max_turns):
            game.proof.apply(game.proof.draw_act(rng))
            if game.proof.is_proved:
                proved += 1
                break
    return proved / matches


def _make_random(game: Prover, seed: int) -> Script:
    """Return a player that writes random tactics, regardless of the goal."""
    rng = np.random.default_rng([seed, 1])  # independent of the match, which may have the same seed
    return lambda view: game.proof.draw_act(rng)


def _make_oracle(game: Prover, seed: int) -> Script:
    """Return a player that writes the hidden proof, tactic by tactic."""
    return lambda view: game.proof.hint()


def _make_flawed(game: Prover, seed: int) -> Script:
    """Return a player that writes the hidden proof's next tactic half of the time, else a random one that applies.

    `Proof.hint` leads it back to the hidden proof, if possible, when it has left it.
    """
    rng = np.random.default_rng([seed, 3])

    def act(view: View) -> str:
        right = "" if rng.random() < 0.5 else game.proof.hint()
        return right or game.proof.draw_likely_act(rng)

    return act


def _make_planner(game: Prover, seed: int) -> Script:
    """Return a player that writes a proof found by `Planner`, with subgoals from the hidden proof.

    If none is found, and with kind coq, it plays random tactics.
    """
    acts = list[str]()

    def act(view: View) -> str:
        if isinstance(game.proof, RewriteProof) and game.turns == 0:
            acts.extend(Planner(np.random.default_rng([seed, 4])).prove(game.proof))
        return acts.pop(0) if acts else game.proof.draw_act(np.random.default_rng([seed, 5, game.turns]))

    return act


Prover.players = {
    "noop": lambda game, seed: lambda view: "drop",
    "random": _make_random,
    "oracle": _make_oracle,
    "flawed": _make_flawed,
    "planner": _make_planner,
}
