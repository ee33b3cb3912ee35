"""Longer matches at test than in training: a seat may write more summaries than its role allows."""

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


def make_experiment(text: str = "") -> Experiment:
    return compose([text_layer("here", EXPERIMENT + text)])


class PassingEngine:
    """An engine that passes until it is asked a question, and summarises in one word."""

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


def play_match(summaries: int | None) -> MatchRecord:
    engine: Any = PassingEngine()
    contender = ModelContender(
        "p", engine, Casting(name="p", policies={"p": POLICIES["p"]}, experiment=make_experiment(), summaries=summaries)
    )
    game = make_experiment().all_tables()[0].game
    seats = {"keeper": contender.seating("recall", "keeper")}
    plan = MatchPlan(identity=MatchId(1, 0), game="recall", options=dict(game.options), seed=3, seats=seats)
    return asyncio.run(play_one(plan, {"keeper": contender}, 5, Limits()))


def test_evaluation_can_raise_the_number_of_summaries() -> None:
    default_count = sum(turn.source == "summary" for turn in play_match(None).turns)
    assert default_count > 1
    short, long = play_match(1), play_match(default_count + 5)
    assert short.report["ended"] == "context" and sum(turn.source == "summary" for turn in short.turns) == 1
    assert long.report["ended"] != "context" and len(long.turns) > len(short.turns)


def test_role_without_summaries_is_unchanged() -> None:
    cast = Casting(name="p", policies={"p": POLICIES["p"]}, summaries=9)
    _, role = cast("maze", "walker")
    assert role == Casting(name="p", policies={"p": POLICIES["p"]})("maze", "walker")[1]


@pytest.mark.parametrize(
    ("section", "message"), [("{summaries: 4, panel: x}", "panel"), ("{summaries: 4}", "give `panel")]
)
def test_summaries_need_games(section: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        make_experiment(f"evaluate: {section}\n")
    assert "\n" not in str(error.value)
    with pytest.raises(ConfigError, match="greater than or equal to 1"):
        make_experiment("evaluate: {summaries: 0, games: [{name: recall}]}\n")
    assert make_experiment("evaluate: {summaries: 4, games: [{name: recall}]}\n").evaluate
