"""Ratings: who wins rises, and what is kept is enough to go on."""

import json
from dataclasses import replace

import pytest

from arena.league.ratings import Ratings
from arena.records import MatchRecord, Seating, Status
from games.contracts import MatchId


def record(payoffs: dict[str, float], status: Status = "finished", policy: str = "shared") -> MatchRecord:
    seats = {seat: Seating(f"{seat}_role", policy, 1, True, "model") for seat in ("opener", "responder")}
    return MatchRecord(
        identity=MatchId(1, 0), game="negotiation", options={}, seed=1, seats=seats, status=status, reason="",
        payoffs=payoffs, report={}, turns=(), streams={}, started="2026-01-01T00:00:00", seconds=1.0,
    )  # fmt: skip


def rated(*payoffs: tuple[float, float]) -> dict[str, list[float]]:
    ratings = Ratings()
    ratings.update(record({"opener": a, "responder": b}) for a, b in payoffs)
    return ratings.state()


def test_the_winner_goes_up_and_the_loser_down_by_as_much() -> None:
    state = rated((7.0, 3.0))
    (up, sigma), (down, _) = state["opener_role/shared"], state["responder_role/shared"]
    assert up > 25 > down and up - 25 == pytest.approx(25 - down)
    assert sigma < 25 / 3, "a match played is something known"
    assert rated((3.0, 7.0))["responder_role/shared"][0] == pytest.approx(up), "seats are treated alike"


def test_equal_payoffs_are_a_draw() -> None:
    state = rated((5.0, 5.0))
    assert state["opener_role/shared"][0] == pytest.approx(state["responder_role/shared"][0])


def test_more_wins_are_a_better_rating_whatever_the_margin() -> None:
    assert rated((9.0, 1.0)) == rated((6.0, 5.0))
    assert rated(*[(6.0, 5.0)] * 5)["opener_role/shared"][0] > rated((6.0, 5.0))["opener_role/shared"][0]


def test_failed_matches_and_self_play_of_one_role_rate_nobody() -> None:
    ratings = Ratings()
    seats = dict.fromkeys(("opener", "responder"), Seating("player", "shared", 1, True, "model"))
    ratings.update([record({}, "failed"), replace(record({"opener": 1.0, "responder": 0.0}), seats=seats)])
    assert ratings.state() == {}


def test_the_state_goes_through_json_and_goes_on_the_same() -> None:
    first, later = [record({"opener": 7.0, "responder": 3.0})] * 3, [record({"opener": 1.0, "responder": 3.0})] * 2
    unbroken = Ratings()
    unbroken.update(first + later)
    broken = Ratings()
    broken.update(first)
    resumed = Ratings(json.loads(json.dumps(broken.state())))
    assert resumed.state() == broken.state()
    resumed.update(later)
    assert resumed.state() == unbroken.state()


def test_several_games_are_rated_apart() -> None:
    ratings = Ratings(by_game=True)
    one = record({"opener": 7.0, "responder": 3.0})
    ratings.update([one, replace(one, game="haggle", payoffs={"opener": 1.0, "responder": 2.0})])
    state = ratings.state()
    assert state["negotiation/opener_role/shared"][0] > 25 > state["haggle/opener_role/shared"][0]
    assert len(state) == 4


def test_a_past_version_begins_where_its_policy_stands_and_stays_there() -> None:
    ratings = Ratings()
    ratings.update([record({"opener": 7.0, "responder": 3.0})] * 3)
    ratings.inherit("shared@12", "shared")
    then = ratings.state()
    assert then["opener_role/shared@12"] == then["opener_role/shared"]
    ratings.update([record({"opener": 7.0, "responder": 3.0})])
    assert ratings.state()["opener_role/shared@12"] == then["opener_role/shared@12"]
    assert ratings.state()["opener_role/shared"][0] > then["opener_role/shared"][0]
