"""Users' reactions to pages: formulas by hand, invariants, and populations of users."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulators.conformance import play, view_of
from simulators.recommender import Recommender
from simulators.recommender.audience import Visitor, compute_return_probability, update_trust
from simulators.recommender.catalogue import Item
from simulators.recommender.chance import uniform
from simulators.recommender.population import assign_segments, draw_friendships, spread_word
from simulators.recommender.record import Record, draw_record, draw_taste, restore_record
from simulators.recommender.wishes import Wish, answer_question, choose_instruction


def make_user(taste=(0.6, 0.36, 0.04), cap=20, patience=3.0, tires=0.5, mood=0.0) -> Record:
    return Record(taste, cap, patience, tires, 0.6, mood, "cooperative", False, (False, False, False))


def make_item(number, *genres, quality=0.5, price=10.0) -> Item:
    return Item(number, f"Item {number}", genres, quality, price, f"Item {number}")


def test_click_probability_by_hand():
    visitor = Visitor(0, make_user(), key=1)
    assert visitor.affinity == (1.0, 0.6, 0.0)  # .04 / .6 is below a tenth
    assert visitor.compute_click_probability(make_item(1, 0)) == pytest.approx(1 / (1 + math.exp(-6 * 0.5)))
    assert visitor.compute_click_probability(make_item(2, 0, 1)) == pytest.approx(
        1 / (1 + math.exp(-6 * 0.3))
    )  # (1 + .6) / 2 - .5
    assert visitor.compute_click_probability(make_item(3, 1, quality=1.0)) == pytest.approx(
        1 / (1 + math.exp(-6 * (0.6 + 0.15 - 0.5)))
    )
    assert (
        visitor.compute_click_probability(make_item(4, 2)) == 0
        and visitor.compute_click_probability(make_item(5, 0, price=21)) == 0
    )
    visitor.tips[1] = 7
    assert visitor.compute_click_probability(make_item(1, 0)) == pytest.approx(1 / (1 + math.exp(-6 * 0.7)))
    assert visitor.compute_joy(make_item(6, 1, quality=0.5)) == pytest.approx(0.6 * 0.7)


def test_mindset_after_pages_by_hand():
    visitor = Visitor(0, make_user(), key=1)
    page = [make_item(1, 0), make_item(2, 2), make_item(3, 0, price=50)]
    key = next(key for key in range(100) if uniform(key, 0, 0, 1) < 0.9)
    visitor.key = key
    reaction = visitor.react_to_page(page)
    assert reaction.clicked == (1,) and reaction.joy == pytest.approx(0.7)
    assert (reaction.too_expensive, reaction.disliked) == (1, 1)
    mind = visitor.mindset
    assert mind.fatigue == pytest.approx([0.5, 0, 0])
    assert mind.patience == pytest.approx(3 - 1 - 0.2 + 0.7)
    assert mind.satisfaction == pytest.approx(0.5 + 0.3 * (1 - 0.5))  # .7 exceeds full satisfaction
    assert visitor.compute_interest(page[0]) == pytest.approx(0.5)
    visitor.react_to_page([make_item(4, 2)])
    assert mind.fatigue == pytest.approx([0.45, 0, 0]) and mind.satisfaction == pytest.approx(0.65 * 0.7)
    visitor.end_day()
    assert visitor.mindset.fatigue == pytest.approx([0.225, 0, 0])
    assert visitor.mindset.patience == 3.0 and visitor.day == 1


def test_joy_restores_patience_only_up_to_its_start():
    visitor = Visitor(0, make_user(), key=3)
    visitor.react_to_page([make_item(n, 0, quality=1.0) for n in range(8)])
    assert visitor.mindset.patience <= 3.0


def test_return_probability_and_trust_by_hand():
    assert compute_return_probability(0.6, 0.5) == pytest.approx(0.6)
    assert compute_return_probability(0.9, 1.0) == 0.98 and compute_return_probability(0.1, 0.0) == 0.02
    page = [make_item(1, 0), make_item(2, 1)]
    assert update_trust(0.5, frozenset(), page) == 0.5
    assert update_trust(0.5, frozenset({0, 1}), page) == pytest.approx(0.55)
    assert update_trust(0.5, frozenset({0, 2}), page) == pytest.approx(0.3)
    assert update_trust(0.1, frozenset({2}), page) == 0.0


def test_instruction_addresses_the_worst_mismatch():
    visitor = Visitor(0, make_user(), key=1)
    assert choose_instruction(visitor, [make_item(1, 0, price=50), make_item(2, 2)]) == Wish("under", 20)
    assert choose_instruction(visitor, [make_item(1, 0), make_item(2, 2)]) == Wish("less", 2)
    assert choose_instruction(visitor, [make_item(1, 1)]) == Wish("more", 0)
    visitor.mindset.fatigue = [0.9, 0.0, 0.0]
    assert choose_instruction(visitor, [make_item(1, 1)]) == Wish("more", 1)  # it is tired of its favourite genre
    assert Wish("less", 2).is_satisfied_by([make_item(1, 0)]) and not Wish("less", 2).is_satisfied_by(
        [make_item(1, 0), make_item(2, 2)]
    )
    assert Wish("more", 0).is_satisfied_by([make_item(1, 0), make_item(2, 2)]) and not Wish("under", 9).is_satisfied_by(
        [make_item(1, 0)]
    )


def test_answers_are_true_or_missing():
    visitor = Visitor(0, make_user(), key=1)
    assert [answer_question(visitor, topic) for topic in ("genre", "price", "dislikes")] == [
        Wish("more", 0), Wish("under", 20), Wish("less", 2),
    ]  # fmt: skip
    forgetful = Record(**{**vars(make_user()), "forgets": (True, False, True)})
    assert answer_question(Visitor(0, forgetful, 1), "genre") is None
    assert answer_question(Visitor(0, forgetful, 1), "price") == Wish("under", 20)


@given(st.integers(0, 2**32), st.floats(0.5, 8))
def test_records_survive_options(seed, steepness):
    rng = np.random.default_rng(seed)
    record = draw_record(rng, draw_taste(rng, np.full(10, 1 / steepness)), "forgetful")
    assert restore_record(record.as_options()["record"]) == record


@given(st.integers(0, 2**53), st.lists(st.integers(0, 10**6), max_size=4))
def test_keyed_chance_is_reproducible_and_in_unit_interval(key, parts):
    assert 0 <= uniform(key, *parts) < 1
    assert uniform(key, *parts) == uniform(key, *parts)


def test_keyed_chance_is_uniform():
    values = np.array([uniform(9, day, number) for day in range(20) for number in range(500)])
    assert abs(values.mean() - 0.5) < 0.01 and abs(values.std() - 12**-0.5) < 0.01
    assert abs(np.corrcoef(values[:-1], values[1:])[0, 1]) < 0.03


# Populations.


def test_friends_mostly_share_the_segment():
    segments = assign_segments(400)
    friends = draw_friendships(segments, seed=1)
    assert sorted(set(segments)) == list(range(8))
    degrees = [len(user_friends) for user_friends in friends]
    assert 6 < sum(degrees) / 400 < 8
    is_same_segment = [
        segments[user_number] == segments[friend_number]
        for user_number, user_friends in enumerate(friends)
        for friend_number in user_friends
    ]
    assert sum(is_same_segment) / len(is_same_segment) > 0.8
    assert all(
        user_number in friends[friend_number]
        for user_number, user_friends in enumerate(friends)
        for friend_number in user_friends
    )
    assert draw_friendships(segments, seed=1) == friends != draw_friendships(segments, seed=2)
    assert draw_friendships([0], 0) == ((),)


def test_word_of_mouth_reaches_about_half_of_the_friends():
    audience = [Visitor(n, make_user(), key=n) for n in range(41)]
    friends = (tuple(range(1, 31)), *(() for _ in range(40)))
    tipped = spread_word(audience[0], 99, audience, friends)
    informed = [visitor.number for visitor in audience if 99 in visitor.tips]
    assert 8 < len(informed) < 23 and max(informed) <= 30 and tipped == informed


def test_tips_and_their_clicks_are_recorded():
    game = Recommender(users=12, days=3, pages=3)
    play(game, 1, "oracle")
    service = game.service
    assert service.tips_given and all(
        friend in service.deal.friends[teller] for _, teller, friend in service.tips_given
    )
    clicked = {(user, item) for user, own in enumerate(service.histories) for item, hit in own.seen.items() if hit}
    assert all((teller, item) in clicked for item, teller, _ in service.tips_given)
    assert 0 < service.tips <= sum((friend, item) in clicked for item, _, friend in service.tips_given)


def test_friends_tip_is_a_candidate_with_its_stars():
    game = Recommender(users=12, days=2)
    game.reset(seed=1)
    game.service.visitor.tips[77] = 3
    game.service.stars[77] = (9, 2)
    game.service._draw_candidates()
    assert 77 in game.service.candidates
    line = game.private("recommender")["candidates"][0]
    assert line.endswith("4.5 stars of 2. A friend's find.")


def test_population_is_served_by_day_and_user():
    game = Recommender(users=8, days=2, pages=2)
    visits = []
    game.reset(seed=4)
    serve = game.players["random"](game, 0)
    while not game.ended:
        view = view_of(game)
        visits.append((view.public["day"], view.public["visitor"]))
        game.step(serve(view))
    assert visits == sorted(visits) and {user for day, user in visits if day == 1} == set(range(1, 9))
    assert game.report()["visits"] == len(set(visits))


@pytest.mark.slow
def test_a_thousand_users_are_served():
    report = play(Recommender(users=1000, days=1, pages=3), 0, "listening")
    assert report["visits"] == 1000 and 0.3 < float(report["score"]) < 1
