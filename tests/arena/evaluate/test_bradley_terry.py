"""Strengths: the hand-worked case, known ones found again, finite ones for those who never lost."""

import numpy as np
import pytest

from arena.evaluate.bradley_terry import bootstrap_elo, elo, strengths


@pytest.mark.parametrize(("won", "lost"), [(1, 1), (3, 1), (7.5, 2.5), (99, 1)])
def test_two_contenders_by_hand(won: float, lost: float) -> None:
    one, two = strengths(np.array([[0, won], [lost, 0]]), prior=0.0)
    assert one / (one + two) == pytest.approx(won / (won + lost), abs=1e-9)
    assert one * two == pytest.approx(1.0)


def test_a_prior_draw_by_hand() -> None:
    # With one drawn match each against strength 1 and w = 3, l = 1: the gradient of
    # 3.5 log g - 4 log(2 g') - ..., symmetric g' = 1/g, vanishes where 3.5 = 4 g / (g + 1/g) + g / (g + 1).
    g, _ = strengths(np.array([[0, 3.0], [1.0, 0]]), prior=1.0)
    assert 4 * g / (g + 1 / g) + g / (g + 1) == pytest.approx(3.5, abs=1e-8)


def test_known_strengths_are_found_again() -> None:
    true = np.array([4.0, 2.0, 1.0, 0.5, 0.25])
    chance = true[:, None] / (true[:, None] + true[None, :])
    assert strengths(1000 * chance * ~np.eye(5, dtype=bool), prior=0.0) == pytest.approx(true, rel=1e-6)
    rng = np.random.default_rng(0)
    upper = np.triu(rng.binomial(2000, chance), 1)
    wins = upper + np.tril(2000 - upper.T, -1)
    assert strengths(wins) == pytest.approx(true, rel=0.1)


def test_the_undefeated_stay_finite_and_ordered() -> None:
    wins = np.array([[0, 20, 20], [0, 0, 20], [0, 0, 0.0]])
    first, second, third = elo(strengths(wins))
    assert 2000 > first > second > third > -2000
    assert second == pytest.approx(0.0, abs=1e-3), "symmetric"
    with pytest.raises(ValueError, match="never lost"):
        strengths(wins, prior=0.0, steps=2000)


def test_elo_points_are_odds() -> None:
    ten_to_one = np.diff(elo(strengths(np.array([[0, 1.0], [10.0, 0]]), prior=0.0)))
    assert ten_to_one[0] == pytest.approx(400.0)


def test_a_batch_is_as_one_by_one() -> None:
    rng = np.random.default_rng(1)
    wins = rng.integers(0, 9, (6, 4, 4)) * ~np.eye(4, dtype=bool)
    assert strengths(wins) == pytest.approx(np.stack([strengths(w) for w in wins]), rel=1e-6)


def test_intervals_cover_the_truth_as_often_as_they_say() -> None:
    # Two contenders, chance 0.7: the true difference in Elo is 400 log10(7 / 3).
    rng, truth, covered = np.random.default_rng(2), 200 * np.log10(7 / 3), 0
    for _ in range(100):
        outcomes = rng.random(200) < 0.7
        won = rng.multinomial(200, np.full(200, 1 / 200), size=400) @ outcomes
        drawn = np.zeros((400, 2, 2))
        drawn[:, 0, 1], drawn[:, 1, 0] = won, 200 - won
        _, low, high = bootstrap_elo(np.array([[0, outcomes.sum()], [200 - outcomes.sum(), 0]]), drawn)
        covered += bool(low[0] <= truth <= high[0])
    assert covered >= 88
