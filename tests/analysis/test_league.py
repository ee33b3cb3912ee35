"""A planted cycle is found and no other, ratings order who is strong, influence is found where it was planted."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import analysis
from analysis import league
from analysis.league_plots import drawn
from tests.factories.made_run import make_run
from tests.factories.spoken_run import recorded, spoken
from tests.legible import complaints

BEATS = {("rock", "scissors"), ("scissors", "paper"), ("paper", "rock")}


def duels(path: Path, who: list[str], beats: set[tuple[str, str]], seed: int = 0, noise: float = 0.25) -> Path:
    """Three iterations in which every pair meets 12 times; who beats whom wins but for some luck."""
    rng, made = np.random.default_rng(seed), []
    for k in range(3):
        played = []
        for number, (one, other) in enumerate((a, b) for a in who for b in who if a < b for _ in range(12)):
            best = 1.0 if (one, other) in beats else -1.0 if (other, one) in beats else rng.choice([-1.0, 1.0])
            won = float(-best if rng.random() < noise else best)
            seats = {"left": one, "right": other}
            played.append(spoken(k, number, ["hello", "well"], seats, {"left": won, "right": -won}))
        made.append(played)
    return recorded(path, made)


def test_a_planted_cycle_is_found_by_the_graph_that_is_not_told_where(tmp_path: Path) -> None:
    who = ["paper", "rock", "rookie", "scissors", "veteran"]
    order = {("veteran", name) for name in who} | {(name, "rookie") for name in ("paper", "rock", "scissors")}
    log = analysis.load(duels(tmp_path / "run", who, BEATS | order))
    graph = league.beats(log)
    assert {*graph.edges} == {(a, b) for a, b in BEATS | order if a != b}
    assert league.cycles(graph) == [("paper", "rock", "scissors")]
    assert league.alpha_rank(log).index[0] == "veteran"
    figure = drawn(log)
    assert "cycle: paper > rock > scissors > paper" in figure.axes[0].get_xlabel() and not complaints(figure)


def test_without_a_cycle_none_is_found(tmp_path: Path) -> None:
    """Of ten leagues of three that are equal or ranked, by luck alone hardly one turns in a circle."""
    order = {("a", "b"), ("b", "c"), ("a", "c")}
    for seed in range(5):
        ranked = analysis.load(duels(tmp_path / f"ranked{seed}", ["a", "b", "c"], order, seed))
        assert league.cycles(league.beats(ranked)) == []
        equal = analysis.load(duels(tmp_path / f"equal{seed}", ["a", "b", "c"], set(), seed))
        assert league.cycles(league.beats(equal)) == []


def test_payoffs_and_ratings(tmp_path: Path) -> None:
    log = analysis.load(duels(tmp_path / "run", ["strong", "weak"], {("strong", "weak")}, noise=0.0))
    matrix = league.payoff_matrix(log)
    assert matrix.loc["strong", "weak"] == 1 and matrix.loc["weak", "strong"] == -1
    assert np.isnan(matrix["weak"].to_dict()["weak"])
    rated = league.ratings(log)
    assert rated["matches"].tolist() == [12, 12, 24, 24, 36, 36]
    strong, weak = (rated[rated["policy"] == name] for name in ("strong", "weak"))
    assert (strong["mu"].to_numpy() > weak["mu"].to_numpy() + 5).all() and strong["sigma"].is_monotonic_decreasing
    (pair,) = league.pairs(log)
    assert pair.matches == 36 and pair.ahead.estimate == 2


def talked(path: Path, follows: Mapping[str, str], seed: int = 0, matches: int = 60) -> analysis.Frames:
    """Three seats say yes or no by chance, twice each; who follows somebody says what that one said last."""
    rng, seats = np.random.default_rng(seed), {"a": "shared", "b": "shared", "c": "shared"}
    made = []
    for number in range(matches):
        last: dict[str, str] = {}
        lines = []
        for seat in [*seats, *seats]:
            last[seat] = last.get(follows.get(seat, ""), str(rng.choice(["yes", "no"])))
            lines.append(last[seat])
        made.append(spoken(0, number, lines, seats))
    return analysis.load(recorded(path, [made]))


def test_influence_is_found_where_it_was_planted(tmp_path: Path) -> None:
    found = league.influence(talked(tmp_path / "run", {"c": "a"}))
    assert (found.loc[0, "sender"], found.loc[0, "reader"], found.loc[0, "p"]) == ("a", "c", 0.005)
    assert found.loc[0, "bits"] == pytest.approx(1, abs=0.05)
    others = found.set_index(["sender", "reader"]).drop([("a", "c"), ("c", "a")])
    assert (others["bits"] < 0.1).all()


@pytest.mark.slow
def test_chance_has_no_influence(tmp_path: Path) -> None:
    """36 tests at level 0.05: seven or more would ring with a chance of 0.003."""
    found = [league.influence(talked(tmp_path / str(seed), {}, seed)) for seed in range(6)]
    assert all(len(one) == 6 for one in found)
    assert sum(int((one["p"] <= 0.05).sum()) for one in found) <= 6


def uneven(path: Path, seed: int, matches: int = 60) -> analysis.Frames:
    """`a` speaks once and `b` four times after it, always the same: both by chance."""
    rng, made = np.random.default_rng(seed), []
    for number in range(matches):
        one, other = (str(word) for word in rng.choice(["yes", "no"], 2))
        lines = [one, *[other] * 4]
        record = spoken(0, number, lines, {"a": "shared", "b": "shared"})
        turns = [turn._replace(seat="b" if turn.index else "a", role="the") for turn in record.turns]
        made.append(replace(record, turns=tuple(turns)))
    return analysis.load(recorded(path, [made]))


@pytest.mark.slow
def test_an_act_is_counted_once_however_often_its_reader_moves(tmp_path: Path) -> None:
    """20 tests at level 0.05: four or more ring with a chance of 0.016; counted four times, seven did."""
    found = [league.influence(uneven(tmp_path / str(seed), seed)) for seed in range(20)]
    assert [one[["sender", "reader", "acts"]].values.tolist() for one in found] == [[["a", "b", 60]]] * 20
    assert sum(float(one["p"].iloc[0]) <= 0.05 for one in found) <= 3


def test_who_speaks_to_whom(tmp_path: Path) -> None:
    graph = league.speech(talked(tmp_path / "run", {}, matches=2))
    assert graph.edges["a", "b"] == {"messages": 4, "words": 4}
    assert set(graph.edges) == {(x, y) for x in "abc" for y in "abc" if x != y}


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=40))
@settings(max_examples=60, deadline=None)
def test_mutual_information_is_within_its_bounds(acts: list[tuple[int, int]]) -> None:
    cause, effect = np.array(acts).T
    bits = league._bits(cause, effect)
    assert -1e-9 <= bits <= min(np.log2(len({*cause.tolist()})), np.log2(len({*effect.tolist()}))) + 1e-9
    assert bits == pytest.approx(league._bits(effect, cause))


@pytest.mark.slow
def test_a_league_of_eight_can_be_read(tmp_path: Path) -> None:
    who = [f"shared@{n * 11}" for n in range(7)] + ["exploiter:hard_liner"]
    figure = drawn(analysis.load(duels(tmp_path / "run", who, {(a, b) for a in who for b in who if a < b})))
    assert not complaints(figure)


@pytest.mark.parametrize("seated", [True, False])
def test_a_run_in_which_nobody_was_paid_has_empty_tables_and_says_so(tmp_path: Path, seated: bool) -> None:
    failed = [replace(spoken(0, n, ["a"]), status="failed", payoffs={}) for n in range(2 if seated else 0)]
    log = analysis.load(recorded(tmp_path / "run", [failed]))
    assert league.payoff_matrix(log).empty and league.alpha_rank(log).empty and league.ratings(log).empty
    figure = drawn(log)
    assert figure.axes[1].get_xlabel() == "nobody was paid" and not complaints(figure)


def test_a_run_of_one_policy_has_no_league_and_its_picture_says_so(tmp_path: Path) -> None:
    log = analysis.load(make_run(tmp_path / "run").path)
    assert league.pairs(log) == [] and league.ratings(log).empty
    figure = drawn(log)
    assert figure.axes[0].get_xlabel() == "no cycle" and not complaints(figure)
