"""What games and players say to each other: messages with images, views, and abilities that are asked for."""

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
    """Has other bytes than those it names."""

    name = "forgery"

    def picture(self, hash: str) -> bytes:
        return b""


def begun(game: TextGame) -> TextGame:
    game.reset(seed=0)
    return game


@given(st.text(), st.text(), st.lists(images, max_size=3))
def test_a_message_holds_what_it_was_made_of(sender: str, text: str, shown: list[Image]) -> None:
    message = Message.of(sender, text, shown)
    assert message.sender == sender and message.images == tuple(shown)
    assert [part for part in message.parts if isinstance(part, Text)] == ([text] if text or not shown else [])
    assert message.to_plain() == {"sender": sender, "text": message.text}


@given(st.text(), st.lists(images, min_size=1, max_size=3))
def test_who_cannot_see_reads_that_there_is_an_image(text: str, shown: list[Image]) -> None:
    read = Message.of("referee", text, shown).text
    assert read.startswith(text) and all(image.text in read for image in shown)
    assert all(image.text.isprintable() and image.text.isascii() for image in shown)


def test_a_text_alone_is_read_as_it_is() -> None:
    assert Message.of("a", "") == Message("a", ("",)) and Message.of("a", "").text == ""
    assert Message.of("a", "see", [IMAGE]).text == f"see [image png 4x4 {HASH[:8]}]"
    assert Message("a", (IMAGE, "that")).text == f"[image png 4x4 {HASH[:8]}] that"


@pytest.mark.parametrize(
    ("given", "says"),
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
def test_an_image_whose_placeholder_could_lie_is_refused(given: tuple[str, str, int, int], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Image(*given)


def test_a_view_shows_images_and_observations_of_text_games_are_as_they_were() -> None:
    view = View.of(begun(Gallery()), "visitor")
    assert view.messages == (Message("referee", ("What is this?", IMAGE)),) and view.legal == ("A", "B")
    (line,) = begun(Gallery()).observe("visitor")["messages"]
    assert line == {"sender": "referee", "text": view.messages[0].text, "images": (vars(IMAGE),)}
    haggled = begun(games.make("kuhn_poker"))
    haggled.step("BET")
    (line,) = haggled.observe("second")["messages"]
    assert line == {"sender": "first", "text": "BET"} and type(line) is dict


def test_a_game_with_images_keeps_every_promise_of_games() -> None:
    findings = kit.check(Gallery, seeds=3, acts=100)
    assert not [finding for finding in findings if finding.ok is False]
    (facts,) = (finding for finding in kit.check(Forgery, seeds=3, acts=100) if finding.name == "facts")
    assert facts.ok is False and "other bytes" in facts.detail


def test_clones_share_messages_and_no_inbox() -> None:
    one = begun(Gallery())
    other = copy.deepcopy(one)
    other.step("A")
    assert View.of(one, "visitor").messages != View.of(other, "visitor").messages
    message = Message.of("referee", "look", [IMAGE])
    assert copy.deepcopy(message) is message


ABLE: dict[str, set[type]] = {
    "kuhn_poker": {SpielRules},
    "prisoners_dilemma": set(),
    "maze": {Situations},
    "negotiation": {BestAgainstMixture, BestResponse, PlainWords},
    "clinic": {Split, Personas},
    "repair": {Split, Personas, Blocking},
}


@pytest.mark.parametrize("name", ABLE)
def test_abilities_are_those_that_the_class_declares(name: str) -> None:
    game = games.make(name)
    assert {ability for ability in Ability.__subclasses__() if isinstance(game, ability)} == ABLE[name] | {Stoppable}


def test_asking_evaluates_nothing_and_takes_next_to_no_time() -> None:
    class Sulking(Gallery):
        @property
        def blocks(self) -> bool:
            raise RuntimeError("not now")

    game = Sulking()
    assert isinstance(game, Blocking) and isinstance(game, Pictures) and not isinstance(game, PlainWords)
    assert min(timeit.repeat(lambda: isinstance(game, PlainWords), number=1000, repeat=20)) < 3e-3, "3 us a question"
    assert not isinstance(object(), Blocking)


def test_every_game_has_what_the_protocol_says() -> None:
    """A type checker cannot say so: PettingZoo's classes are untyped to it."""
    game = begun(games.make("tic_tac_toe"))
    body = vars(Game)
    names = {*body["__annotations__"], *(name for name in body if callable(body[name]) and name[0] != "_")}
    assert len(names) > 20 and [name for name in names if not hasattr(game, name)] == []
