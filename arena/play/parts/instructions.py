"""Instructions: populations of texts at the end of a role's system prompt, selected by reward (INSPO).

Each deal draws one instruction per role with probability p_i = softmax(w / temperature), where w_i is a running mean of
(payoff - mean) / deviation over an iteration's matches of a game. Running means discount old iterations, because the
best instruction changes as the policy learns. At intervals, a new text from a crossover or a policy's reflection
replaces the worst; with `verify`, only if it scored more than the worst in a trial. Evaluations use the best one.
Source: INSPO (Zhou et al. 2025), whose exact attribution rule is not public.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, NamedTuple, Self

import numpy as np
from pydantic import Field, TypeAdapter, model_validator

from agents.reply import to_one_line
from arena.parts.chance import generator
from arena.parts.spec import Name, Spec
from arena.play.match import MatchPlan
from arena.play.parts.base import PartContext, RolloutPart, SeatedGame, Setup, declare
from arena.play.parts.reflection import describe_last_turn, write_instruction
from arena.records import MatchRecord
from games.names import nearest

CROSSOVER_ATTEMPTS = 16
"""Maximum attempts to get a new instruction from a crossover."""
MAX_INSTRUCTION = 500
"""Maximum characters of an instruction."""
Instruction = Annotated[str, Field(min_length=1, max_length=MAX_INSTRUCTION)]


class InstructionsOfRole(Spec):
    """Population of instructions. Each deal draws one, which ends the role's system prompt."""

    texts: Annotated[list[Instruction], Field(min_length=1, max_length=100)]
    """Initial instructions, all different."""
    temperature: Annotated[float, Field(gt=0, le=1e6)] = 0.25
    """Temperature of the softmax that draws instructions, in standard deviations of payoffs."""
    rate: Annotated[float, Field(gt=0, le=1)] = 0.2
    """Minimum weight of an iteration in the running mean of an instruction's scores; 1 uses only the last."""
    every: Annotated[int, Field(ge=0, le=10**4)] = 0
    """Iterations between new instructions; 0 adds none."""
    size: Annotated[int, Field(ge=1, le=100)] = 8
    """Maximum number of instructions. A new one replaces the worst."""
    writer: Name | None = None
    """Policy that writes new instructions by reflection; null crosses two existing ones."""
    replay: Annotated[int, Field(ge=1, le=16)] = 1
    """Number of latest iterations whose worst match the writer reads."""
    verify: Annotated[int, Field(ge=0, le=10**6)] = 0
    """Number of deals in which a new instruction is tried before it may replace the worst; 0 replaces it at once."""

    @model_validator(mode="after")
    def _check_texts(self) -> Self:
        plain = [" ".join(text.split()) for text in self.texts]
        if len({*plain}) < len(plain) or "" in plain:
            raise ValueError("`texts` must all differ, and none may be blank")
        if len(plain) > self.size:
            raise ValueError(f"there are {len(plain)} `texts`, more than `size`, which is {self.size}: raise it")
        return self


def _check(setup: Setup, *, roles: Mapping[str, InstructionsOfRole]) -> None:
    """Raise ValueError if matches overlap with learning."""
    if setup.play.overlaps:
        raise ValueError("they depend on the scores of the previous iteration: set ahead to 0 and enough to 1")


def _check_tables(
    tables: Sequence[SeatedGame], policies: Mapping[str, bool], *, roles: Mapping[str, InstructionsOfRole]
) -> None:
    """Raise ValueError if no policy in `policies` plays a role with instructions, or if a `writer` is not among them.

    `policies` are the names of the policies with weights. Its values (whether they are trained) are not used.
    """
    played_roles = [
        table.roles[seat].role for table in tables for seat, policy in table.holders.items() if policy in policies
    ]
    for role, rule in roles.items():
        if role not in played_roles:
            known = ", ".join(dict.fromkeys(played_roles))
            raise ValueError(f"no policy plays the role {role}{nearest(role, played_roles)} (there are: {known})")
        if rule.writer is not None and rule.writer not in policies:
            raise ValueError(f"{role}.writer: unknown policy '{rule.writer}' (policies: {', '.join(policies)})")


def _get_best(state: Mapping[str, Any]) -> dict[str, str]:
    """Return each role's instruction with the best score, from the part's `state`; none for roles that played none."""
    populations = _POPULATIONS.validate_python(state["tried"])
    scored_by_role = {role: [one for one in population if one.iterations] for role, population in populations.items()}
    return {role: max(rows, key=lambda one: one.weight).text for role, rows in scored_by_role.items() if rows}


@declare(check=_check, check_tables=_check_tables, instructions=_get_best)
def instructions(context: PartContext, *, roles: dict[Name, InstructionsOfRole]) -> RolloutPart:
    """Let instructions compete for the end of a role's system prompt (INSPO); `roles` has a population per role."""
    return Instructions(context, roles)


class ScoredInstruction(NamedTuple):
    """Instruction with the running mean of its scores (`weight`) and the number of iterations that played it."""

    text: Instruction
    weight: Annotated[float, Field(allow_inf_nan=False)] = 0.0
    iterations: Annotated[int, Field(ge=0)] = 0


_POPULATIONS = TypeAdapter(dict[str, Annotated[list[ScoredInstruction], Field(min_length=1)]])
_FAILED = TypeAdapter(dict[str, list[str]])


class Instructions(RolloutPart):
    """Rollout part with a population of instructions per role, which draws them for deals and scores them."""

    def __init__(self, context: PartContext, rules: Mapping[str, InstructionsOfRole]) -> None:
        self.context, self.rules, self.seed = context, rules, context.seed
        self.populations = {role: [ScoredInstruction(text) for text in rule.texts] for role, rule in rules.items()}
        self.failed: dict[str, list[str]] = {}
        """Last turn of each role's worst match in each of the latest iterations, oldest first."""
        self.candidates: dict[str, str] = {}
        """New instruction of each role on trial in the current iteration."""
        self.last_renewal = 0
        """Latest iteration for which `plan` has checked if new instructions are due."""

    def state(self) -> dict[str, Any]:
        """Return {"tried": populations by role, "failed": last turns of the worst matches by role} as JSON."""
        populations = {role: [one._asdict() for one in each] for role, each in self.populations.items()}
        return {"tried": populations, "failed": {role: [*each] for role, each in self.failed.items()}}

    def load(self, state: Mapping[str, Any]) -> None:
        """Restore the populations and the worst matches. A role that is not in the state keeps its initial texts."""
        populations = _POPULATIONS.validate_python(state["tried"])
        self.populations |= {role: population for role, population in populations.items() if role in self.rules}
        self.failed = _FAILED.validate_python(state["failed"])

    async def plan(self, k: int, plans: list[MatchPlan]) -> list[MatchPlan]:
        """Return the plans with an instruction drawn per deal. First add a new instruction to each role that is due."""
        if self.last_renewal < k:
            self.last_renewal = k
            for role in self.find_due(k):
                rule, new_text = self.rules[role], ""
                if rule.writer is not None:
                    ranked = sorted(self.populations[role], key=lambda one: -one.weight)
                    scored = [(one.weight, one.text) for one in ranked]
                    asker, failed = self.context.asker, self.failed.get(role, ())
                    new_text = await write_instruction(asker, rule.writer, (self.seed, k), role, scored, failed)
                if text := self.propose(k, role, new_text) if rule.verify else self.add(k, role, new_text):
                    self.context.note(f"iteration {k}: {role} tries the instruction {text!r}")
        return self.assign(k, plans)

    def probabilities(self, role: str) -> list[float]:
        """Return the probability of drawing each of a role's instructions: the softmax of weight / temperature."""
        weights = np.array([one.weight for one in self.populations[role]]) / self.rules[role].temperature
        powers = np.exp(weights - weights.max())
        return (powers / powers.sum()).tolist()  # type: ignore[no-any-return]

    def assign(self, k: int, plans: Iterable[MatchPlan]) -> list[MatchPlan]:
        """Return the plans of iteration `k` with instructions at models' seats, drawn once per role and deal."""
        texts: dict[tuple[str, int], str] = {}
        trials = {role: self.rules[role].verify for role in self.candidates}

        def draw_text(role: str, deal: int) -> str:
            if (role, deal) not in texts and trials.get(role):
                trials[role] -= 1
                texts[role, deal] = self.candidates[role]
            elif (role, deal) not in texts:
                rng = generator(self.seed, k, "instruct", role, f"{deal}")
                place = int(rng.choice(len(self.populations[role]), p=self.probabilities(role)))
                texts[role, deal] = self.populations[role][place].text
            return texts[role, deal]

        def with_instructions(plan: MatchPlan) -> MatchPlan:
            seats = {
                seat: replace(seating, instruction=draw_text(seating.role, plan.seed))
                for seat, seating in plan.seats.items()
                if seating.kind == "model" and seating.role in self.rules
            }
            return replace(plan, seats={**plan.seats, **seats})

        return [with_instructions(plan) for plan in plans]

    def observe(self, k: int, records: Sequence[MatchRecord]) -> None:
        """Update the running means and the worst matches from an iteration's finished matches.

        An instruction that was not played keeps its mean. A candidate that scored more than the worst instruction
        is added; other candidates are dropped.
        """
        for role, rule in self.rules.items():
            scores, worst = _score_instructions(role, records)
            for place, one in enumerate(self.populations[role]):
                if gains := scores.get(one.text):
                    step = max(rule.rate, 1 / (one.iterations + 1))
                    weight = one.weight + step * (float(np.mean(gains)) - one.weight)
                    self.populations[role][place] = ScoredInstruction(one.text, weight, one.iterations + 1)
            trial = self.candidates.pop(role, "")
            score = float(np.mean(scores.get(trial, [-np.inf])))
            if trial and score > min(one.weight for one in self.populations[role]):
                self._admit(role, ScoredInstruction(trial, score, 1))
            if worst:
                self.failed[role] = [*self.failed.get(role, ()), worst][-rule.replay :]

    def metrics(self, records: Sequence[MatchRecord]) -> dict[str, dict[str, float]]:
        """Return the number of different instructions in an iteration's matches, as `instructions.used`."""
        instructions = {(seating.role, seating.instruction) for record in records for seating in record.seats.values()}
        return {"instructions": {"used": float(sum(bool(text) for _, text in instructions))}}

    def find_due(self, k: int) -> list[str]:
        """Return the roles that get a new instruction before iteration `k`: every `rule.every` iterations."""
        return [role for role, rule in self.rules.items() if rule.every and k > 1 and (k - 1) % rule.every == 0]

    def add(self, k: int, role: str, text: str = "") -> str:
        """Add a new instruction (see `propose`) to a role's population and return it; "" if none was found.

        It starts with the best score, and replaces the worst instruction of a full population.
        """
        if text := self.propose(k, role, text):
            del self.candidates[role]
            self._admit(role, ScoredInstruction(text, max(one.weight for one in self.populations[role])))
        return text

    def propose(self, k: int, role: str, text: str = "") -> str:
        """Put a new instruction of a role on trial and return it; "" if none was found.

        It is `text` or, if that is empty or known, a crossover of two instructions.
        """
        known, rng = {"", *(one.text for one in self.populations[role])}, generator(self.seed, k, "crossover", role)
        new_text = to_one_line(text, MAX_INSTRUCTION)
        crossovers = (self._crossover(role, rng) for _ in range(CROSSOVER_ATTEMPTS))
        if text := next((one for one in (new_text, *crossovers) if one not in known), ""):
            self.candidates[role] = text
        return text

    def _admit(self, role: str, new: ScoredInstruction) -> None:
        """Add an instruction to a role's population. It replaces the worst if the population is full."""
        best = sorted(self.populations[role], key=lambda one: -one.weight)[: self.rules[role].size - 1]
        self.populations[role] = [*best, new]

    def _crossover(self, role: str, rng: np.random.Generator) -> str:
        """Return the first words of one instruction and the last words of another, both drawn by `probabilities`.

        Returns "" if fewer than two can be drawn.
        """
        population, probabilities = self.populations[role], self.probabilities(role)
        if len(population) < 2 or sum(chance > 0 for chance in probabilities) < 2:
            return ""
        one, two = (
            population[int(n)].text.split() for n in rng.choice(len(population), size=2, replace=False, p=probabilities)
        )
        head, tail = one[: int(rng.integers(1, len(one) + 1))], two[int(rng.integers(len(two))) :]
        return to_one_line(" ".join([*head, *tail]), MAX_INSTRUCTION)


def _score_instructions(role: str, records: Iterable[MatchRecord]) -> tuple[dict[str, list[float]], str]:
    """Return the payoffs by instruction, standardised within each game, and the text of the worst match's last turn."""
    rows = [
        (record, seat, record.payoffs[seat])
        for record in records
        for seat, seating in record.seats.items()
        if seating.role == role and seating.instruction and seat in record.payoffs
    ]
    scores: dict[str, list[float]] = {}
    for game in {record.game for record, _, _ in rows}:
        payoffs = np.array([each for record, _, each in rows if record.game == game])
        spread = float(payoffs.std()) or 1.0
        for record, seat, each in rows:
            if record.game == game:
                scores.setdefault(record.seats[seat].instruction, []).append((each - float(payoffs.mean())) / spread)
    return scores, describe_last_turn(*min(rows, key=lambda row: row[2])[:2]) if rows else ""
