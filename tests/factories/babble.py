"""Tables with a policy without weights, which writes texts drawn by the request's seed alone."""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np

from agents.chat import ChatFrame
from agents.engines.base import Completion, Request
from agents.model_folder import load_tokenizer
from agents.players.servers import Endpoints
from agents.policy import Policy
from agents.weights import resolve
from arena.play.lineup import Lineup, make_seatings
from arena.play.match import Limits, MatchPlan
from arena.play.settings import GameSpec
from arena.play.tables import make_table
from arena.records import MatchRecord
from games.contracts import MatchId

FRAME = ChatFrame(load_tokenizer(resolve("nano")))
TEXTS = ("OFFER 1 0 0", "OFFER 0 1 1", "OFFER 0 0 0 | please", "ACCEPT", "hm", "BET", "PASS")
POLICIES = {
    name: Policy(name=name, source=Path(), model=None, tokenizer=None, frame=FRAME, trained=True, version=3)
    for name in ("p", "q")
}


class RandomTextEngine:
    """Engine that answers any request with a random text and random log-probabilities, by the request's seed."""

    max_context = 10**9

    def __init__(self) -> None:
        self.requests: list[Request] = []

    async def generate(self, requests: Sequence[Request]) -> list[Completion]:
        return [self._complete(request) for request in requests]

    def _complete(self, request: Request) -> Completion:
        self.requests.append(request)
        rng = np.random.default_rng(request.seed)
        ids = (*FRAME.encode(str(rng.choice(TEXTS))), FRAME.stop_id)
        return Completion(ids, tuple(rng.normal(-1.0, 0.1, len(ids)).tolist()), "stop", 3)

    def forget(self, key: str) -> None:
        pass


class NoPastVersions:
    """Stand-in for `PastVersions` without any past version."""

    @asynccontextmanager
    async def reserve(self, policies: Collection[str]) -> AsyncIterator[None]:
        yield


def make_lineup(
    game: str, holders: Mapping[str, str], roles: Mapping[str, str] | None = None, **options: Any
) -> Lineup:
    """Return a lineup with one table, whose seats are held by `p`, `q`, or scripted policies."""
    if roles is None:
        roles = {seat: f"nano_{seat}" for seat in holders}
    engine: Any = RandomTextEngine()
    return Lineup(
        tables=[make_table(GameSpec(name=game, options=options), roles)],
        policies=POLICIES,
        engine=engine,
        seed=5,
        limits=Limits(),
        endpoints=Endpoints(),
    )


def make_plan(lineup: Lineup, holders: Mapping[str, str], number: int = 0, **changes: Any) -> MatchPlan:
    """Return the plan of a match at the lineup's table."""
    (table,) = lineup.tables
    seats, game = make_seatings(table, holders, lineup.policies), table.game
    return MatchPlan(
        identity=MatchId(1, number),
        game=game.name,
        options=dict(game.options),
        seed=100 + number,
        seats=seats,
        **changes,
    )


def drop_times(record: MatchRecord) -> dict[str, Any]:
    """Return the record's row without clock times."""
    row = record.to_json()
    return row | {"started": "", "seconds": 0.0, "turns": [{**turn, "seconds": 0.0} for turn in row["turns"]]}
