"""Kind `coq` of the prover: lemmas of Coq's standard library, proved tactic by tactic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from games.slow import offload
from simulators.base import Simulator, SimulatorFault
from simulators.prover.coq_guard import read_sentence
from simulators.prover.coq_theorems import LEMMAS
from simulators.prover.coqtop import CoqFault, attempt
from simulators.prover.proof import Step

MAX_SHOWN = 2000
"""Maximum number of characters of the goals that are shown."""
GUESSES = (
    "intros.", "auto.", "lia.", "reflexivity.", "simpl.", "destruct n.", "induction n.", "induction l.", "destruct b.",
    "split.", "tauto.", "congruence.", "symmetry.", "constructor.", "discriminate.", "rewrite IHn.", "rewrite IHl.",
    "unfold not.", "apply H.", "inversion H.",
)  # fmt: skip
"""Tactics that the random player chooses from, whatever the goal."""


def write_statement(lemma: str) -> str:
    """Return the sentence that opens a library lemma's type as a goal."""
    return f"Goal ltac:(let t := type of (@Coq.{lemma}) in exact t)."


class CoqProof:
    """Proof of a library lemma in progress: the sentences that Coq accepted, and the goals after them."""

    def __init__(self, lemma: str, hidden_proof: Sequence[str]) -> None:
        self.lemma, self.hidden_proof, self.family = lemma, hidden_proof, lemma.rpartition(".")[0]
        self.accepted_sentences: tuple[str, ...] = ()
        self.goal = _attempt((), write_statement(lemma))[0]
        if not self.goal:
            raise SimulatorFault(f"prover: this Coq cannot state {lemma}")

    @property
    def is_proved(self) -> bool:
        """True if no goal is left and the kernel has checked the proof."""
        return not self.goal

    def facts(self) -> dict[str, Any]:
        """Return `open`, the number of open goals, and `numbered` and `lemmas`, which are empty for this kind."""
        return {"numbered": "", "lemmas": {}, "open": int(self.goal.split(maxsplit=1)[0]) if self.goal else 0}

    def situation(self) -> str:
        """Return all open goals with their hypotheses as text."""
        return self.goal

    def __deepcopy__(self, memo: dict[int, Any]) -> CoqProof:
        """Return an independent copy. The state is the list of sentences, so copies can share Coq's processes."""
        copied = CoqProof.__new__(CoqProof)
        copied.__dict__ = dict(self.__dict__)
        return copied

    def apply(self, act: str) -> Step:
        """Send one tactic to Coq. Raises ValueError for a text that is not an allowed tactic."""
        sentence = read_sentence(act, self.lemma)
        goal, error = _attempt((write_statement(self.lemma), *self.accepted_sentences), sentence)
        if error:
            return Step(sentence, error)
        self.accepted_sentences, self.goal = (*self.accepted_sentences, sentence), goal
        return Step(sentence, "")

    def hint(self) -> str:
        """Return the next sentence of the hidden proof; "" if the proof so far differs from it."""
        count = len(self.accepted_sentences)
        return self.hidden_proof[count] if self.accepted_sentences == tuple(self.hidden_proof[:count]) else ""

    def draw_act(self, rng: np.random.Generator) -> str:
        """Return one of `GUESSES`."""
        return GUESSES[int(rng.integers(len(GUESSES)))]

    draw_likely_act = draw_act


def _attempt(before: Sequence[str], sentence: str) -> tuple[str, str]:
    """Return the goals after a sentence as text, and Coq's error if it refused the sentence."""
    try:
        goals, error = offload(attempt, before, sentence)
    except CoqFault as fault:
        raise SimulatorFault(f"prover: {fault}") from None
    lines = "\n".join(line.strip() for line in goals.splitlines() if line.strip())
    return lines if len(lines) <= MAX_SHOWN else f"{lines[: MAX_SHOWN - 2]} …", error


class CoqLibrary:
    """Source of library lemmas whose hidden proofs have a number of tactics in the range `depth`."""

    def __init__(self, depth: tuple[int, int]) -> None:
        shortest, longest = depth
        self.lemmas = [(lemma, proof) for lemma, proof in LEMMAS if shortest <= len(proof) <= longest]
        if not self.lemmas:
            raise ValueError(f"depth: no lemma of kind coq has a hidden proof of {shortest} to {longest} tactics")

    def rules(self, terse: bool) -> str:
        """Return the rules as text, in few words if `terse`."""
        if terse:
            return "Prove the goal in Coq: one tactic a turn, such as INTROS or induction n."
        return (
            "Prove the goal in Coq, with Arith, List, Lia and Bool loaded. Write one tactic a turn, such as induction "
            "n, simpl, rewrite IHn, INTROS, AUTO or LIA. It works on the first goal. No bullets, no semicolons. The "
            "lemma's own name may not be used."
        )

    def deal(self, game: Simulator, rng: np.random.Generator) -> CoqProof:
        """Draw a lemma whose module is in the game's split, and return its proof, not yet begun."""

        def draw() -> tuple[str, tuple[str, ...]]:
            return self.lemmas[int(rng.integers(len(self.lemmas)))]

        return CoqProof(*game.draw_entity(draw, lambda entry: entry[0].rpartition(".")[0]))
