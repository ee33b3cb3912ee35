"""Optional abilities of games, as small protocols to check with `isinstance`."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple, Protocol, runtime_checkable

from games.contracts import ContentPart, Game, View


class _Ability(type(Protocol)):  # type: ignore[misc]  # typing does not export it
    """Metaclass that makes `isinstance` checks fast by caching, per game class, whether it declares all members.

    `runtime_checkable` inspects the instance at each call and evaluates its properties. That takes 6 to 9 µs, a tenth
    of a short match; this check takes 0.15 µs.
    """

    def __instancecheck__(cls, instance: Any) -> bool:
        return _has_members(instance.__class__, cls)


@cache
def _has_members(kind: type, ability: type) -> bool:
    """Return True if a class defines or annotates every member in the body of the protocol `ability`."""
    body = vars(ability)
    public = {name: member for name, member in body.items() if not name.startswith("_")}
    defined = {name for name, member in public.items() if callable(member) or isinstance(member, property)}
    typed = {name for base in kind.__mro__ for name in vars(base).get("__annotations__", ())}
    return all(name in typed or hasattr(kind, name) for name in defined.union(body.get("__annotations__", ())))


class Ability(Game, Protocol, metaclass=_Ability):
    """Base protocol of optional game abilities; `isinstance(game, …)` is true if the game declares the members."""


@runtime_checkable
class Blocking(Ability, Protocol):
    """Ability to block: resets and steps may wait for something outside this process, such as code that runs.

    If `blocks` is true, a match runs them in a thread, so that other matches continue. The results are the same.
    `games/slow.py` can move slow calls to other processes.
    """

    @property
    def blocks(self) -> bool: ...


@runtime_checkable
class Waiting(Ability, Protocol):
    """Ability of a blocking game to wait without using a processor, if `waits` is true.

    More of its steps may then run at a time than there are processors.
    """

    @property
    def waits(self) -> bool: ...


@runtime_checkable
class Stoppable(Ability, Protocol):
    """Ability to truncate a match."""

    def stop(self, reason: str) -> None:
        """Truncate the match with this reason. Earlier rewards are kept, and the seat to move loses its stake."""


@runtime_checkable
class Situations(Ability, Protocol):
    """Ability to identify states by a text, so that credit assignment can compare turns from equal states (GiGPO)."""

    def situation(self, seat: str) -> str:
        """Return a text that identifies the state in which this seat moves.

        Equal states must have equal texts, so leave out irrelevant facts, such as the turn's number.
        """


@runtime_checkable
class Pictures(Ability, Protocol):
    """Ability to send images in messages."""

    def picture(self, hash: str) -> bytes:
        """Return the bytes of an image in a message of this match by its hash. Raises KeyError if it is unknown."""


class Mark(NamedTuple):
    """Point or box in an image that an act names, in pixels from the image's upper left corner."""

    image: str
    """Hash of the image."""
    left: float
    top: float
    right: float
    """Right edge of a box; `left` for a point."""
    bottom: float
    """Lower edge of a box; `top` for a point."""


@runtime_checkable
class Marks(Ability, Protocol):
    """Ability to locate the places in images that an act names. The viewer draws them over the images."""

    def marks(self, act: str) -> Sequence[Mark]:
        """Return the places that an act of the seat to move names, if any, without changing the game."""


Labels = tuple[tuple[tuple[str, ...], ...], ...]
"""Grid of labels over an image: rows of cells, top row first, each with its words; () is a cell without a label.

A cell's words belong, in order, to the image tokens that lie in it. They have no spaces around them.
"""


class GroundingLesson(NamedTuple):
    """Prompt with labelled images, which teaches a model what its image tokens mean in words."""

    parts: tuple[ContentPart, ...]
    """Texts and images in order, as in a `Message`."""
    pictures: Mapping[str, bytes]
    """Bytes of the images by hash."""
    labels: tuple[Labels, ...]
    """Label grid of each image, in the order of the images."""
    answer: str = ""
    """Text to learn after the prompt; "" if only the labels are learned."""


@runtime_checkable
class GroundingLessons(Ability, Protocol):
    """Ability to draw lessons: labelled images of the game's world for training before play."""

    @property
    def lesson_kinds(self) -> Sequence[str]: ...

    def lesson(self, rng: random.Random, kind: str) -> GroundingLesson:
        """Draw a lesson of this kind, one of `lesson_kinds`, from the game's split. The game need not be reset.

        Raises ValueError for an unknown kind.
        """


@runtime_checkable
class PostedRewards(Ability, Protocol):
    """Ability to accept rewards that a seat's agent program posts."""

    def take_rewards(self, seat: str, rewards: Mapping[str, float]) -> None:
        """Pay these named rewards to the seat with its next act, in place of those from an earlier call.

        Raises ValueError if the game accepts no rewards, or not these names.
        """


@runtime_checkable
class SpielRules(Ability, Protocol):
    """Access to a game's OpenSpiel rules and state, for search players, solvers and best responses."""

    spiel: Any
    """The pyspiel.Game."""
    state: Any
    """The pyspiel.State; None before the first reset."""
    draw: float
    """Reward of both sides for a draw. OpenSpiel's returns count a draw as 0."""

    def word(self, action: int) -> str:
        """Return the act's text for this OpenSpiel action, which must be legal now."""


@runtime_checkable
class Personas(Ability, Protocol):
    """Ability to simulate people with several personas. `personas` lists their names; it may depend on options."""

    @property
    def personas(self) -> Sequence[str]: ...


@runtime_checkable
class Split(Ability, Protocol):
    """Ability to divide hidden entities into a training and a test split. `split` names the one in use."""

    @property
    def split(self) -> str: ...


@runtime_checkable
class Answers(Ability, Protocol):
    """Ability to return a seat's final answer in canonical form, such as a number that has several notations.

    Without this ability, a seat's last legal act is its answer.
    """

    def final_answer(self, seat: str) -> str:
        """Return the seat's answer after the end of the match in canonical form; "" if it gave none.

        Equal answers have equal texts.
        """


@runtime_checkable
class Judged(Ability, Protocol):
    """Ability to have one seat judge another seat's answer, by yes or no."""

    @property
    def judge_seat(self) -> str:
        """Name of the judging seat; "" if the game's options omit it."""


@runtime_checkable
class BestResponse(Ability, Protocol):
    """Ability to compute the value of a best response to a given opponent."""

    def best_response(self, seat: str, chances: Callable[[View], Mapping[str, float]]) -> float:
        """Return the expected payoff of a best response of `seat` on this deal, or NaN if it is unknown.

        Call it right after a reset. `chances` maps a view of any other seat to its act probabilities.
        """


@runtime_checkable
class BestAgainstMixture(Ability, Protocol):
    """Ability to compute the value of a best response to an opponent drawn from several."""

    def best_against_mixture(self, seat: str, members: Sequence[Callable[[View], Mapping[str, float]]]) -> float:
        """Return the expected payoff of a best response of `seat` to a random member, or NaN if it is unknown.

        Call it right after a reset. One member, drawn uniformly, plays all other seats; `members` map views to act
        probabilities. The seat knows the members, but not which one was drawn.
        """


@runtime_checkable
class PlainWords(Ability, Protocol):
    """Ability to explain a match to human players in plain words, instead of lists of facts and acts.

    Until the match has ended, the texts contain only what the seat may know.
    """

    def introduction(self, seat: str) -> str:
        """Explain the match and how to type an act, with an example. The text is constant during a match."""

    def in_words(self, seat: str) -> str:
        """Describe the current position to this seat, which is to move."""

    def act_in_words(self, act: str) -> str:
        """Describe another seat's act, as the game parsed it. Returns "" if there is no description."""

    def epilogue(self, people: Sequence[str]) -> tuple[Sequence[Sequence[str]], str]:
        """Summarise an ended match for people at these seats: a table of cells, header row first, and a conclusion."""
