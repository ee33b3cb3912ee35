"""Kind `rewrite` of the prover: equations, to be proved by rewriting either side with a few rules."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from simulators.base import Simulator, SimulatorFault
from simulators.prover.proof import Step
from simulators.prover.rules import DESCRIPTIONS, RULES, apply_lemma, list_successors, rewrite
from simulators.prover.terms import Equation, format_equation, format_numbered, format_term, read_equation
from simulators.prover.theorems import SHAPES, Theorem, draw_shape, draw_theorem

MAX_GOALS = 3
"""Maximum number of open goals, including the theorem."""
MAX_LEMMAS = 9
_TACTIC = re.compile(rf"({'|'.join(RULES)})\s+([1-9][0-9]?)", re.ASCII)
_LEMMA = re.compile(r"h([1-9])", re.ASCII)
_HAVE = re.compile(r"have\b(.*)", re.ASCII | re.DOTALL)


class Goal(NamedTuple):
    """Open goal: the equation that is left to prove, and the equation that was stated."""

    left: Equation
    stated: Equation


class RewriteProof:
    """Proof of an equation in progress: a stack of open goals, the last one in focus, and proved subgoals as lemmas."""

    def __init__(self, theorem: Theorem, family: str) -> None:
        self.family = family
        self.hidden_proof: Sequence[str] = theorem.proof
        self.goals: list[Goal] = [Goal(theorem.equation, theorem.equation)]
        self.lemmas: list[Equation] = []
        self.theorem = theorem.equation

    @property
    def is_proved(self) -> bool:
        """True if no goal is left."""
        return not self.goals

    @property
    def goal(self) -> str:
        """The goal in focus as text; "" after the proof."""
        return format_equation(self.goals[-1].left) if self.goals else ""

    def facts(self) -> dict[str, Any]:
        """Return `numbered` (goal with operator numbers), `lemmas` as texts by name, and the number of `open` goals."""
        named = {f"h{number}": format_equation(lemma) for number, lemma in enumerate(self.lemmas, 1)}
        return {
            "numbered": format_numbered(self.goals[-1].left) if self.goals else "",
            "lemmas": named,
            "open": len(self.goals),
        }

    def situation(self) -> str:
        """Return all open goals, the one in focus last, and the lemmas, as text."""
        goals = [f"{format_equation(left)} for {format_equation(stated)}" for left, stated in self.goals]
        return " ; ".join(goals) + " | " + " ; ".join(map(format_equation, self.lemmas))

    def __deepcopy__(self, memo: dict[int, Any]) -> RewriteProof:
        """Return an independent copy; equations are immutable and shared."""
        copied = RewriteProof.__new__(RewriteProof)
        copied.__dict__ = {**self.__dict__, "goals": [*self.goals], "lemmas": [*self.lemmas]}
        return copied

    def apply(self, act: str) -> Step:
        """Rewrite the goal, use a lemma, open a subgoal or drop one. Raises ValueError for text that is not an act."""
        act = act.strip().casefold()
        if tactic := _TACTIC.fullmatch(act):
            name, number = tactic[1], int(tactic[2])
            after = rewrite(self.goals[-1].left, name, number)
            return self._rewrite(f"{name} {number}", after, f"{name} does not apply at {number}")
        if lemma := _LEMMA.fullmatch(act):
            if (number := int(lemma[1])) > len(self.lemmas):
                return Step(act, f"there is no lemma {act}")
            equation = self.lemmas[number - 1]
            after = apply_lemma(self.goals[-1].left, equation)
            return self._rewrite(act, after, f"{format_term(equation[0])} does not occur")
        if have := _HAVE.fullmatch(act):
            return self._open(read_equation(have[1]))
        if act != "drop":
            raise ValueError(f"acts are {', '.join(RULES)} with an operator's number, have TERM = TERM, h1, drop")
        if len(self.goals) == 1:
            return Step(act, "the theorem itself cannot be dropped")
        self.goals.pop()
        return Step(act, "")

    def _rewrite(self, act: str, after: Equation | None, refusal: str) -> Step:
        """Replace the goal in focus by `after`, or refuse if that is None. A goal with equal sides is proved."""
        if after is None:
            return Step(act, refusal)
        goal = self.goals.pop()
        if after[0] != after[1]:
            self.goals.append(goal._replace(left=after))
        elif self.goals:
            self.lemmas.append(goal.stated)
        return Step(act, "")

    def _open(self, goal: Equation) -> Step:
        act = f"have {format_equation(goal)}"
        if goal[0] == goal[1] or goal in self.lemmas or goal in [stated for _, stated in self.goals]:
            return Step(act, "that is known or open already")
        if len(self.goals) == MAX_GOALS or len(self.goals) + len(self.lemmas) > MAX_LEMMAS:
            return Step(act, "too many goals and lemmas")
        self.goals.append(Goal(goal, goal))
        return Step(act, "")

    def hint(self) -> str:
        """Return an act along the hidden proof, or back to it within two tactics; "" if none is found."""
        if len(self.goals) > 1:
            return "drop"
        equation, next_acts = self.goals[0].left, dict(self.list_states())
        if equation in next_acts:
            return next_acts[equation]
        successors = list(list_successors(equation))
        for act, after in successors:
            if after in next_acts or after[0] == after[1]:
                return act
        pairs = ((act, second) for act, after in successors for _, second in list_successors(after))
        return next((act for act, second in pairs if second in next_acts), "")

    def list_states(self) -> list[tuple[Equation, str]]:
        """Return the theorem's states along the hidden proof, each with the next act."""
        equation, states = self.theorem, []
        for act in self.hidden_proof:
            states.append((equation, act))
            rule, number = act.split()
            after = rewrite(equation, rule, int(number))
            assert after is not None, "the hidden proof does not apply"
            equation = after
        return states

    def draw_act(self, rng: np.random.Generator) -> str:
        """Return a random rule at a random operator from 1 to 9."""
        return f"{list(RULES)[int(rng.integers(len(RULES)))]} {int(rng.integers(1, 10))}"

    def draw_likely_act(self, rng: np.random.Generator) -> str:
        """Return a random tactic that applies to the left side of the goal; any random tactic if none does."""
        acts = [act for act, _ in list_successors(self.goals[-1].left, (0,))]
        return acts[int(rng.integers(len(acts)))] if acts else self.draw_act(rng)


class Rewriting:
    """Source of equations with hidden proofs of length `depth` and left sides with `operators` operators (ranges)."""

    def __init__(self, depth: tuple[int, int], operators: tuple[int, int]) -> None:
        self.depth, self.operators = depth, operators

    def rules(self, terse: bool) -> str:
        """Return the rules as text, in few words if `terse`."""
        names = [name.upper() for name in RULES]
        if terse:
            return f"Prove the equation. {', '.join(f'{name} n' for name in names)}, HAVE TERM = TERM, h1, DROP."
        meanings = ", ".join(f"{name.upper()} n ({says})" for name, says in DESCRIPTIONS.items())
        return (
            "Prove the equation by rewriting it until both sides are the same. Operators are numbered from 1 in the "
            f"order of the text. Each of these rewrites at operator n: {meanings}. HAVE TERM = TERM opens a subgoal; "
            "once it is proved, h1 (then h2, and so on) rewrites its left side into its right side. DROP gives the "
            "subgoal up."
        )

    def deal(self, game: Simulator, rng: np.random.Generator) -> RewriteProof:
        """Draw a theorem whose shape is in the game's split, and return its proof, not yet begun."""
        length = int(rng.integers(self.depth[0], self.depth[1] + 1))
        for _ in range(SHAPES):
            shape = game.draw_entity(lambda: draw_shape(rng, self.operators), format_term)
            if theorem := draw_theorem(rng, shape, length):
                return RewriteProof(theorem, format_term(shape))
        raise SimulatorFault(f"prover: no theorem of {length} tactics was found: allow more operators")
