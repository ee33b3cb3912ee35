"""Matchmaking: frequencies of opponents, learning seats, and counts of wins."""

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agents.policy import Policy
from arena.league.matchmaking import DECAY, PRIOR, Matchmaker, WinRates, pfsp, score_match
from arena.league.pool import Pool
from arena.league.settings import OpponentSpec, PoolSpec
from arena.records import MatchRecord, Seating
from tests.factories.records import make_match_record

SHARED_SEATS = {seat: Seating("player", "shared", 7, True, "model") for seat in ("first", "second")}
SEPARATE_SEATS = {
    "first": Seating("one", "left", 7, True, "model"),
    "second": Seating("two", "right", 7, True, "model"),
    "third": Seating("three", "random", 0, False, "brain"),
}


def make_record(payoffs: Mapping[str, float], seats: Mapping[str, Seating], status: Any = "finished") -> MatchRecord:
    return make_match_record(game="nim", seats=dict(seats), status=status, payoffs=dict(payoffs))


def make_seats_against(policy: str, trained: str = "first") -> dict[str, Seating]:
    other = "second" if trained == "first" else "first"
    return {trained: SHARED_SEATS[trained], other: Seating("player", policy, 0, False, "model")}


def make_pool(tmp_path: Path, members: list[int], recent: list[int]) -> Pool:
    return Pool(tmp_path, PoolSpec(), 3, {"members": members, "recent": recent})


def make_spec(**settings: Any) -> OpponentSpec:
    return OpponentSpec.model_validate(settings)


def arrange_matches(
    matchmaker: Matchmaker, k: int, count: int, seats: Mapping[str, Seating] = SHARED_SEATS, **policies: Policy
) -> list[dict[str, Seating]]:
    return matchmaker.arrange(k, "nim", seats, count, policies, np.random.default_rng(5))


def test_pfsp_by_hand() -> None:
    """Win rates 1, 1/2 and 0 give (1-p)^2 = 0, 1/4, 1."""
    assert pfsp([1.0, 0.5, 0.0]) == pytest.approx([0, 0.2, 0.8])
    assert pfsp([0.5, 0.5]) == pytest.approx([0.5, 0.5])
    assert pfsp([1.0, 1.0, 1.0, 1.0]) == pytest.approx([0.25] * 4), "all opponents are beaten: equal weights"


def test_wins_count_one_draws_half_and_old_ones_decay() -> None:
    rates = WinRates()
    assert rates.rate("nim", "shared", "shared@0") == 0.5
    win, draw, loss = ({"first": a, "second": b} for a, b in ((1.0, -1.0), (0.0, 0.0), (-1.0, 1.0)))
    rates.update([make_record(result, make_seats_against("shared@0")) for result in (win, draw)])
    won, played = DECAY * 1 + 0.5, DECAY + 1
    assert rates.rate("nim", "shared", "shared@0") == pytest.approx((won + PRIOR / 2) / (played + PRIOR))
    rates.update([make_record(loss, make_seats_against("shared@0"))])
    won, played = DECAY * won, DECAY * played + 1
    assert rates.rate("nim", "shared", "shared@0") == pytest.approx((won + PRIOR / 2) / (played + PRIOR))
    assert rates.rate("chess", "shared", "shared@0") == 0.5, "another game"
    restored = WinRates(json.loads(json.dumps(rates.state())))
    assert restored.state() == rates.state() and restored.rate("nim", "shared", "shared@0") < 0.6


def test_only_finished_matches_of_a_learner_against_others_are_scored() -> None:
    payoffs = {"first": 0.0, "second": 3.0}
    assert score_match(make_record(payoffs, make_seats_against("random"))) == [("shared", "random", 0.0)]
    assert score_match(make_record(payoffs, make_seats_against("random", trained="second"))) == [
        ("shared", "random", 1.0)
    ]
    assert score_match(make_record(payoffs, SHARED_SEATS)) == [], "self-play"
    assert score_match(make_record({}, make_seats_against("random"), "failed")) == []
    three = make_record({"first": 2.0, "second": 2.0, "third": 5.0}, SEPARATE_SEATS)
    assert score_match(three) == [("left", "random", 0.0), ("right", "random", 0.0)]


def test_opponents_follow_their_weights(tmp_path: Path) -> None:
    mixture = [make_spec(play="self", weight=2.0), make_spec(play="fixed", policy="random", weight=1.0)]
    mixture.append(make_spec(play="fixed", policy="mcts:9", weight=1.0))
    arranged = arrange_matches(Matchmaker(mixture, make_pool(tmp_path, [0], []), WinRates()), 3, 8000)
    counts = Counter(frozenset(s.policy for s in seats.values()) for seats in arranged)
    assert counts[frozenset({"shared"})] == pytest.approx(4000, abs=4 * 45)
    assert counts[frozenset({"shared", "random"})] == pytest.approx(2000, abs=4 * 39)
    assert sum(counts.values()) == 8000 and len(counts) == 3
    scripted = {s for seats in arranged for s in seats.values() if s.policy != "shared"}
    assert scripted == {Seating("player", name, 0, False, "brain") for name in ("random", "mcts:9")}


def test_schedules_limit_opponents(tmp_path: Path) -> None:
    mixture = [
        make_spec(play="fixed", policy="random", until=2),
        make_spec(play="self", **{"from": 3}),
        make_spec(play="fixed", policy="first_legal", weight=0.0),
    ]
    matchmaker = Matchmaker(mixture, make_pool(tmp_path, [0], []), WinRates())
    for k, expected in ((1, {"shared", "random"}), (2, {"shared", "random"}), (3, {"shared"}), (9, {"shared"})):
        assert {s.policy for seats in arrange_matches(matchmaker, k, 20) for s in seats.values()} == expected


@pytest.mark.parametrize(
    "settings", [{"play": "past", "lag": 1}, {"play": "fixed", "policy": "random"}, {"play": "pfsp"}]
)
@pytest.mark.parametrize("seats", [SHARED_SEATS, SEPARATE_SEATS])
def test_seats_alternate_in_learning(tmp_path: Path, settings: dict[str, Any], seats: dict[str, Seating]) -> None:
    matchmaker = Matchmaker([make_spec(**settings)], make_pool(tmp_path, [0], [4, 5, 6]), WinRates())
    taught = Counter[str]()
    for k in (1, 2, 3, 4):
        for arranged in arrange_matches(matchmaker, k, 101, seats):
            (learner,) = (seat for seat, s in arranged.items() if s.trained)
            assert {seat for seat in seats if arranged[seat] != seats[seat]} == {"first", "second"} - {learner}
            taught[learner] += 1
    assert taught == {"first": 202, "second": 202}


def test_seats_alternate_against_each_opponent(tmp_path: Path) -> None:
    mixture = [make_spec(play="fixed", policy=script) for script in ("random", "first_legal", "mcts:9")]
    matchmaker = Matchmaker(mixture, make_pool(tmp_path, [0], []), WinRates())
    counts = [{s.policy: seat for seat, s in arranged.items()} for arranged in arrange_matches(matchmaker, 1, 300)]
    for opponent in ("random", "first_legal", "mcts:9"):
        seats = Counter(arranged[opponent] for arranged in counts if opponent in arranged)
        assert abs(seats["first"] - seats["second"]) <= 1 < seats["first"]


def test_past_opponent_is_the_lagged_or_oldest_version(tmp_path: Path) -> None:
    mixture = [make_spec(play="past", lag=3)]
    matchmaker = Matchmaker(mixture, make_pool(tmp_path, [0], [4, 5, 6, 7]), WinRates())
    (arranged,) = arrange_matches(matchmaker, 8, 1)
    assert sorted(arranged.values(), key=lambda s: s.policy) == [
        SHARED_SEATS["first"],
        Seating("player", "shared@4", 4, False, "model"),
    ]
    young = {seat: Seating("player", "shared", 2, True, "model") for seat in SHARED_SEATS}
    (arranged,) = arrange_matches(Matchmaker(mixture, make_pool(tmp_path, [0], [0, 1, 2]), WinRates()), 3, 1, young)
    assert {s.policy for s in arranged.values()} == {"shared", "shared@0"}


def test_separate_policies_play_each_others_past(tmp_path: Path) -> None:
    arranged = arrange_matches(
        Matchmaker([make_spec(play="past", lag=1)], make_pool(tmp_path, [0], [6, 7]), WinRates()), 8, 2, SEPARATE_SEATS
    )
    assert [{seat: s.policy for seat, s in seats.items()} for seats in arranged] == [
        {"first": "left", "second": "right@6", "third": "random"},
        {"first": "left@6", "second": "right", "third": "random"},
    ]
    assert [s.role for s in arranged[0].values()] == ["one", "two", "three"]


def test_pfsp_prefers_opponents_with_low_win_rates(tmp_path: Path) -> None:
    rates = WinRates({"nim: shared vs shared@0": [98.0, 98.0], "nim: shared vs shared@5": [1.0, 4.0]})
    chances = (99 / 100, 2 / 6, 1 / 2)  # with the prior of two matches, one of them won
    expected = (1 - np.array(chances)) ** 2
    matchmaker = Matchmaker([make_spec(play="pfsp")], make_pool(tmp_path, [0, 5, 10], []), rates)
    counts = Counter(
        s.version for seats in arrange_matches(matchmaker, 11, 6000) for s in seats.values() if not s.trained
    )
    assert [counts[v] / 6000 for v in (0, 5, 10)] == pytest.approx(expected / expected.sum(), abs=0.025)


def test_table_with_one_learner_is_unchanged(tmp_path: Path) -> None:
    alone = {"first": SHARED_SEATS["first"], "second": Seating("player", "random", 0, False, "brain")}
    matchmaker = Matchmaker([make_spec(play="pfsp")], make_pool(tmp_path, [0], []), WinRates())
    assert arrange_matches(matchmaker, 1, 3, alone) == [alone] * 3


def test_same_seed_arranges_the_same_matches(tmp_path: Path) -> None:
    mixture = [make_spec(play="self"), make_spec(play="pfsp"), make_spec(play="past", lag=1)]
    matchmaker = Matchmaker(mixture, make_pool(tmp_path, [0, 5], [5, 6]), WinRates())
    assert arrange_matches(matchmaker, 7, 50) == arrange_matches(matchmaker, 7, 50)
