"""What a game may offer beyond its rules, as protocols: who asks for it finds out by `isinstance`."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class BestResponse(Protocol):
    """A game that knows what the best play against a given opponent is worth."""

    def best_response(self, seat: str, chances: Callable[[Any], Mapping[str, float]]) -> float:
        """What the best play of `seat` earns on this deal, on average over chance. The game was just reset.

        All other seats answer a view with these chances of their acts. NaN where it is not known with these options.
        """
        ...
