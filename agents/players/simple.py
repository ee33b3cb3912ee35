"""Players of any game: by its listed legal acts, by recorded acts, or by a function."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

from games.contracts import View


class Random:
    """Policy that plays uniformly random legal acts; an empty act if none are listed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def act(self, view: View) -> str:
        """Return a random legal act, "" if none are listed."""
        return self.rng.choice(view.legal) if view.legal else ""


class RecordedActs:
    """Policy that repeats recorded acts by turn."""

    def __init__(self, acts: Mapping[int, str]) -> None:
        self.acts = acts

    def act(self, view: View) -> str:
        """Return the recorded act of this turn. Raises KeyError if there is none."""
        return self.acts[view.turn]


class FirstLegal:
    """Policy that always plays the first legal act; an empty act if none are listed. Ignores the seed."""

    def __init__(self, seed: int = 0) -> None:
        pass

    def act(self, view: View) -> str:
        """Return the first legal act, "" if none are listed."""
        return view.legal[0] if view.legal else ""


class FunctionPlayer:
    """Player that acts by a function of the view. Ignores the seed."""

    def __init__(self, answer: Callable[[View], str], seed: int = 0) -> None:
        self.answer = answer

    def act(self, view: View) -> str:
        """Return the act that the function chooses at this view."""
        return self.answer(view)
