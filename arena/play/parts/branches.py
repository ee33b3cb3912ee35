"""Branches at random turns: additional matches that repeat another match up to some turn of a learner.

With one branch at the last turn this is the data of REFUEL (Gao et al. 2024): two replies in the same context.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field

from arena.parts.chance import generator
from arena.play.branches import Branch
from arena.play.match import MatchPlan
from arena.play.parts.base import Expansion, PartContext, Progress, RolloutPart, Setup, declare
from arena.records import MatchRecord

Count = Annotated[int, Field(ge=1, le=10**4)]


def _check(setup: Setup, *, count: int, at: str) -> None:
    """Raise ValueError for several branches at the last turn, too many matches, or `play.enough` below 1."""
    if at == "last" and count != 1:
        raise ValueError(f"`at: last` is one branch of each match: set `count` to 1, not {count}")
    if setup.play.matches * (1 + count) > 10**6:
        raise ValueError(f"{setup.play.matches:,} `matches` with {count:,} branches each are more than a million")
    if setup.play.enough < 1:
        raise ValueError("late matches cannot have branches: set play.enough to 1")


@declare(check=_check, extra_matches=lambda *, count, at: count)
def branches(context: PartContext, *, count: Count = 1, at: Literal["any", "last"] = "any") -> RolloutPart:
    """Branch each match at `count` random turns of its learners, or at each match's `last` such turn."""
    return Branches(context.seed, count, at)


class Branches(RolloutPart):
    """Uniformly drawn branches of every match."""

    def __init__(self, seed: int, count: int, at: Literal["any", "last"]) -> None:
        self.seed, self.count, self.at = seed, count, at
        self.planned: dict[int, list[list[MatchPlan]]] = {}
        """Batches of plans whose matches have no branches yet, by iteration."""

    async def plan(self, k: int, plans: list[MatchPlan]) -> list[MatchPlan]:
        """Remember the plans, whose matches are branched after they have ended."""
        self.planned.setdefault(k, []).append(plans)
        return plans

    async def expand(self, k: int, progress: Progress) -> Expansion:
        """Return the branches of the matches planned since the last call."""
        batches = self.planned.pop(k, [])
        return Expansion(plans=[plan for plans in batches for plan in self._branch(k, plans, progress.ended)])

    def _branch(self, k: int, plans: Sequence[MatchPlan], records: Sequence[MatchRecord]) -> list[MatchPlan]:
        """Return the branches of these plans' finished matches, at turns drawn without replacement."""
        planned = {plan.identity: plan for plan in plans}
        rng = generator(self.seed, k, "branch", *map(str, list(planned)[:1]))
        new = []
        for record in records:
            if (plan := planned.get(record.identity.first_attempt)) is None:
                continue
            turns = [turn.index for turn in record.turns if record.seats[turn.seat].trained]
            turns = turns[-1:] if self.at == "last" else turns
            for turn in sorted(rng.permutation(turns)[: self.count].tolist()):
                branch = Branch(record, int(turn))
                new.append(replace(plan, identity=branch.identity, branch=branch, source="branched"))
        return new
