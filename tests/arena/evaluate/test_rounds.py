"""More rounds at test than in training: a seat may write more summaries there than its role says."""

import asyncio
from typing import Any

import numpy as np
import pytest

from agents.engines.base import Completion, Request
from arena.config.experiment import Experiment
from arena.config.layers import compose
from arena.config.sources import text_layer
from arena.errors import ConfigError
from arena.evaluate.casting import Casting
from arena.play.contenders import ModelContender, play_one
from arena.play.match import Limits, MatchPlan
from arena.records import MatchRecord
from games.contracts import MatchId
from tests.factories.babble import FRAME, POLICIES

EXPERIMENT = """\
name: here
game: {name: recall, options: {lines: 16, facts: 2, values: 2, illegal: end}}
seats: {keeper: {role: nano_keeper, policy: p}}
policies: {p: {model: nano}}
iterations: 1
"""


def experiment(text: str = "") -> Experiment:
    return compose([text_layer("here", EXPERIMENT + text)])


class Passing:
    """An engine that passes until it is asked, and sums up in one word."""

    max_context = 10**9

    async def generate(self, requests: Any) -> list[Completion]:
        return [self._one(request) for request in requests]

    def _one(self, request: Request) -> Completion:
        text = "0" if "ask" in FRAME.decode(request.ids).split("PASS")[-1] else "PASS"
        ids = (*FRAME.encode(text), FRAME.stop_id)[: request.max_tokens]
        finish: Any = "stop" if ids[-1] == FRAME.stop_id else "length"
        return Completion(ids, tuple(np.full(len(ids), -1.0).tolist()), finish, 3)

    def forget(self, key: str) -> None:
        pass


def played(summaries: int | None) -> MatchRecord:
    engine: Any = Passing()
    contender = ModelContender(
        "p", engine, Casting(name="p", policies={"p": POLICIES["p"]}, experiment=experiment(), summaries=summaries)
    )
    game = experiment().all_tables()[0].game
    seats = {"keeper": contender.seating("recall", "keeper")}
    plan = MatchPlan(identity=MatchId(1, 0), game="recall", options=dict(game.options), seed=3, seats=seats)
    return asyncio.run(play_one(plan, {"keeper": contender}, 5, Limits()))


def test_a_seat_writes_as_many_summaries_as_the_test_allows() -> None:
    own = sum(turn.source == "summary" for turn in played(None).turns)
    assert own > 1
    short, long = played(1), played(own + 5)
    assert short.report["ended"] == "context" and sum(turn.source == "summary" for turn in short.turns) == 1
    assert long.report["ended"] != "context" and len(long.turns) > len(short.turns)


def test_a_role_that_writes_none_is_as_it_was() -> None:
    cast = Casting(name="p", policies={"p": POLICIES["p"]}, summaries=9)
    _, role = cast("maze", "walker")
    assert role == Casting(name="p", policies={"p": POLICIES["p"]})("maze", "walker")[1]


@pytest.mark.parametrize(
    ("given", "message"), [("{summaries: 4, panel: x}", "panel"), ("{summaries: 4}", "give `panel")]
)
def test_summaries_belong_to_games(given: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        experiment(f"evaluate: {given}\n")
    assert "\n" not in str(error.value)
    with pytest.raises(ConfigError, match="greater than or equal to 1"):
        experiment("evaluate: {summaries: 0, games: [{name: recall}]}\n")
    assert experiment("evaluate: {summaries: 4, games: [{name: recall}]}\n").evaluate
