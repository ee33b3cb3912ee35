"""Matchmaking: who is met how often, who learns from which seat, and how wins are counted."""

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
from games.contracts import MatchId

LIVE = {seat: Seating("player", "shared", 7, True, "model") for seat in ("first", "second")}
APART = {
    "first": Seating("one", "left", 7, True, "model"),
    "second": Seating("two", "right", 7, True, "model"),
    "third": Seating("three", "random", 0, False, "brain"),
}


def record(payoffs: Mapping[str, float], seats: Mapping[str, Seating], status: Any = "finished") -> MatchRecord:
    return MatchRecord(
        identity=MatchId(1, 0),
        game="nim",
        options={},
        seed=1,
        seats=dict(seats),
        status=status,
        reason="",
        payoffs=dict(payoffs),
        report={},
        turns=(),
        streams={},
        started="",
        seconds=1.0,
    )


def against(policy: str, trained: str = "first") -> dict[str, Seating]:
    other = "second" if trained == "first" else "first"
    return {trained: LIVE[trained], other: Seating("player", policy, 0, False, "model")}


def pool(tmp_path: Path, members: list[int], recent: list[int]) -> Pool:
    return Pool(tmp_path, PoolSpec(), 3, {"members": members, "recent": recent})


def spec(**settings: Any) -> OpponentSpec:
    return OpponentSpec.model_validate(settings)


def arranged(
    matchmaker: Matchmaker, k: int, count: int, seats: Mapping[str, Seating] = LIVE, **policies: Policy
) -> list[dict[str, Seating]]:
    return matchmaker.arrange(k, "nim", seats, count, policies, np.random.default_rng(5))


def test_pfsp_by_hand() -> None:
    """Beaten always, half the time, never: (1-p)^2 is 0, 1/4, 1."""
    assert pfsp([1.0, 0.5, 0.0]) == pytest.approx([0, 0.2, 0.8])
    assert pfsp([0.5, 0.5]) == pytest.approx([0.5, 0.5])
    assert pfsp([1.0, 1.0, 1.0, 1.0]) == pytest.approx([0.25] * 4), "nobody left to fear: all alike"


def test_wins_count_one_draws_half_and_old_ones_fade() -> None:
    rates = WinRates()
    assert rates.rate("nim", "shared", "shared@0") == 0.5
    win, draw, loss = ({"first": a, "second": b} for a, b in ((1.0, -1.0), (0.0, 0.0), (-1.0, 1.0)))
    rates.update([record(result, against("shared@0")) for result in (win, draw)])
    won, played = DECAY * 1 + 0.5, DECAY + 1
    assert rates.rate("nim", "shared", "shared@0") == pytest.approx((won + PRIOR / 2) / (played + PRIOR))
    rates.update([record(loss, against("shared@0"))])
    won, played = DECAY * won, DECAY * played + 1
    assert rates.rate("nim", "shared", "shared@0") == pytest.approx((won + PRIOR / 2) / (played + PRIOR))
    assert rates.rate("chess", "shared", "shared@0") == 0.5, "another game"
    again = WinRates(json.loads(json.dumps(rates.state())))
    assert again.state() == rates.state() and again.rate("nim", "shared", "shared@0") < 0.6


def test_only_finished_matches_of_a_learner_against_others_are_scored() -> None:
    payoffs = {"first": 0.0, "second": 3.0}
    assert score_match(record(payoffs, against("random"))) == [("shared", "random", 0.0)]
    assert score_match(record(payoffs, against("random", trained="second"))) == [("shared", "random", 1.0)]
    assert score_match(record(payoffs, LIVE)) == [], "self-play"
    assert score_match(record({}, against("random"), "failed")) == []
    three = record({"first": 2.0, "second": 2.0, "third": 5.0}, APART)
    assert score_match(three) == [("left", "random", 0.0), ("right", "random", 0.0)]


def test_opponents_come_in_proportion_to_their_weights(tmp_path: Path) -> None:
    mixture = [spec(play="self", weight=2.0), spec(play="fixed", policy="random", weight=1.0)]
    mixture.append(spec(play="fixed", policy="mcts:9", weight=1.0))
    found = arranged(Matchmaker(mixture, pool(tmp_path, [0], []), WinRates()), 3, 8000)
    met = Counter(frozenset(s.policy for s in seats.values()) for seats in found)
    assert met[frozenset({"shared"})] == pytest.approx(4000, abs=4 * 45)
    assert met[frozenset({"shared", "random"})] == pytest.approx(2000, abs=4 * 39)
    assert sum(met.values()) == 8000 and len(met) == 3
    scripted = {s for seats in found for s in seats.values() if s.policy != "shared"}
    assert scripted == {Seating("player", name, 0, False, "brain") for name in ("random", "mcts:9")}


def test_schedules_say_when_an_opponent_is_met(tmp_path: Path) -> None:
    mixture = [
        spec(play="fixed", policy="random", until=2),
        spec(play="self", **{"from": 3}),
        spec(play="fixed", policy="first_legal", weight=0.0),
    ]
    matchmaker = Matchmaker(mixture, pool(tmp_path, [0], []), WinRates())
    for k, expected in ((1, {"shared", "random"}), (2, {"shared", "random"}), (3, {"shared"}), (9, {"shared"})):
        assert {s.policy for seats in arranged(matchmaker, k, 20) for s in seats.values()} == expected


@pytest.mark.parametrize(
    "settings", [{"play": "past", "lag": 1}, {"play": "fixed", "policy": "random"}, {"play": "pfsp"}]
)
@pytest.mark.parametrize("seats", [LIVE, APART])
def test_seats_take_turns_in_learning(tmp_path: Path, settings: dict[str, Any], seats: dict[str, Seating]) -> None:
    matchmaker = Matchmaker([spec(**settings)], pool(tmp_path, [0], [4, 5, 6]), WinRates())
    taught = Counter[str]()
    for k in (1, 2, 3, 4):
        for found in arranged(matchmaker, k, 101, seats):
            (learner,) = (seat for seat, s in found.items() if s.trained)
            assert {seat for seat in seats if found[seat] != seats[seat]} == {"first", "second"} - {learner}
            taught[learner] += 1
    assert taught == {"first": 202, "second": 202}


def test_seats_take_turns_against_each_opponent_of_a_mixture(tmp_path: Path) -> None:
    mixture = [spec(play="fixed", policy=script) for script in ("random", "first_legal", "mcts:9")]
    matchmaker = Matchmaker(mixture, pool(tmp_path, [0], []), WinRates())
    met = [{s.policy: seat for seat, s in found.items()} for found in arranged(matchmaker, 1, 300)]
    for opponent in ("random", "first_legal", "mcts:9"):
        seats = Counter(found[opponent] for found in met if opponent in found)
        assert abs(seats["first"] - seats["second"]) <= 1 < seats["first"]


def test_past_is_the_version_of_so_many_updates_ago_or_the_oldest(tmp_path: Path) -> None:
    mixture = [spec(play="past", lag=3)]
    matchmaker = Matchmaker(mixture, pool(tmp_path, [0], [4, 5, 6, 7]), WinRates())
    (found,) = arranged(matchmaker, 8, 1)
    assert sorted(found.values(), key=lambda s: s.policy) == [
        LIVE["first"],
        Seating("player", "shared@4", 4, False, "model"),
    ]
    young = {seat: Seating("player", "shared", 2, True, "model") for seat in LIVE}
    (found,) = arranged(Matchmaker(mixture, pool(tmp_path, [0], [0, 1, 2]), WinRates()), 3, 1, young)
    assert {s.policy for s in found.values()} == {"shared", "shared@0"}


def test_separate_policies_meet_each_others_past(tmp_path: Path) -> None:
    found = arranged(Matchmaker([spec(play="past", lag=1)], pool(tmp_path, [0], [6, 7]), WinRates()), 8, 2, APART)
    assert [{seat: s.policy for seat, s in seats.items()} for seats in found] == [
        {"first": "left", "second": "right@6", "third": "random"},
        {"first": "left@6", "second": "right", "third": "random"},
    ]
    assert [s.role for s in found[0].values()] == ["one", "two", "three"]


def test_pfsp_meets_those_most_who_are_beaten_least(tmp_path: Path) -> None:
    rates = WinRates({"nim: shared vs shared@0": [98.0, 98.0], "nim: shared vs shared@5": [1.0, 4.0]})
    chances = (99 / 100, 2 / 6, 1 / 2)  # with the prior of two matches, one of them won
    expected = (1 - np.array(chances)) ** 2
    matchmaker = Matchmaker([spec(play="pfsp")], pool(tmp_path, [0, 5, 10], []), rates)
    met = Counter(s.version for seats in arranged(matchmaker, 11, 6000) for s in seats.values() if not s.trained)
    assert [met[v] / 6000 for v in (0, 5, 10)] == pytest.approx(expected / expected.sum(), abs=0.025)


def test_a_table_without_two_learners_stays_as_it_is(tmp_path: Path) -> None:
    alone = {"first": LIVE["first"], "second": Seating("player", "random", 0, False, "brain")}
    matchmaker = Matchmaker([spec(play="pfsp")], pool(tmp_path, [0], []), WinRates())
    assert arranged(matchmaker, 1, 3, alone) == [alone] * 3


def test_the_same_chance_arranges_the_same_matches(tmp_path: Path) -> None:
    mixture = [spec(play="self"), spec(play="pfsp"), spec(play="past", lag=1)]
    matchmaker = Matchmaker(mixture, pool(tmp_path, [0, 5], [5, 6]), WinRates())
    assert arranged(matchmaker, 7, 50) == arranged(matchmaker, 7, 50)
