"""Strengths: worked cases, recovery of known strengths, finite ones for the undefeated; intervals."""

import numpy as np
import pytest

from arena.evaluate.bradley_terry import ELO, PRIOR, elo_intervals

NO_PRIOR = 1e-9
"""Practically no prior."""


def fit_elo(wins: np.ndarray, prior: float = PRIOR) -> np.ndarray:
    """Return the ratings for `wins` [n, n] of row over column, draws counted as half."""
    rating, _, _ = elo_intervals(wins[..., None], 1, prior)
    return rating


def fit_strengths(wins: np.ndarray, prior: float = PRIOR) -> np.ndarray:
    return np.exp(fit_elo(wins, prior) / ELO)


@pytest.mark.parametrize(("won", "lost"), [(1, 1), (3, 1), (7.5, 2.5), (99, 1)])
def test_two_contenders_by_hand(won: float, lost: float) -> None:
    first, second = fit_strengths(np.array([[0, won], [lost, 0]]), prior=NO_PRIOR)
    assert first / (first + second) == pytest.approx(won / (won + lost), abs=1e-8)
    assert first * second == pytest.approx(1.0)


def test_prior_by_hand() -> None:
    # With one drawn match each against strength 1 and w = 3, l = 1: the gradient of
    # 3.5 log g - 4 log(2 g') - ..., symmetric g' = 1/g, vanishes where 3.5 = 4 g / (g + 1/g) + g / (g + 1).
    g, _ = fit_strengths(np.array([[0, 3.0], [1.0, 0]]), prior=1.0)
    assert 4 * g / (g + 1 / g) + g / (g + 1) == pytest.approx(3.5, abs=1e-8)


def test_known_strengths_are_recovered() -> None:
    true = np.array([4.0, 2.0, 1.0, 0.5, 0.25])
    chance = true[:, None] / (true[:, None] + true[None, :])
    assert fit_strengths(1000 * chance * ~np.eye(5, dtype=bool), prior=NO_PRIOR) == pytest.approx(true, rel=1e-6)
    rng = np.random.default_rng(0)
    upper = np.triu(rng.binomial(2000, chance), 1)
    wins = upper + np.tril(2000 - upper.T, -1)
    assert fit_strengths(wins) == pytest.approx(true, rel=0.1)


def test_undefeated_stay_finite_and_ordered() -> None:
    wins = np.array([[0, 20, 20], [0, 0, 20], [0, 0, 0.0]])
    first, second, third = fit_elo(wins)
    assert 2000 > first > second > third > -2000
    assert second == pytest.approx(0.0, abs=1e-3), "symmetric"


def test_likelihood_gradient_is_zero_at_the_fit() -> None:
    # Many that never lost to those below them: where a fit by small steps is slowest.
    wins = 400.0 * np.triu(np.ones((8, 8)), 1)
    g = fit_strengths(wins)
    # The imagined contender's own strength is free: it is where its chance of a win is half, on average.
    matches = wins + wins.T
    scaled = g * np.exp(-np.log(g).mean())
    chance = scaled[:, None] / (scaled[:, None] + scaled)
    assert (wins - matches * chance).sum(-1) + 0.5 - scaled / (scaled + 1) == pytest.approx(np.zeros(8), abs=1e-7)


def test_elo_points_are_odds() -> None:
    ten_to_one = np.diff(fit_elo(np.array([[0, 1.0], [10.0, 0]]), prior=NO_PRIOR))
    assert ten_to_one[0] == pytest.approx(400.0)


def draw_scores(rng: np.random.Generator, n: int, deals: int, games: int, strong: np.ndarray) -> np.ndarray:
    """Draw mean scores of a round robin between contenders of these log-strengths."""
    chance = 1 / (1 + np.exp(strong - strong[:, None]))
    score = np.full((n, n, deals), 0.5)
    for i in range(n):
        for j in range(i):
            score[i, j] = rng.binomial(games, chance[i, j], deals) / games
            score[j, i] = 1 - score[i, j]
    return score


@pytest.mark.slow
def test_every_interval_contains_its_estimate() -> None:
    rng = np.random.default_rng(3)
    for case in range(60):
        n, deals, games = int(rng.integers(2, 7)), int(rng.integers(2, 60)), int(rng.integers(1, 3))
        score = draw_scores(rng, n, deals, games, rng.normal(0, [0.1, 1, 4, 40][case % 4], n))
        rating, low, high = elo_intervals(score, games)
        assert np.all(low < rating) and np.all(rating < high), (case, rating, low, high)
        assert np.isfinite([low, high]).all()


def test_undefeated_contender_has_a_wide_interval() -> None:
    # The README's tournament once said +924 [+915, +915].
    score = np.full((3, 3, 100), 0.5)
    score[0, 1:], score[1:, 0] = 1.0, 0.0
    rating, low, high = elo_intervals(score, 2)
    assert high[0] - rating[0] == pytest.approx(rating[0] - low[0]) and rating[0] - low[0] > 50
    assert rating.sum() == pytest.approx(0.0, abs=1e-6)
    assert rating[1] == pytest.approx(rating[2])


def test_one_deal_has_no_interval() -> None:
    rating, low, high = elo_intervals(np.array([[[0.5], [1.0]], [[0.0], [0.5]]]), 2)
    assert rating[0] > 0 and np.isnan([low, high]).all()


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(("n", "deals", "alike"), [(2, 200, False), (2, 100, True), (5, 30, False)])
def test_intervals_have_the_stated_coverage(n: int, deals: int, alike: bool) -> None:
    rng, covered, trials = np.random.default_rng(2), 0, 400 // n
    strong = np.linspace(0.9, -0.9, n)
    truth = ELO * strong
    for _ in range(trials):
        # In deals that decide for themselves both matches end alike: half as much is known.
        score = draw_scores(rng, n, deals, 1 if alike else 2, strong)
        _, low, high = elo_intervals(score, 2)
        covered += bool(low[0] <= truth[0] <= high[0])
    assert 0.91 * trials <= covered <= 0.99 * trials
