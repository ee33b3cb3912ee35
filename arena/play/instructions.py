"""Instructions: populations of texts at the end of a role's system prompt, selected by reward (INSPO).

Each deal draws one instruction per role with probability p_i = softmax(w / temperature), where w_i is a running mean of
(payoff - mean) / deviation over an iteration's matches of a game. Running means forget, because the best instruction
changes as the policy learns. At intervals a new text, by crossover or by a policy's reflection, replaces the worst.
Source: INSPO (Zhou et al. 2025), whose exact rule of attribution is not public.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from agents.engines.base import Engine, Request
from agents.policy import Policy
from agents.reply import one_line
from agents.role import Role
from arena.parts.chance import generator, number
from arena.play.match import MatchPlan
from arena.play.settings import LONGEST_INSTRUCTION, InstructionsSpec
from arena.records import MatchRecord
from games.contracts import View

CROSSINGS = 16
"""Attempts to get a new instruction from a crossover."""
WRITER_PROMPT = (
    "You improve the instruction of a player. Write one better instruction in one sentence, and nothing else."
)
WRITER_TOKENS, WRITER_EXAMPLES = 60, 4
"""Maximum tokens that a writer samples, and number of instructions that it reads."""


class Tried(NamedTuple):
    """Instruction in a population, with the running mean of its scores and the number of iterations that played it."""

    text: str
    weight: float = 0.0
    iterations: int = 0


class Instructed(Role):
    """Role with an instruction at the end of its system prompt, as plain text because a model may have written it."""

    instruction: str = ""

    def render_system(self, view: View) -> str:
        """Return the role's own system text, followed by a line with the instruction."""
        return f"{super().render_system(view)}\n{self.instruction}".strip()


def instructed(role: Role, instruction: str) -> Role:
    """Return a copy of the role with this instruction, or the role itself if the instruction is ""."""
    return Instructed.model_construct(**dict(role), instruction=instruction) if instruction else role


class Instructions:
    """Population of instructions for each role of a run: drawn for matches, scored by payoffs, and renewed."""

    def __init__(self, rules: Mapping[str, InstructionsSpec], seed: int, state: Mapping[str, Any]) -> None:
        """Restore a checkpoint's `state`. With {}, populations start with the texts of the rules."""
        self.rules, self.seed = rules, seed
        saved: Mapping[str, Sequence[Mapping[str, Any]]] = state.get("tried", {})
        self.tried = {
            role: [Tried(**row) for row in saved[role]] if role in saved else [Tried(text) for text in rule.texts]
            for role, rule in rules.items()
        }
        self.failed: dict[str, str] = dict(state.get("failed", {}))
        """Last turn of each role in the match of the latest iteration with its lowest payoff."""

    def state(self) -> dict[str, Any]:
        """Return instructions with scores (`tried`) and texts of bad matches (`failed`) by role, for the checkpoint."""
        tried = {role: [one._asdict() for one in each] for role, each in self.tried.items()}
        return {"tried": tried, "failed": dict(self.failed)}

    def chances(self, role: str) -> list[float]:
        """Return the probability of drawing each of a role's instructions: the softmax of their scores."""
        weights = np.array([one.weight for one in self.tried[role]]) / self.rules[role].temperature
        powers = np.exp(weights - weights.max())
        return (powers / powers.sum()).tolist()  # type: ignore[no-any-return]

    def assign(self, k: int, plans: Iterable[MatchPlan]) -> list[MatchPlan]:
        """Return the plans of iteration `k` with instructions at models' seats, drawn once per role and deal."""
        drawn: dict[tuple[str, int], str] = {}

        def text(role: str, deal: int) -> str:
            if (role, deal) not in drawn:
                rng = generator(self.seed, k, "instruct", role, f"{deal}")
                place = int(rng.choice(len(self.tried[role]), p=self.chances(role)))
                drawn[role, deal] = self.tried[role][place].text
            return drawn[role, deal]

        def with_instructions(plan: MatchPlan) -> MatchPlan:
            seats = {
                seat: replace(held, instruction=text(held.role, plan.seed))
                for seat, held in plan.seats.items()
                if held.kind == "model" and held.role in self.rules
            }
            return replace(plan, seats={**plan.seats, **seats})

        return [with_instructions(plan) for plan in plans]

    def learned(self, records: Sequence[MatchRecord]) -> None:
        """Update the instructions' scores and each role's worst match from an iteration's finished matches."""
        for role, rule in self.rules.items():
            scores, worst = _scores(role, records)
            for place, one in enumerate(self.tried[role]):
                if gains := scores.get(one.text):
                    step = max(rule.rate, 1 / (one.iterations + 1))
                    weight = one.weight + step * (float(np.mean(gains)) - one.weight)
                    self.tried[role][place] = Tried(one.text, weight, one.iterations + 1)
            if worst:
                self.failed[role] = worst

    def due(self, k: int) -> list[str]:
        """Return the roles that get a new instruction before iteration `k`: every `rule.every` iterations."""
        return [role for role, rule in self.rules.items() if rule.every and k > 1 and (k - 1) % rule.every == 0]

    def add(self, k: int, role: str, text: str = "") -> str:
        """Add a new instruction to a role's population and return it; "" if none was found.

        It is `text` or, if that is empty or known, a crossover of two instructions. It starts with the best score, and
        replaces the worst one in a full population.
        """
        known, rng = {"", *(one.text for one in self.tried[role])}, generator(self.seed, k, "crossover", role)
        written = one_line(text, LONGEST_INSTRUCTION)
        crossed = (self._crossover(role, rng) for _ in range(CROSSINGS))
        if not (text := next((one for one in (written, *crossed) if one not in known), "")):
            return ""
        ranked = sorted(self.tried[role], key=lambda one: -one.weight)
        best = ranked[: self.rules[role].size - 1]
        self.tried[role] = [*best, Tried(text, ranked[0].weight)]
        return text

    def _crossover(self, role: str, rng: np.random.Generator) -> str:
        """Return the first words of one instruction and the last words of another, both drawn; "" with only one."""
        tried, chances = self.tried[role], self.chances(role)
        if len(tried) < 2 or sum(chance > 0 for chance in chances) < 2:
            return ""
        one, two = (tried[int(n)].text.split() for n in rng.choice(len(tried), size=2, replace=False, p=chances))
        first, rest = one[: int(rng.integers(1, len(one) + 1))], two[int(rng.integers(len(two))) :]
        return one_line(" ".join([*first, *rest]), LONGEST_INSTRUCTION)


def _scores(role: str, records: Iterable[MatchRecord]) -> tuple[dict[str, list[float]], str]:
    """Return the payoffs by instruction, standardised within each game, and the text of the worst match's last turn."""
    rows = [
        (record, seat, record.payoffs[seat])
        for record in records
        for seat, held in record.seats.items()
        if held.role == role and held.instruction and seat in record.payoffs
    ]
    scores: dict[str, list[float]] = {}
    for game in {record.game for record, _, _ in rows}:
        paid = np.array([each for record, _, each in rows if record.game == game])
        spread = float(paid.std()) or 1.0
        for record, seat, each in rows:
            if record.game == game:
                scores.setdefault(record.seats[seat].instruction, []).append((each - float(paid.mean())) / spread)
    return scores, _last_turn(*min(rows, key=lambda row: row[2])[:2]) if rows else ""


def _last_turn(record: MatchRecord, seat: str) -> str:
    """Return messages and reply of the seat's last turn, shortened to one line; "" if it took none."""
    turns = [turn for turn in record.turns if turn.seat == seat]
    read = " ".join(message.text for message in turns[-1].messages) if turns else ""
    return f"It read: {one_line(read, 300)} It wrote: {one_line(turns[-1].raw, 300)}" if turns else ""


async def write_instruction(policy: Policy, engine: Engine, instructions: Instructions, k: int, role: str) -> str:
    """Sample a new instruction for `role` from `policy` and return it in one line; "" if its context has no room."""
    key, frame = f"instruct-{k}-{role}", policy.frame
    prompt = (*frame.open(WRITER_PROMPT, []), *frame.ask(writer_question(instructions, role)))
    if len(prompt) + WRITER_TOKENS > min(policy.positions, engine.max_context):
        return ""
    request = Request(
        policy=policy.name,
        ids=prompt,
        key=key,
        max_tokens=WRITER_TOKENS,
        temperature=1.0,
        top_p=1.0,
        top_k=0,
        stop_ids=frame.stop_ids,
        seed=(instructions.seed, k, number("reflect"), number(role)),
    )
    (completion,) = await engine.generate([request])
    engine.forget(key)
    return one_line(frame.decode(completion.ids), 10**4)


def writer_question(instructions: Instructions, role: str) -> str:
    """Return the prompt for a new instruction: the best instructions with their scores, and the role's worst match."""
    ranked = sorted(instructions.tried[role], key=lambda one: -one.weight)[:WRITER_EXAMPLES]
    scores = [f"{one.weight:+.2f}: {one.text}" for one in ranked]
    failed = instructions.failed.get(role, "")
    bad = [f"A bad match. {failed}"] if failed else []
    return "\n".join(["Instructions so far, with how good they were:", *scores, *bad])
