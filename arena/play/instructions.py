"""Instructions: for a role, a population of texts that end its system prompt, kept by what they earn (INSPO).

Each deal draws one for each role, by a softmax over running means of reward: p_i = softmax(w / temperature), w_i a mean
of (payoff - mean) / deviation over an iteration's matches of a game. A running mean forgets, for the best instruction
changes as the policy learns. Now and then a new text is tried, and once there are `size` the worst goes.
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
    """A text, the running mean of what it earned, and the number of iterations that played it."""

    text: str
    weight: float = 0.0
    iterations: int = 0


class Instructed(Role):
    """A role whose system prompt ends in an instruction; plain text, never a template: a model may have written it."""

    instruction: str = ""

    def render_system(self, view: View) -> str:
        """The role's own system text, and the instruction in a line below."""
        return f"{super().render_system(view)}\n{self.instruction}".strip()


def instructed(role: Role, instruction: str) -> Role:
    """The role with this instruction; itself where that is empty."""
    return Instructed.model_construct(**dict(role), instruction=instruction) if instruction else role


class Instructions:
    """The populations of a run, by role; a checkpoint keeps `state`."""

    def __init__(self, rules: Mapping[str, InstructionsSpec], seed: int, state: Mapping[str, Any]) -> None:
        """As a checkpoint's `state` has them; with {} as the rules have them."""
        self.rules, self.seed = rules, seed
        kept: Mapping[str, Sequence[Mapping[str, Any]]] = state.get("tried", {})
        self.tried = {
            role: [Tried(**row) for row in kept[role]] if role in kept else [Tried(text) for text in rule.texts]
            for role, rule in rules.items()
        }
        self.failed: dict[str, str] = dict(state.get("failed", {}))
        """By role, what it read last and wrote in the latest match that was paid least."""

    def state(self) -> dict[str, Any]:
        """State for the checkpoint."""
        tried = {role: [one._asdict() for one in each] for role, each in self.tried.items()}
        return {"tried": tried, "failed": dict(self.failed)}

    def chances(self, role: str) -> list[float]:
        """The probability of each instruction of a role."""
        weights = np.array([one.weight for one in self.tried[role]]) / self.rules[role].temperature
        powers = np.exp(weights - weights.max())
        return (powers / powers.sum()).tolist()  # type: ignore[no-any-return]

    def dealt(self, k: int, plans: Iterable[MatchPlan]) -> list[MatchPlan]:
        """The plans with an instruction for each role that has some; the matches of a deal have the same."""
        drawn: dict[tuple[str, int], str] = {}

        def text(role: str, deal: int) -> str:
            if (role, deal) not in drawn:
                rng = generator(self.seed, k, "instruct", role, f"{deal}")
                place = int(rng.choice(len(self.tried[role]), p=self.chances(role)))
                drawn[role, deal] = self.tried[role][place].text
            return drawn[role, deal]

        def seated(plan: MatchPlan) -> MatchPlan:
            given = {
                seat: replace(held, instruction=text(held.role, plan.seed))
                for seat, held in plan.seats.items()
                if held.kind == "model" and held.role in self.rules
            }
            return replace(plan, seats={**plan.seats, **given})

        return [seated(plan) for plan in plans]

    def learned(self, records: Sequence[MatchRecord]) -> None:
        """Update the running means by finished matches."""
        for role, rule in self.rules.items():
            earned, worst = _earned(role, records)
            for place, one in enumerate(self.tried[role]):
                if gains := earned.get(one.text):
                    step = max(rule.rate, 1 / (one.iterations + 1))
                    weight = one.weight + step * (float(np.mean(gains)) - one.weight)
                    self.tried[role][place] = Tried(one.text, weight, one.iterations + 1)
            if worst:
                self.failed[role] = worst

    def due(self, k: int) -> list[str]:
        """Roles that get a new instruction before iteration `k` is played."""
        return [role for role, rule in self.rules.items() if rule.every and k > 1 and (k - 1) % rule.every == 0]

    def add(self, k: int, role: str, text: str = "") -> str:
        """Try a text with a role, or a crossover of two where it is empty or known; return it, "" where nothing is new.

        It begins as good as the best, and its first matches say how good it is. Of too many the worst goes.
        """
        known, rng = {"", *(one.text for one in self.tried[role])}, generator(self.seed, k, "crossover", role)
        written = one_line(text, LONGEST_INSTRUCTION)
        crossed = (self._crossed(role, rng) for _ in range(CROSSINGS))
        if not (text := next((one for one in (written, *crossed) if one not in known), "")):
            return ""
        ranked = sorted(self.tried[role], key=lambda one: -one.weight)
        kept = ranked[: self.rules[role].size - 1]
        self.tried[role] = [*kept, Tried(text, ranked[0].weight)]
        return text

    def _crossed(self, role: str, rng: np.random.Generator) -> str:
        """The first words of one and the last words of another, drawn by how good they are."""
        tried, chances = self.tried[role], self.chances(role)
        if len(tried) < 2 or sum(chance > 0 for chance in chances) < 2:
            return ""
        one, two = (tried[int(n)].text.split() for n in rng.choice(len(tried), size=2, replace=False, p=chances))
        first, rest = one[: int(rng.integers(1, len(one) + 1))], two[int(rng.integers(len(two))) :]
        return one_line(" ".join([*first, *rest]), LONGEST_INSTRUCTION)


def _earned(role: str, records: Iterable[MatchRecord]) -> tuple[dict[str, list[float]], str]:
    """For each instruction, standard scores of what it earned in each match; and what the worst match was like."""
    rows = [
        (record, seat, record.payoffs[seat])
        for record in records
        for seat, held in record.seats.items()
        if held.role == role and held.instruction and seat in record.payoffs
    ]
    earned: dict[str, list[float]] = {}
    for game in {record.game for record, _, _ in rows}:
        paid = np.array([each for record, _, each in rows if record.game == game])
        spread = float(paid.std()) or 1.0
        for record, seat, each in rows:
            if record.game == game:
                earned.setdefault(record.seats[seat].instruction, []).append((each - float(paid.mean())) / spread)
    return earned, _last_turn(*min(rows, key=lambda row: row[2])[:2]) if rows else ""


def _last_turn(record: MatchRecord, seat: str) -> str:
    """The seat's last turn: what it read and what it wrote."""
    turns = [turn for turn in record.turns if turn.seat == seat]
    read = " ".join(message.text for message in turns[-1].messages) if turns else ""
    return f"It read: {one_line(read, 300)} It wrote: {one_line(turns[-1].raw, 300)}" if turns else ""


async def write_instruction(policy: Policy, engine: Engine, instructions: Instructions, k: int, role: str) -> str:
    """Return an instruction for a role that `policy` writes in iteration `k`; "" if its context has no room."""
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
    """Return a writer's question: the best instructions with their scores, best first, and the worst match."""
    ranked = sorted(instructions.tried[role], key=lambda one: -one.weight)[:WRITER_EXAMPLES]
    scores = [f"{one.weight:+.2f}: {one.text}" for one in ranked]
    failed = instructions.failed.get(role, "")
    bad = [f"A bad match. {failed}"] if failed else []
    return "\n".join(["Instructions so far, with how good they were:", *scores, *bad])
