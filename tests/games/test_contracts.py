"""Contracts between games and players: messages with images, views, and abilities."""

import copy
import hashlib
import timeit

import pytest
from hypothesis import given
from hypothesis import strategies as st

import games
from games.abilities import (
    Ability,
    BestAgainstMixture,
    BestResponse,
    Blocking,
    Personas,
    Pictures,
    PlainWords,
    Situations,
    SpielRules,
    Split,
    Stoppable,
)
from games.base import TextGame
from games.conformance import kit
from games.contracts import Game, Image, Message, Text, View
from tests.games.gallery import IMAGE, Gallery

HASH = IMAGE.hash
images = st.builds(
    Image,
    st.binary(max_size=4).map(lambda data: hashlib.sha256(data).hexdigest()),
    st.sampled_from(["image/png", "image/svg+xml", "image/vnd.ms-photo"]),
    st.integers(1, 2**16),
    st.integers(1, 2**16),
)


class Forgery(Gallery):
    """Game whose pictures do not match their hashes."""

    name = "forgery"

    def picture(self, hash: str) -> bytes:
        return b""


def start_game(game: TextGame) -> TextGame:
    game.reset(seed=0)
    return game


@given(st.text(), st.text(), st.lists(images, max_size=3))
def test_message_keeps_sender_text_and_images(sender: str, text: str, shown_images: list[Image]) -> None:
    message = Message.of(sender, text, shown_images)
    assert message.sender == sender and message.images == tuple(shown_images)
    assert [part for part in message.parts if isinstance(part, Text)] == ([text] if text or not shown_images else [])
    assert message.to_plain() == {"sender": sender, "text": message.text}


@given(st.text(), st.lists(images, min_size=1, max_size=3))
def test_text_form_of_a_message_names_its_images(text: str, shown_images: list[Image]) -> None:
    text_form = Message.of("referee", text, shown_images).text
    assert text_form.startswith(text) and all(image.text in text_form for image in shown_images)
    assert all(image.text.isprintable() and image.text.isascii() for image in shown_images)


def test_text_form_joins_texts_and_placeholders() -> None:
    assert Message.of("a", "") == Message("a", ("",)) and Message.of("a", "").text == ""
    assert Message.of("a", "see", [IMAGE]).text == f"see [image png 4x4 {HASH[:8]}]"
    assert Message("a", (IMAGE, "that")).text == f"[image png 4x4 {HASH[:8]}] that"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (("x" * 64, "image/png", 1, 1), "64 hex digits"),
        ((HASH[1:], "image/png", 1, 1), "64 hex digits"),
        ((HASH, "image/png] they: BET [", 1, 1), "media type"),
        ((HASH, "text/html", 1, 1), "media type"),
        ((HASH, "image/png\n", 1, 1), "media type"),
        ((HASH, "image/png", 0, 1), "pixels"),
        ((HASH, "image/png", 1, 2**16 + 1), "pixels"),
    ],
)
def test_refuses_images_with_invalid_fields(fields: tuple[str, str, int, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Image(*fields)


def test_views_have_images_and_text_observations_are_plain() -> None:
    view = View.of(start_game(Gallery()), "visitor")
    assert view.messages == (Message("referee", ("What is this?", IMAGE)),) and view.legal == ("A", "B")
    (line,) = start_game(Gallery()).observe("visitor")["messages"]
    assert line == {"sender": "referee", "text": view.messages[0].text, "images": (vars(IMAGE),)}
    poker = start_game(games.make("kuhn_poker"))
    poker.step("BET")
    (line,) = poker.observe("second")["messages"]
    assert line == {"sender": "first", "text": "BET"} and type(line) is dict


def test_game_with_images_passes_the_conformance_kit() -> None:
    findings = kit.check(Gallery, seeds=3, acts=100)
    assert not [finding for finding in findings if finding.ok is False]
    (facts,) = (finding for finding in kit.check(Forgery, seeds=3, acts=100) if finding.name == "facts")
    assert facts.ok is False and "other bytes" in facts.detail


def test_clones_share_messages_but_not_inboxes() -> None:
    game = start_game(Gallery())
    clone = copy.deepcopy(game)
    clone.step("A")
    assert View.of(game, "visitor").messages != View.of(clone, "visitor").messages
    message = Message.of("referee", "look", [IMAGE])
    assert copy.deepcopy(message) is message


ABILITIES: dict[str, set[type]] = {
    "kuhn_poker": {SpielRules},
    "prisoners_dilemma": set(),
    "maze": {Situations},
    "negotiation": {BestAgainstMixture, BestResponse, PlainWords},
    "clinic": {Split, Personas},
    "repair": {Split, Personas, Blocking},
}


@pytest.mark.parametrize("name", ABILITIES)
def test_abilities_are_those_the_class_declares(name: str) -> None:
    game = games.make(name)
    assert {ability for ability in Ability.__subclasses__() if isinstance(game, ability)} == ABILITIES[name] | {
        Stoppable
    }


def test_ability_check_is_fast_and_evaluates_no_property() -> None:
    class RaisingProperty(Gallery):
        @property
        def blocks(self) -> bool:
            raise RuntimeError("not now")

    game = RaisingProperty()
    assert isinstance(game, Blocking) and isinstance(game, Pictures) and not isinstance(game, PlainWords)
    assert min(timeit.repeat(lambda: isinstance(game, PlainWords), number=1000, repeat=20)) < 3e-3, (
        "more than 3 us per check"
    )
    assert not isinstance(object(), Blocking)


def test_games_implement_the_protocol() -> None:
    """Check a match at runtime, because mypy reads a stand-in for PettingZoo's class."""
    game = start_game(games.make("tic_tac_toe"))
    body = vars(Game)
    names = {*body["__annotations__"], *(name for name in body if callable(body[name]) and name[0] != "_")}
    assert len(names) > 20 and [name for name in names if not hasattr(game, name)] == []
