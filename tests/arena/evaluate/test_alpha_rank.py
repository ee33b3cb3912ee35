"""α-Rank, and what of the payoffs is no ranking."""

import numpy as np
import pytest

from arena.evaluate.alpha_rank import MUTATION, alpha_rank
from arena.evaluate.transitivity import cyclic, rotational_share, transitivity

RPS = np.array([[0, -1, 1], [1, 0, -1], [-1, 1, 0.0]])
NAMES = ("rock", "paper", "scissors")


def test_a_cycle_shares_the_mass() -> None:
    assert alpha_rank(RPS) == pytest.approx([1 / 3] * 3)


def test_two_contenders_by_hand() -> None:
    # From the worse to the better with 1 - MUTATION, back with MUTATION: stationary in these proportions.
    assert alpha_rank(np.array([[0, 2.0], [-2.0, 0]])) == pytest.approx([1 - MUTATION, MUTATION])


def test_the_one_who_beats_all_has_nearly_all() -> None:
    strength = np.array([3.0, 2.0, 1.0, 0.0])
    mass = alpha_rank(strength[:, None] - strength[None, :])
    assert mass[0] > 0.95 and list(mass) == sorted(mass, reverse=True)
    assert alpha_rank(np.zeros((1, 1))) == pytest.approx([1.0])


def test_a_cycle_above_a_loser() -> None:
    payoffs = np.zeros((4, 4))
    payoffs[:3, :3], payoffs[:3, 3], payoffs[3, :3] = RPS, 1, -1
    mass = alpha_rank(payoffs)
    assert mass[:3] == pytest.approx([mass[0]] * 3) and mass[3] < 0.02


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
    assert rotational_share(mixed + 7.0) == pytest.approx(6 / 18), "what both get changes nothing"


def test_cycles_and_how_sure_they_are() -> None:
    rng = np.random.default_rng(0)
    drawn = RPS + rng.normal(0, 1.0, (2000, 3, 3))
    report = transitivity(NAMES, RPS, drawn)
    (cycle, *_) = report.cycles
    assert cycle.names == ("rock", "scissors", "paper")
    # Each of three independent differences, of mean 1 and standard deviation 1 / sqrt(2), must be positive.
    assert cycle.probability == pytest.approx(0.9214**3, abs=0.03)
    assert report.intransitive.estimate == 1.0 and report.rotational.estimate == pytest.approx(1.0)


def test_every_triple_is_a_cycle_one_way_at_most() -> None:
    payoffs = np.random.default_rng(1).normal(size=(500, 5, 5))
    found = cyclic(payoffs)
    assert len(found) == 20
    both = sum(np.sum(found[i, j, k] & found[i, k, j]) for i, j, k in found if i < j < k)
    share = np.mean([holds for holds in found.values()]) * 2
    assert both == 0 and share == pytest.approx(0.25, abs=0.03), "a quarter of random triples are cycles"


def test_a_ranking_has_no_cycles() -> None:
    strength = np.array([2.0, 1.0, 0.0])
    ranking = strength[:, None] - strength[None, :]
    report = transitivity(NAMES, ranking, np.broadcast_to(ranking, (10, 3, 3)))
    assert report.cycles == [] and report.intransitive == (0.0, 0.0, 0.0)
