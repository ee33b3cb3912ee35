"""Random walks in a small maze by an engine without weights, with rollout parts."""

import asyncio
from typing import Any

import numpy as np

from agents.engines.base import Completion, Request
from agents.memory import Memory
from agents.role import load_role
from arena.play.branches import Branch
from arena.play.contenders import ModelContender, play_one
from arena.play.control import MatchControl
from arena.play.match import Limits, MatchPlan
from arena.records import MatchRecord, Seating
from games.contracts import Game, MatchId
from tests.factories.babble import FRAME, POLICIES
from tests.factories.rollout_parts import make_part

WALKER = load_role("nano_player").model_copy(update={"memory": Memory()})
STEPS = ("NORTH", "EAST", "SOUTH", "WEST")
PATCHED: dict[str, Any] = {"patch": {"expert": "oracle"}}


class RandomWalkEngine:
    """Engine that walks at random, by the request's seed."""

    max_context = 10**9

    def __init__(self, acts: tuple[str, ...] = STEPS) -> None:
        self.acts, self.requests = acts, list[Request]()

    async def generate(self, requests: Any) -> list[Completion]:
        return [self._complete(request) for request in requests]

    def _complete(self, request: Request) -> Completion:
        self.requests.append(request)
        rng = np.random.default_rng(request.seed)
        ids = (*FRAME.encode(str(rng.choice(self.acts))), FRAME.stop_id)
        return Completion(ids, tuple(rng.normal(-1, 0.1, len(ids)).tolist()), "stop", 3)

    def forget(self, key: str) -> None:
        pass


def play_walk(
    number: int = 0, engine: Any = None, branch: Branch | None = None, options: Any = None, k: int = 1, **rules: Any
) -> MatchRecord:
    """Play a match; `rules` are the settings of rollout parts by name."""
    parts = [make_part(name, **settings) for name, settings in rules.items()]
    used_engine: Any = engine or RandomWalkEngine()
    contender = ModelContender("p", used_engine, lambda game, seat: (POLICIES["p"], WALKER))
    identity = branch.identity if branch else MatchId(k, number)
    seats = {"walker": Seating("nano_player", "p", 3, True, "model")}
    plan = MatchPlan(
        identity=identity, game="maze", options={"size": 3, **(options or {})}, seed=number, seats=seats, branch=branch
    )

    def control(plan: MatchPlan, game: Game) -> list[MatchControl]:
        return [control for part in parts if (control := part.control(plan, game))]

    return asyncio.run(play_one(plan, {"walker": contender}, 5, Limits(), control=control))
