"""What is hidden of a user stays hidden: users who differ in one thing alone look alike until they behave otherwise."""

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
OTHERWISE = {
    "cap": lambda record: record.cap - 6,
    "taste": lambda record: (*record.taste[1:], record.taste[0]),
    "patience": lambda record: record.patience + 0.7,
    "mood": lambda record: -record.mood,
    "loyalty": lambda record: record.loyalty / 2,
}
"""Another user, by the one thing in which it is another."""


class OfCap(Recommender):
    def private(self, seat):
        return {**super().private(seat), "n": self.service.visitor.record.cap}


class OfAffinity(Recommender):
    def private(self, seat):
        return {**super().private(seat), "n": self.service.visitor.affinity}


class OfFavourite(Recommender):
    def legal(self, seat):
        acts = super().legal(seat)
        return acts and acts[self.service.visitor.record.favourite :]


class OfPatience(Recommender):
    def public(self):
        return {**super().public(), "n": round(self.service.visitor.mindset.patience, 1)}


LEAKS = {OfCap: "cap", OfAffinity: "taste", OfFavourite: "taste", OfPatience: "patience"}


def seen(game):
    """What the recommender's seat is shown, but for messages."""
    view = view_of(game)
    return view.seat, view.public, view.private, view.legal


def told_apart(make, what, seeds=SEEDS):
    """Views that the two users have in common before they act otherwise; raises where the views differ first."""
    compared, one, two = 0, make(), make()
    for seed in seeds:
        one.reset(seed=seed)
        record = dataclasses.replace(one.service.deal.records[0], volunteers=False)
        other = dataclasses.replace(record, **{what: OTHERWISE[what](record)})
        one.reset(seed=seed, options=record.as_options())
        two.reset(seed=seed, options=other.as_options())
        rng = random.Random(seed)
        while not one.ended and view_of(one).messages == view_of(two).messages:
            assert seen(one) == seen(two), f"seed {seed}, turn {one.turns}: {what} shows"
            compared += 1
            act = rng.choice(view_of(one).legal or ())
            one.step(act)
            two.step(act)
    return compared


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(
    "options", [{"slate": 1}, {"terse": True, "slate": 1}, {"slate": 1, "ids": "semantic"}], ids=str
)
@pytest.mark.parametrize("what", OTHERWISE)
def test_users_look_alike_until_they_act_otherwise(options, what):
    """One item a page: which of several was enjoyed most is shown by what is like it, as if stars were given."""
    assert told_apart(lambda: Recommender(**options), what) > len(SEEDS)


@pytest.mark.parametrize("leak", LEAKS)
def test_a_leak_is_seen_at_once(leak):
    with pytest.raises(AssertionError, match=f"{LEAKS[leak]} shows"):
        told_apart(lambda: leak(slate=1), LEAKS[leak])


@pytest.mark.parametrize("leak", LEAKS)
@pytest.mark.parametrize("options", [{}, {"terse": True}], ids=str)
def test_the_kit_sees_it_too(leak, options):
    assert kit.run_check("secrets", kit.CHECKS["secrets"], lambda: leak(**options), 8).ok is False


def test_a_secret_that_stands_among_the_facts_is_found():
    class Listed(Recommender):
        def private(self, seat):
            return {**super().private(seat), "cap": self.service.visitor.record.cap}

    finding = kit.run_check("leaks", CHECKS["leaks"], Listed, 2)
    assert finding.ok is False and "gives away under" in finding.detail


def pairs(genres, prices=(3.0, 40.0), coded=False):
    taste = tuple((np.arange(genres) + 1.0) / sum(range(1, genres + 1)))
    record = Record(taste, 20, 3.0, 0.2, 0.6, 0.1, "cooperative", True, (False, False, False))
    return [draw_twins(record, prices, coded, np.random.default_rng(seed)) for seed in range(30)]


def test_twins_differ_in_all_that_is_hidden():
    assert all(sum(one.taste) == pytest.approx(1) == sum(two.taste) for one, two in pairs(5))
    differing = {
        field.name for one, two in pairs(5) for field in dataclasses.fields(Record)
        if getattr(one, field.name) != getattr(two, field.name)
    }  # fmt: skip
    assert differing == {"taste", "cap", "patience", "loyalty"}
    assert any(one.favourite != two.favourite for one, two in pairs(5))
    assert all(one.cap == two.cap for one, two in pairs(5, coded=True))


def test_twins_of_two_genres_have_the_same_favourite_unless_they_choose_nothing():
    for one, two in pairs(2):
        assert one.favourite == two.favourite or max(one.cap, two.cap) < 3
        assert one != two
    assert all(one.favourite == two.favourite for one, two in pairs(2, prices=(0.0, 9.0)))


def test_a_user_of_whom_nothing_can_be_known_is_played_to_the_end():
    """Where chance does as well as knowing there is nothing to score."""
    game = Recommender(days=1)
    game.reset(seed=0)
    penniless = dataclasses.replace(game.service.deal.records[0], cap=1)
    game.reset(seed=0, options=penniless.as_options())
    while not game.ended:
        game.step("SHOW 1 2 3")
    assert game.report()["score"] == 0.0 and game.report()["success"] is False
