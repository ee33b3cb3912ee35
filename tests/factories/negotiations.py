"""Scripted matches of negotiation for tests of the orchestrator."""

import asyncio
from typing import Any

import numpy as np

from agents.players.model import ScriptedPlayer
from agents.players.scripted import SCRIPTED
from arena.play.match import Limits, MatchPlan, play_match
from arena.records import MatchRecord, Seating
from games.contracts import Act, MatchId, View
from games.negotiation import Negotiation

SEATS = {s: Seating(s, "random", 0, False, "brain") for s in Negotiation.seats}


class SlowPlayer(ScriptedPlayer):
    """Scripted player that yields to others for a random number of loop steps."""

    def __init__(self, script: Any, seed: int) -> None:
        super().__init__(script)
        self.rng = np.random.default_rng(seed)

    async def act(self, view: View) -> Act:
        for _ in range(self.rng.integers(0, 5)):
            await asyncio.sleep(0)
        return await super().act(view)


def make_plans(count: int) -> list[MatchPlan]:
    return [
        MatchPlan(identity=MatchId(1, i), game="negotiation", options={}, seed=1000 + i, seats=dict(SEATS))
        for i in range(count)
    ]


async def play_negotiation(plan: MatchPlan) -> MatchRecord:
    seed = plan.seed + 7 * plan.identity.attempt
    players = {seat: SlowPlayer(SCRIPTED["random"](seed + i), plan.seed) for i, seat in enumerate(SEATS)}
    return await play_match(plan, Negotiation(max_turns=6), players, Limits())
