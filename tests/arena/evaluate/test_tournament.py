"""A round robin: who is ahead, what a circle looks like, who works with whom."""

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
from arena.evaluate.specs import Contenders
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


def held(*specs: str, game: str = "kuhn_poker", matches: int = 40, **options: Any) -> Standings:
    return wait(
        play_tournament(wait(Contenders("nano_kuhn").load(*specs)), GameSpec(name=game, options=options), matches, 0)
    )


def by_hand(names: list[str], payoffs: np.ndarray, deals: int = 8) -> Standings:
    """Every pair's matches have these payoffs, always."""
    meetings = []
    for a, b in combinations(range(len(names)), 2):
        one = MatchOutcome(dict(zip(SEATS, (payoffs[a, b], payoffs[b, a]), strict=True)), {}, {}, "", {})
        two = MatchOutcome(dict(zip(SEATS, (payoffs[b, a], payoffs[a, b]), strict=True)), {}, {}, "", {})
        meetings.append(PairMatches(a, b, [[one] * deals, [two] * deals], SEATS))
    return compute_standings(names, KUHN, meetings, deals, 0, False, Counter())


def test_the_better_is_ahead_by_every_measure() -> None:
    found = held("random", "minimax", "first_legal", game="tic_tac_toe", matches=24)
    assert found.table.index[0] == "minimax"
    best = found.table.loc["minimax"]
    for column in ("payoff", "score", "elo"):
        assert best[column] == found.table[column].max(), column
    assert best["elo_low"] <= best["elo"] <= best["elo_high"]
    assert (found.matches, found.deals) == (72, 12)
    matrix = found.payoffs.to_numpy()
    assert np.allclose(np.nan_to_num(matrix + matrix.T), 0) and np.isnan(np.diag(matrix)).all()
    assert found.cycles is not None and found.cycles.intransitive == (0.0, 0.0, 0.0)


def test_rock_paper_scissors_is_seen_as_a_circle() -> None:
    found = by_hand(["rock", "paper", "scissors"], np.array([[0, -1, 1], [1, 0, -1], [-1, 1, 0.0]]))
    assert found.table["elo"].to_list() == pytest.approx([0.0] * 3, abs=1e-6)
    assert found.cycles is not None and found.cycles.rotational == pytest.approx((1.0, 1.0, 1.0))
    assert found.cycles.intransitive == pytest.approx((1.0, 1.0, 1.0))


def test_seats_are_not_mixed_up() -> None:
    payoffs = np.array([[0, 3.0, 1.0], [-1.0, 0, 2.0], [0.5, -2.0, 0]])
    found = by_hand(["a", "b", "c"], payoffs)
    matrix = found.payoffs.loc[["a", "b", "c"], ["a", "b", "c"]].to_numpy()
    assert np.allclose(matrix[~np.eye(3, dtype=bool)], payoffs[~np.eye(3, dtype=bool)])
    assert found.table.loc["a", "payoff"] == pytest.approx(2.0)
    assert found.table.loc["b", "score"] == pytest.approx(0.5)


def test_partners_meet_themselves_too() -> None:
    found = held("random", "first_legal", game="tiny_hanabi", matches=20)
    assert not found.payoffs.isna().to_numpy().any()
    assert "elo" not in found.table and found.cycles is None
    payoffs = found.payoffs.to_dict("index")
    assert payoffs["random"]["first_legal"] == payoffs["first_legal"]["random"]
    assert found.matches == 20 + 10 + 10, "with itself one order is enough"
    assert count_pairs(2, found.game) == 3 and count_pairs(3, KUHN) == 3


def test_who_blunders_is_named() -> None:
    found = held("nano", "random", "first_legal", matches=2, illegal="end")
    assert found.illegal == {"nano": 4}
    assert found.payoffs.loc["random", "nano"] == 0.0 and found.payoffs.loc["nano", "random"] == -2.0
    assert found.table.loc["nano", "score"] == 0.0


def test_the_same_seed_is_the_same_tournament() -> None:
    assert held("random", "nash", "cfr:5").table.equals(held("random", "nash", "cfr:5").table)


def test_json_is_plain() -> None:
    data = json.loads(json.dumps(held("random", "nash", "first_legal", matches=4).to_json(), allow_nan=False))
    assert {row["contender"] for row in data["standings"]} == {"random", "nash", "first_legal"}
    assert data["payoffs"]["random"]["random"] is None
    assert set(data["cycles"]) == {"intransitive", "rotational"}


@pytest.mark.parametrize(
    ("specs", "game", "says"),
    [
        (["random", "random"], "kuhn_poker", "'random' is named twice"),
        (["random"], "kuhn_poker", "at least two contenders"),
        (["random", "free_rider"], "public_goods", "public_goods has 3: use arena eval"),
        (["random", "minimax"], "kuhn_poker", "minimax"),
    ],
)
def test_what_cannot_be_held_is_refused(specs: list[str], game: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        held(*specs, game=game)


def test_its_picture_can_be_read_whatever_the_names() -> None:
    contenders = wait(Contenders().load("random", "minimax", "first_legal"))
    found = wait(play_tournament(contenders, GameSpec(name="nim"), 4, 0))
    assert find_overlaps(draw_tournament(found)) == []
    names = {name: f"runs/$a_very_long_folder_{name}/and_{{more}} of the same@12" for name in found.table.index}
    renamed = replace(
        found, table=found.table.rename(index=names), payoffs=found.payoffs.rename(index=names, columns=names)
    )
    assert find_overlaps(draw_tournament(renamed)) == []


RPS = np.array([[0, -1, 1], [1, 0, -1], [-1, 1, 0.0]])


def test_rotational_share_is_one_for_a_circle_and_zero_for_a_ranking() -> None:
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
    by_hand = [sum(all(p[a, b] > p[b, a] for a, b in pairs) for pairs in _cycles(5)) / 10 for p in payoffs[:20]]
    assert share[:20] == pytest.approx(by_hand)


def _cycles(n: int) -> list[list[tuple[int, int]]]:
    return [[(i, j), (j, k), (k, i)] for a, b, c in combinations(range(n), 3) for i, j, k in ((a, b, c), (a, c, b))]


def test_noise_shows_in_the_interval_of_the_cycles() -> None:
    rng = np.random.default_rng(0)
    cycles = find_cycles(RPS[..., None] + rng.normal(0, 4.0, (3, 3, 10)), rng)
    assert cycles.intransitive.low == 0.0 and cycles.intransitive.high == pytest.approx(1.0)
    assert cycles.rotational.low < cycles.rotational.estimate < cycles.rotational.high
