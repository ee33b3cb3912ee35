"""Games, by name; a game's module is loaded when it is first asked for."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from games.text import TextGame

CLASSES = {"negotiation": "games.negotiation:Negotiation"}


class Games(Mapping[str, "type[TextGame]"]):
    """The table of games: names without loading anything, a game's class when it is looked up."""

    def __getitem__(self, name: str) -> type[TextGame]:
        module, _, attribute = CLASSES[name].partition(":")
        found: type[TextGame] = getattr(importlib.import_module(module), attribute)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(CLASSES)

    def __len__(self) -> int:
        return len(CLASSES)

    def __contains__(self, name: object) -> bool:
        return name in CLASSES


GAMES = Games()


def make(name: str, **options: Any) -> TextGame:
    """A new game with these options; ValueError, naming the nearest game, when there is none of that name."""
    if name not in GAMES:
        near = difflib.get_close_matches(name, GAMES, n=1)
        hint = f", did you mean {near[0]!r}?" if near else f"; there are: {', '.join(GAMES)}"
        raise ValueError(f"no game is called {name!r}{hint}")
    return GAMES[name](**options)
