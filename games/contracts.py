"""What a game may offer beyond its rules, as protocols: who asks for it finds out by `isinstance`."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class BestResponse(Protocol):
    """A game that knows what the best play against a given opponent is worth."""

    def best_response(self, seat: str, chances: Callable[[Any], Mapping[str, float]]) -> float:
        """What the best play of `seat` earns on this deal, on average over chance. The game was just reset.

        All other seats answer a view with these chances of their acts. NaN where it is not known with these options.
        """
        ...


@runtime_checkable
class Tells(Protocol):
    """A game that says to people, in plain words, what players are told as facts and acts.

    Each seat is told what it may know and no more, until the match has ended.
    """

    def introduction(self, seat: str) -> str:
        """What the match is about, and how to type an act, with an example; the same throughout a match."""
        ...

    def in_words(self, seat: str) -> str:
        """What lies before this seat, which is to move."""
        ...

    def act_in_words(self, act: str) -> str:
        """What another seat does by this act, as the game read it; "" where it has no words for that."""
        ...

    def epilogue(self, people: Sequence[str]) -> tuple[Sequence[Sequence[str]], str]:
        """Of an ended match, for the people at these seats: a table, its heads first, and what it comes to."""
        ...
