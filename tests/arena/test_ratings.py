"""Ratings: who wins rises, and what is kept is enough to go on."""

import json
from dataclasses import replace

import pytest

from arena.league.ratings import Ratings
from arena.records import MatchRecord, Seating


def record(payoffs: dict[str, float], status: str = "finished", policy: str = "shared") -> MatchRecord:
    seats = {seat: Seating(f"{seat}_role", policy, 1, True, "model") for seat in ("opener", "responder")}
    return MatchRecord(
        "0001-0000",
        1,
        "negotiation",
        {},
        1,
        seats,
        status,
        "",
        payoffs,
        {},
        (),
        {},
        0,
        "2026-01-01T00:00:00",
        1.0,  # type: ignore[arg-type]
    )


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
