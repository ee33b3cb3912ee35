"""The user's words and seat: parsing, truthful rendering, and free speech."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulators.conformance import play, view_of
from simulators.recommender import Recommender
from simulators.recommender.catalogue import generate
from simulators.recommender.seat import is_true_of
from simulators.recommender.speech import UNSURE, WORDINGS, encode_wish, list_wordings, read, read_wish
from simulators.recommender.wishes import Wish
from tests.factories.thorough import count_cases

BOOKS = generate(20, 0)
WISHES = [wish for n in range(10) for wish in (Wish("more", n), Wish("less", n))] + [Wish("under", 27)]


@pytest.mark.parametrize("wish", WISHES, ids=str)
def test_every_wording_is_parsed_back(wish):
    for text in list_wordings(wish, BOOKS):
        assert read_wish(text, BOOKS, cap=1) == wish, text
        assert len(read(text, BOOKS).facts) == 1


def test_unsure_answers_parse_to_no_wish():
    for text in [*UNSURE.values(), "Fine.", "", ".", "Nothing."]:
        assert read_wish(text, BOOKS, 20) is None


@pytest.mark.parametrize(
    ("text", "wish"),
    [
        ("I love a good whodunit!", Wish("more", 0)), ("I hate ghost stories and any ghost story", Wish("less", 2)),
        ("Please skip the farce.", Wish("less", 3)), ("nothing over 18 crowns", Wish("under", 18)),
        ("I can't stand poetry", Wish("less", 8)), ("LESS sport", Wish("less", 9)), ("UNDER 12", Wish("under", 12)),
        ("<", Wish("under", 20)), ("+c", Wish("more", 2)), ("-j", Wish("less", 9)), ("+z", None),
    ],
)  # fmt: skip
def test_parses_plain_words_and_codes(text, wish):
    assert read_wish(text, BOOKS, 20) == wish


@pytest.mark.parametrize("wish", [*WISHES, None], ids=str)
def test_codes_are_parsed_back(wish):
    assert read_wish(encode_wish(wish), BOOKS, 27) == wish


@given(st.text(max_size=80))
@settings(max_examples=count_cases(70, 300), deadline=None)
def test_any_text_parses_to_a_wish_or_none(text):
    wish = read_wish(text, BOOKS, 20)
    assert wish is None or wish.kind in WORDINGS["plain"]


def test_parses_paraphrases_with_filler_words():
    assert read_wish("I love a love story!", BOOKS, 20) == Wish("more", 1)
    assert read_wish("I never read a love-story", BOOKS, 20) == Wish("less", 1)


def start_with_rendered_user(seed=3):
    game = Recommender(person="render")
    game.reset(seed=seed)
    game.step("ASK price")
    assert game.agent_selection == "user"
    return game


def test_wrong_rendering_is_retried_once_then_replaced():
    game = start_with_rendered_user()
    cap = game.service.visitor.record.cap
    game.step(f"I can pay {cap + 9} crowns at most.")
    assert game.agent_selection == "user" and game.infos["user"]["rewards"] == {"reading": -0.1}
    assert (
        game.observe("recommender")["messages"] == ()
        or "pay" not in game.observe("recommender")["messages"][-1]["text"]
    )
    game.step(f"I can pay {cap} crowns at most, and I like poetry.")
    assert game.observe("recommender")["messages"][-1]["text"] == game.seat.template
    assert game.private("recommender")["under"] == cap
    other = start_with_rendered_user()
    other.step(f"At most {cap} crowns, please.")
    assert other.observe("recommender")["messages"][-1]["text"] == f"At most {cap} crowns, please."
    assert other.seat.renderings.replaced == 0


def test_a_free_seat_sees_its_mind_and_may_lie():
    game = Recommender(person="free")
    game.reset(seed=3)
    game.step("SHOW 1 2 3")
    view = view_of(game)
    assert view.seat == "user" and set(view.private["taste"]) == set(BOOKS.genres)
    assert view.private["mindset"] != view.private["before"] and view.private["cap"] == game.service.visitor.record.cap
    disliked_genre = BOOKS.genres[game.service.visitor.record.disliked[0]]
    assert f"MORE {disliked_genre}" in (view.legal or ())
    game.step(f"MORE {disliked_genre}")
    assert disliked_genre in game.private("recommender")["more"] and game.seat.untrue == 1
    assert game.agent_selection == "recommender"


def test_rules_call_only_scripted_users_truthful():
    for person in ("script", "render", "free"):
        game = Recommender(person=person)
        game.reset(seed=0)
        assert ("says the truth" in game.rules()) == (person != "free")


def test_user_does_not_see_the_previous_users_mindset():
    game = Recommender(person="free", users=3, pages=1, days=2)
    game.reset(seed=3)
    game.step("SHOW 1 2 3")
    assert game.service.user_index == 1 and game.agent_selection == "recommender"
    game.step("ASK price")
    assert game.agent_selection == "user" and view_of(game).private["before"] == {}


def test_only_the_exact_price_limit_is_true():
    game = Recommender(person="free")
    game.reset(seed=3)
    user = game.service.visitor
    assert [is_true_of(Wish("under", user.record.cap + offset), user) for offset in (-1, 0, 1)] == [False, True, False]


def test_free_user_earns_its_joy():
    game = Recommender(person="free")
    for seed in range(5):
        report = play(game, seed, "listening")
        assert game.payoffs()["user"] == pytest.approx(report["joy"])


@pytest.mark.slow
def test_truthful_steering_helps_a_listening_recommender():
    """Compare a user that speaks truthfully with one that speaks at random."""
    game, joy = Recommender(person="free"), {}
    for user_player in ("oracle", "random"):
        joy[user_player] = sum(float(play(game, seed, "listening", user_player)["joy"]) for seed in range(60)) / 60
    assert joy["oracle"] > joy["random"] + 0.3
