"""α-Rank."""

import numpy as np
import pytest

from arena.evaluate.alpha_rank import MUTATION, alpha_rank

RPS = np.array([[0, -1, 1], [1, 0, -1], [-1, 1, 0.0]])


def test_cycle_shares_the_mass_equally() -> None:
    assert alpha_rank(RPS) == pytest.approx([1 / 3] * 3)


def test_two_contenders_by_hand() -> None:
    # From the worse to the better with 1 - MUTATION, back with MUTATION: stationary in these proportions.
    assert alpha_rank(np.array([[0, 2.0], [-2.0, 0]])) == pytest.approx([1 - MUTATION, MUTATION])


def test_dominant_contender_has_nearly_all_mass() -> None:
    strength = np.array([3.0, 2.0, 1.0, 0.0])
    mass = alpha_rank(strength[:, None] - strength[None, :])
    assert mass[0] > 0.95 and list(mass) == sorted(mass, reverse=True)
    assert alpha_rank(np.zeros((1, 1))) == pytest.approx([1.0])


def test_cycle_above_a_loser() -> None:
    payoffs = np.zeros((4, 4))
    payoffs[:3, :3], payoffs[:3, 3], payoffs[3, :3] = RPS, 1, -1
    mass = alpha_rank(payoffs)
    assert mass[:3] == pytest.approx([mass[0]] * 3) and mass[3] < 0.02
