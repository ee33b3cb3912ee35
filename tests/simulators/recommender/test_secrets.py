"""Secrecy of users: users that differ in one hidden trait are indistinguishable until they act differently."""

import dataclasses
import random

import numpy as np
import pytest

from games.conformance import kit
from simulators.conformance import CHECKS, view_of
from simulators.recommender import Recommender
from simulators.recommender.record import Record, draw_twins

SEEDS = range(40)
VARIANTS = [{"slate": 1}, {"terse": True, "slate": 1}, {"slate": 1, "ids": "semantic"}]
CHANGES = {
    "cap": lambda record: record.cap - 6,
    "taste": lambda record: (*record.taste[1:], record.taste[0]),
    "patience": lambda record: record.patience + 0.7,
    "mood": lambda record: -record.mood,
    "loyalty": lambda record: record.loyalty / 2,
}
"""For each trait of a user, how to change it."""


class LeakyCap(Recommender):
    def private(self, seat):
        return {**super().private(seat), "n": self.service.visitor.record.cap}


class LeakyAffinity(Recommender):
    def private(self, seat):
        return {**super().private(seat), "n": self.service.visitor.affinity}


class LeakyFavourite(Recommender):
    def legal(self, seat):
        acts = super().legal(seat)
        return acts and acts[self.service.visitor.record.favourite :]


class LeakyPatience(Recommender):
    def public(self):
        return {**super().public(), "n": round(self.service.visitor.mindset.patience, 1)}


LEAKS = {LeakyCap: "cap", LeakyAffinity: "taste", LeakyFavourite: "taste", LeakyPatience: "patience"}


def capture_view(game):
    """Return the recommender's view without messages."""
    view = view_of(game)
    return view.seat, view.public, view.private, view.legal


def compare_views(make, trait, seeds=SEEDS):
    """Count equal views of two users that differ in `trait` until they act differently. Fail if views differ first."""
    count, first, second = 0, make(), make()
    for seed in seeds:
        first.reset(seed=seed)
        record = dataclasses.replace(first.service.deal.records[0], volunteers=False)
        other = dataclasses.replace(record, **{trait: CHANGES[trait](record)})
        first.reset(seed=seed, options=record.as_options())
        second.reset(seed=seed, options=other.as_options())
        rng = random.Random(seed)
        while not first.ended and view_of(first).messages == view_of(second).messages:
            assert capture_view(first) == capture_view(second), f"seed {seed}, turn {first.turns}: {trait} shows"
            count += 1
            act = rng.choice(view_of(first).legal or ())
            first.step(act)
            second.step(act)
    return count


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(
    "options", [{"slate": 1}, {"terse": True, "slate": 1}, {"slate": 1, "ids": "semantic"}], ids=str
)
@pytest.mark.parametrize("trait", CHANGES)
def test_users_are_indistinguishable_until_they_act_differently(options, trait):
    """Pages have one item, because with several the next candidates reveal the favourite, like a star rating."""
    assert compare_views(lambda: Recommender(**options), trait) > len(SEEDS)


@pytest.mark.parametrize("leak", LEAKS)
def test_comparison_finds_leaks(leak):
    with pytest.raises(AssertionError, match=f"{LEAKS[leak]} shows"):
        compare_views(lambda: leak(slate=1), LEAKS[leak])


@pytest.mark.parametrize("leak", LEAKS)
@pytest.mark.parametrize("options", [{}, {"terse": True}], ids=str)
def test_conformance_kit_finds_leaks(leak, options):
    assert kit.run_check("secrets", kit.CHECKS["secrets"], lambda: leak(**options), 8).ok is False


def test_leaks_check_finds_a_secret_among_the_facts():
    class ListedCap(Recommender):
        def private(self, seat):
            return {**super().private(seat), "cap": self.service.visitor.record.cap}

    finding = kit.run_check("leaks", CHECKS["leaks"], ListedCap, 2)
    assert finding.ok is False and "gives away under" in finding.detail


def draw_twin_pairs(genres, prices=(3.0, 40.0), coded=False):
    taste = tuple((np.arange(genres) + 1.0) / sum(range(1, genres + 1)))
    record = Record(taste, 20, 3.0, 0.2, 0.6, 0.1, "cooperative", True, (False, False, False))
    return [draw_twins(record, prices, coded, np.random.default_rng(seed)) for seed in range(30)]


def test_twins_differ_in_every_hidden_trait():
    assert all(sum(first.taste) == pytest.approx(1) == sum(second.taste) for first, second in draw_twin_pairs(5))
    differing = {
        field.name for first, second in draw_twin_pairs(5) for field in dataclasses.fields(Record)
        if getattr(first, field.name) != getattr(second, field.name)
    }  # fmt: skip
    assert differing == {"taste", "cap", "patience", "loyalty"}
    assert any(first.favourite != second.favourite for first, second in draw_twin_pairs(5))
    assert all(first.cap == second.cap for first, second in draw_twin_pairs(5, coded=True))


def test_twins_of_two_genres_have_the_same_favourite_unless_they_choose_nothing():
    for first, second in draw_twin_pairs(2):
        assert first.favourite == second.favourite or max(first.cap, second.cap) < 3
        assert first != second
    assert all(first.favourite == second.favourite for first, second in draw_twin_pairs(2, prices=(0.0, 9.0)))


def test_user_with_nothing_to_learn_is_played_to_the_end():
    """If chance does as well as knowledge, there is no score."""
    game = Recommender(days=1)
    game.reset(seed=0)
    penniless = dataclasses.replace(game.service.deal.records[0], cap=1)
    game.reset(seed=0, options=penniless.as_options())
    while not game.ended:
        game.step("SHOW 1 2 3")
    assert game.report()["score"] == 0.0 and game.report()["success"] is False
