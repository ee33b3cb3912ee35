"""Self-consistency: the majority's act is played in the words of its first sample, and logged."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from agents.engines.base import Completion, Request
from agents.players.voting import elect, make_act_reader, make_voting_writer
from agents.role import Role
from arena.config.seating import resolve_tables
from arena.errors import ConfigError
from arena.play.contenders import ModelContender, play_one
from arena.play.match import Limits, MatchPlan
from arena.records import POLICY_SOURCES, MatchRecord, Seating
from games.contracts import MatchId
from tests.factories.babble import FRAME, POLICIES
from tests.factories.texts import make_sampling_experiment
from tests.factories.walks import STEPS, WALKER, RandomWalkEngine

VIEW: Any = None


@pytest.mark.parametrize(
    ("acts", "elected"),
    [
        (["a", "b", "b"], 1),  # two of three
        (["a", "b", "b", "a"], 0),  # a tie: the act that was sampled first
        (["", "", "", "c"], 3),  # who says nothing has no vote
        (["c", "d", "d", "e", "e", "e"], 3),
        (["", ""], 0),
        (["x"], 0),
    ],
)
def test_majority_matches_worked_examples(acts: list[str], elected: int) -> None:
    assert elect(acts) == elected


@given(st.lists(st.sampled_from(["", "a", "b", "c"]), min_size=1))
def test_elected_reply_has_most_votes(acts: list[str]) -> None:
    elected = elect(acts)
    assert acts[elected] not in acts[:elected]
    if acts[elected]:
        assert all(acts.count(act) <= acts.count(acts[elected]) for act in acts if act)
    else:
        assert set(acts) == {""}


def make_completion(text: str) -> Completion:
    ids = (*FRAME.encode(text), FRAME.stop_id)
    return Completion(ids, (-1.0,) * len(ids), "stop", 4)


def parse_reply(text: str, **role: Any) -> str:
    fields: dict[str, Any] = {"role": "r", "reply": {"format": "free"}, "sampling": {"votes": {}}}
    return make_act_reader(Role.model_validate({**fields, **role}), FRAME)(make_completion(text))


def test_votes_ignore_talk_case_and_blanks() -> None:
    assert parse_reply("OFFER 1  0 2 | please") == parse_reply("offer 1 0 2 | or else") == "offer 1 0 2"
    assert parse_reply("OFFER 1 0 2") != parse_reply("OFFER 1 0 3")


def test_a_pattern_finds_the_last_answer_of_a_reply_that_reasons() -> None:
    full: dict[str, Any] = {"reply": {"format": "whole"}}
    boxed = {"sampling": {"votes": {"pattern": r"\\boxed\{(\d+)\}"}}, **full}
    assert parse_reply("so \\boxed{3}, no: \\boxed{4}", **boxed) == parse_reply("\\boxed{4}", **boxed) == "4"
    assert parse_reply("four", **boxed) == ""
    assert parse_reply("at 17 or 23", **{"sampling": {"votes": {"pattern": "[0-9]+"}}, **full}) == "23"


def make_writer(texts: Sequence[str], requests: list[Request]) -> Any:
    async def write(view: Any, request: Request, summary: bool = False) -> Completion:
        requests.append(request)
        return make_completion(texts[request.seed[-1] % len(texts)])

    return write


def test_samples_with_own_seeds_and_keeps_one() -> None:
    requests = list[Request]()
    role = Role.model_validate({"role": "r", "reply": {"format": "free"}})
    write = make_voting_writer(
        make_writer(["EAST", "WEST | go", "WEST | now"], requests), 3, make_act_reader(role, FRAME)
    )
    request = Request(
        policy="p",
        ids=(1, 2),
        key="k",
        max_tokens=9,
        temperature=1.0,
        top_p=1.0,
        top_k=0,
        stop_ids=FRAME.stop_ids,
        seed=(7, 0),
    )
    reply = asyncio.run(write(VIEW, request))
    assert FRAME.decode(reply.ids) == "WEST | go" and reply.version == 4
    assert [one.seed for one in requests] == [(7, 0, 0), (7, 0, 1), (7, 0, 2)] and {one.ids for one in requests} == {
        (1, 2)
    }
    requests.clear()
    assert FRAME.decode(asyncio.run(write(VIEW, request, summary=True)).ids) == "EAST" and requests == [request]


def play_maze(votes: int | None, acts: tuple[str, ...]) -> tuple[MatchRecord, RandomWalkEngine]:
    rule = {"samples": votes} if votes else None
    sampling = WALKER.sampling.model_validate({**WALKER.sampling.model_dump(), "votes": rule})
    role, engine = WALKER.model_copy(update={"sampling": sampling}), RandomWalkEngine(acts)
    served: Any = engine
    contender = ModelContender("p", served, lambda game, seat: (POLICIES["p"], role))
    seats = {"walker": Seating("nano_player", "p", 3, False, "model")}
    plan = MatchPlan(identity=MatchId(1, 0), game="maze", options={"size": 3, "max_turns": 8}, seed=4, seats=seats)
    return asyncio.run(play_one(plan, {"walker": contender}, 5, Limits())), engine


def test_voted_turns_are_logged_and_not_trained_on() -> None:
    record, engine = play_maze(5, (*STEPS, "hm"))
    assert {turn.source for turn in record.turns} == {"voted"} and "voted" not in POLICY_SOURCES
    assert len(engine.requests) == 5 * len(record.turns)
    again = MatchRecord.from_json(record.to_json())
    assert [turn.source for turn in again.turns] == ["voted"] * len(record.turns)
    assert {turn.source for turn in play_maze(None, STEPS)[0].turns} == {"policy"}


# -- settings ----------------------------------------------------------------------------------------------


def test_trained_policies_do_not_vote(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"role odd: sampling\.votes keeps one of several"):
        resolve_tables(make_sampling_experiment(tmp_path, "{votes: {samples: 4}}"))


WRONG = [
    {"votes": {"samples": 1}}, {"votes": {"pattern": "("}}, {"votes": {}, "cautious": {}}, {"votes": {"sample": 2}},
]  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG)
def test_refuses_invalid_rules(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Role.model_validate({"role": "r", "sampling": wrong})
