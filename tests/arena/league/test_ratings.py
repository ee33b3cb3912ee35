"""Ratings: winners rise, and the state suffices to resume."""

import json
from dataclasses import replace

import pytest

from arena.league.ratings import Ratings
from arena.records import MatchRecord, Seating, Status
from tests.factories.records import make_match_record


def make_record(payoffs: dict[str, float], status: Status = "finished", policy: str = "shared") -> MatchRecord:
    seats = {seat: Seating(f"{seat}_role", policy, 1, True, "model") for seat in ("opener", "responder")}
    return make_match_record(game="negotiation", seats=seats, status=status, payoffs=payoffs)


def rate_matches(*payoffs: tuple[float, float]) -> dict[str, list[float]]:
    ratings = Ratings()
    ratings.update(make_record({"opener": a, "responder": b}) for a, b in payoffs)
    return ratings.state()


def test_winner_rises_as_much_as_the_loser_falls() -> None:
    state = rate_matches((7.0, 3.0))
    (up, sigma), (down, _) = state["opener_role/shared"], state["responder_role/shared"]
    assert up > 25 > down and up - 25 == pytest.approx(25 - down)
    assert sigma < 25 / 3, "a match reduces the uncertainty"
    assert rate_matches((3.0, 7.0))["responder_role/shared"][0] == pytest.approx(up), "seats are treated alike"


def test_equal_payoffs_are_a_draw() -> None:
    state = rate_matches((5.0, 5.0))
    assert state["opener_role/shared"][0] == pytest.approx(state["responder_role/shared"][0])


def test_only_the_number_of_wins_counts() -> None:
    assert rate_matches((9.0, 1.0)) == rate_matches((6.0, 5.0))
    assert rate_matches(*[(6.0, 5.0)] * 5)["opener_role/shared"][0] > rate_matches((6.0, 5.0))["opener_role/shared"][0]


def test_failed_matches_and_self_play_of_one_role_are_not_rated() -> None:
    ratings = Ratings()
    seats = dict.fromkeys(("opener", "responder"), Seating("player", "shared", 1, True, "model"))
    ratings.update([make_record({}, "failed"), replace(make_record({"opener": 1.0, "responder": 0.0}), seats=seats)])
    assert ratings.state() == {}


def test_state_resumes_equal_from_json() -> None:
    first, later = (
        [make_record({"opener": 7.0, "responder": 3.0})] * 3,
        [make_record({"opener": 1.0, "responder": 3.0})] * 2,
    )
    unbroken = Ratings()
    unbroken.update(first + later)
    broken = Ratings()
    broken.update(first)
    resumed = Ratings(json.loads(json.dumps(broken.state())))
    assert resumed.state() == broken.state()
    resumed.update(later)
    assert resumed.state() == unbroken.state()


def test_several_games_are_rated_separately() -> None:
    ratings = Ratings(by_game=True)
    record = make_record({"opener": 7.0, "responder": 3.0})
    ratings.update([record, replace(record, game="haggle", payoffs={"opener": 1.0, "responder": 2.0})])
    state = ratings.state()
    assert state["negotiation/opener_role/shared"][0] > 25 > state["haggle/opener_role/shared"][0]
    assert len(state) == 4


def test_past_version_inherits_and_keeps_its_policys_rating() -> None:
    ratings = Ratings()
    ratings.update([make_record({"opener": 7.0, "responder": 3.0})] * 3)
    ratings.inherit("shared@12", "shared")
    before = ratings.state()
    assert before["opener_role/shared@12"] == before["opener_role/shared"]
    ratings.update([make_record({"opener": 7.0, "responder": 3.0})])
    assert ratings.state()["opener_role/shared@12"] == before["opener_role/shared@12"]
    assert ratings.state()["opener_role/shared"][0] > before["opener_role/shared"][0]
