"""Round-robin tournaments: standings, cycles and cooperative games."""

import json
from collections import Counter
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from arena.cli.loop import wait
from arena.errors import ConfigError
from arena.evaluate.crosstable_plot import draw_tournament
from arena.evaluate.played import MatchOutcome
from arena.evaluate.specs import ContenderLoader
from arena.evaluate.tournament import (
    PairMatches,
    Standings,
    compute_standings,
    count_pairs,
    find_cycles,
    intransitive_share,
    play_tournament,
    rotational_share,
)
from arena.play.settings import GameSpec
from tests.legible import find_overlaps

KUHN = GameSpec(name="kuhn_poker")
SEATS = ("first", "second")


def run_tournament(*specs: str, game: str = "kuhn_poker", matches: int = 40, **options: Any) -> Standings:
    return wait(
        play_tournament(
            wait(ContenderLoader("nano_kuhn").load(*specs)), GameSpec(name=game, options=options), matches, 0
        )
    )


def make_standings(names: list[str], payoffs: np.ndarray, deals: int = 8) -> Standings:
    """Return standings in which each pair's matches always have these payoffs."""
    pair_matches = []
    for a, b in combinations(range(len(names)), 2):
        first_order = MatchOutcome(dict(zip(SEATS, (payoffs[a, b], payoffs[b, a]), strict=True)), {}, {}, "", {})
        swapped_order = MatchOutcome(dict(zip(SEATS, (payoffs[b, a], payoffs[a, b]), strict=True)), {}, {}, "", {})
        pair_matches.append(PairMatches(a, b, [[first_order] * deals, [swapped_order] * deals], SEATS))
    return compute_standings(names, KUHN, pair_matches, deals, 0, False, Counter())


def test_better_contender_leads_by_every_measure() -> None:
    standings = run_tournament("random", "minimax", "first_legal", game="tic_tac_toe", matches=24)
    assert standings.table.index[0] == "minimax"
    best = standings.table.loc["minimax"]
    for column in ("payoff", "score", "elo"):
        assert best[column] == standings.table[column].max(), column
    assert best["elo_low"] <= best["elo"] <= best["elo_high"]
    assert (standings.matches, standings.deals) == (72, 12)
    matrix = standings.payoffs.to_numpy()
    assert np.allclose(np.nan_to_num(matrix + matrix.T), 0) and np.isnan(np.diag(matrix)).all()
    assert standings.cycles is not None and standings.cycles.intransitive == (0.0, 0.0, 0.0)


def test_rock_paper_scissors_is_a_cycle() -> None:
    standings = make_standings(["rock", "paper", "scissors"], np.array([[0, -1, 1], [1, 0, -1], [-1, 1, 0.0]]))
    assert standings.table["elo"].to_list() == pytest.approx([0.0] * 3, abs=1e-6)
    assert standings.cycles is not None and standings.cycles.rotational == pytest.approx((1.0, 1.0, 1.0))
    assert standings.cycles.intransitive == pytest.approx((1.0, 1.0, 1.0))


def test_payoffs_belong_to_the_right_seats() -> None:
    payoffs = np.array([[0, 3.0, 1.0], [-1.0, 0, 2.0], [0.5, -2.0, 0]])
    standings = make_standings(["a", "b", "c"], payoffs)
    matrix = standings.payoffs.loc[["a", "b", "c"], ["a", "b", "c"]].to_numpy()
    assert np.allclose(matrix[~np.eye(3, dtype=bool)], payoffs[~np.eye(3, dtype=bool)])
    assert standings.table.loc["a", "payoff"] == pytest.approx(2.0)
    assert standings.table.loc["b", "score"] == pytest.approx(0.5)


def test_partners_also_play_with_themselves() -> None:
    standings = run_tournament("random", "first_legal", game="tiny_hanabi", matches=20)
    assert not standings.payoffs.isna().to_numpy().any()
    assert "elo" not in standings.table and standings.cycles is None
    payoffs = standings.payoffs.to_dict("index")
    assert payoffs["random"]["first_legal"] == payoffs["first_legal"]["random"]
    assert standings.matches == 20 + 10 + 10, "with itself one order is enough"
    assert count_pairs(2, standings.game) == 3 and count_pairs(3, KUHN) == 3


def test_illegal_acts_are_counted_by_contender() -> None:
    standings = run_tournament("nano", "random", "first_legal", matches=2, illegal="end")
    assert standings.illegal == {"nano": 4}
    assert standings.payoffs.loc["random", "nano"] == 0.0 and standings.payoffs.loc["nano", "random"] == -2.0
    assert standings.table.loc["nano", "score"] == 0.0


def test_same_seed_gives_the_same_tournament() -> None:
    assert run_tournament("random", "nash", "cfr:5").table.equals(run_tournament("random", "nash", "cfr:5").table)


def test_json_is_plain() -> None:
    data = json.loads(json.dumps(run_tournament("random", "nash", "first_legal", matches=4).to_json(), allow_nan=False))
    assert {row["contender"] for row in data["standings"]} == {"random", "nash", "first_legal"}
    assert data["payoffs"]["random"]["random"] is None
    assert set(data["cycles"]) == {"intransitive", "rotational"}


@pytest.mark.parametrize(
    ("specs", "game", "message"),
    [
        (["random", "random"], "kuhn_poker", "'random' is named twice"),
        (["random"], "kuhn_poker", "at least two contenders"),
        (["random", "free_rider"], "public_goods", "public_goods has 3: use arena eval"),
        (["random", "minimax"], "kuhn_poker", "minimax"),
    ],
)
def test_invalid_tournament_is_refused(specs: list[str], game: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        run_tournament(*specs, game=game)


def test_picture_is_legible_with_any_names() -> None:
    contenders = wait(ContenderLoader().load("random", "minimax", "first_legal"))
    standings = wait(play_tournament(contenders, GameSpec(name="nim"), 4, 0))
    assert find_overlaps(draw_tournament(standings)) == []
    names = {name: f"runs/$a_very_long_folder_{name}/and_{{more}} of the same@12" for name in standings.table.index}
    renamed = replace(
        standings,
        table=standings.table.rename(index=names),
        payoffs=standings.payoffs.rename(index=names, columns=names),
    )
    assert find_overlaps(draw_tournament(renamed)) == []


RPS = np.array([[0, -1, 1], [1, 0, -1], [-1, 1, 0.0]])


def test_rotational_share_is_one_for_a_cycle_and_zero_for_a_ranking() -> None:
    strength = np.array([5.0, 1.0, 0.5, -2.0])
    ranking = strength[:, None] - strength[None, :]
    assert rotational_share(RPS) == pytest.approx(1.0)
    assert rotational_share(ranking) == pytest.approx(0.0, abs=1e-12)
    assert rotational_share(np.zeros((3, 3))) == 0.0
    # The parts are orthogonal: |RPS|² = 6 beside the ranking's own 2 * 3 * ((1 - 0)² + ...) / 3.
    three = np.array([1.0, 0.0, -1.0])
    mixed = RPS + (three[:, None] - three[None, :])
    assert rotational_share(mixed) == pytest.approx(6 / (6 + 12))
    assert rotational_share(mixed + 7.0) == pytest.approx(6 / 18), "a payoff for both changes nothing"


def test_a_quarter_of_random_triples_are_cycles() -> None:
    payoffs = np.random.default_rng(1).normal(size=(500, 5, 5))
    share = intransitive_share(payoffs)
    assert share.shape == (500,) and share.mean() == pytest.approx(0.25, abs=0.03)
    by_hand = [sum(all(p[a, b] > p[b, a] for a, b in pairs) for pairs in list_cycles(5)) / 10 for p in payoffs[:20]]
    assert share[:20] == pytest.approx(by_hand)


def list_cycles(n: int) -> list[list[tuple[int, int]]]:
    return [[(i, j), (j, k), (k, i)] for a, b, c in combinations(range(n), 3) for i, j, k in ((a, b, c), (a, c, b))]


def test_noise_widens_the_interval_of_the_cycles() -> None:
    rng = np.random.default_rng(0)
    cycles = find_cycles(RPS[..., None] + rng.normal(0, 4.0, (3, 3, 10)), rng)
    assert cycles.intransitive.low == 0.0 and cycles.intransitive.high == pytest.approx(1.0)
    assert cycles.rotational.low < cycles.rotational.estimate < cycles.rotational.high
