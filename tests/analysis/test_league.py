"""League tables: planted cycles are found, no others, and ratings follow strength."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import analysis
from analysis import league
from tests.factories.made_run import make_run
from tests.factories.spoken_run import make_dialogue, write_run

BEATS = {("rock", "scissors"), ("scissors", "paper"), ("paper", "rock")}


def make_duels(path: Path, who: list[str], beats: set[tuple[str, str]], seed: int = 0, noise: float = 0.25) -> Path:
    """Write three iterations in which every pair meets 12 times; `beats` decides the winner up to some luck."""
    rng, records = np.random.default_rng(seed), []
    for k in range(3):
        matches = []
        for number, (first, second) in enumerate((a, b) for a in who for b in who if a < b for _ in range(12)):
            best = 1.0 if (first, second) in beats else -1.0 if (second, first) in beats else rng.choice([-1.0, 1.0])
            won = float(-best if rng.random() < noise else best)
            seats = {"left": first, "right": second}
            matches.append(make_dialogue(k, number, ["hello", "well"], seats, {"left": won, "right": -won}))
        records.append(matches)
    return write_run(path, records)


def test_finds_planted_cycle(tmp_path: Path) -> None:
    who = ["paper", "rock", "rookie", "scissors", "veteran"]
    order = {("veteran", name) for name in who} | {(name, "rookie") for name in ("paper", "rock", "scissors")}
    log = analysis.load(make_duels(tmp_path / "run", who, BEATS | order))
    graph = league.beats(log)
    assert {*graph.edges} == {(a, b) for a, b in BEATS | order if a != b}
    assert league.cycles(graph) == [("paper", "rock", "scissors")]
    assert league.alpha_rank(log).index[0] == "veteran"


def test_finds_no_cycle_without_one(tmp_path: Path) -> None:
    """Of ten leagues of three equal or ranked policies, hardly any has a cycle by chance."""
    order = {("a", "b"), ("b", "c"), ("a", "c")}
    for seed in range(5):
        ranked = analysis.load(make_duels(tmp_path / f"ranked{seed}", ["a", "b", "c"], order, seed))
        assert league.cycles(league.beats(ranked)) == []
        equal = analysis.load(make_duels(tmp_path / f"equal{seed}", ["a", "b", "c"], set(), seed))
        assert league.cycles(league.beats(equal)) == []


def test_payoffs_and_ratings(tmp_path: Path) -> None:
    log = analysis.load(make_duels(tmp_path / "run", ["strong", "weak"], {("strong", "weak")}, noise=0.0))
    matrix = league.payoff_matrix(log)
    assert matrix.loc["strong", "weak"] == 1 and matrix.loc["weak", "strong"] == -1
    assert np.isnan(matrix["weak"].to_dict()["weak"])
    rated = league.ratings(log)
    assert rated["matches"].tolist() == [12, 12, 24, 24, 36, 36]
    strong, weak = (rated[rated["policy"] == name] for name in ("strong", "weak"))
    assert (strong["mu"].to_numpy() > weak["mu"].to_numpy() + 5).all() and strong["sigma"].is_monotonic_decreasing
    (pair,) = league.pairs(log)
    assert pair.matches == 36 and pair.ahead.estimate == 2


@pytest.mark.parametrize("seated", [True, False])
def test_run_without_payoffs_has_empty_tables(tmp_path: Path, seated: bool) -> None:
    failed = [replace(make_dialogue(0, n, ["a"]), status="failed", payoffs={}) for n in range(2 if seated else 0)]
    log = analysis.load(write_run(tmp_path / "run", [failed]))
    assert league.payoff_matrix(log).empty and league.alpha_rank(log).empty and league.ratings(log).empty


def test_a_run_of_one_policy_has_no_league(tmp_path: Path) -> None:
    log = analysis.load(make_run(tmp_path / "run").path)
    assert league.pairs(log) == [] and league.ratings(log).empty
