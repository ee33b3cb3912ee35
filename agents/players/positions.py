"""Positions of games for search: OpenSpiel's states, or clones of any game."""

from __future__ import annotations

import json
import random
from collections.abc import Hashable, Sequence
from time import process_time
from typing import Any, Protocol

from games.abilities import SpielRules
from games.contracts import Game

MAX_POSITIONS = 20_000
"""Maximum number of positions of a game that is searched to its end. Tic-tac-toe has 5,478."""
SEARCH_SECONDS = 5.0
"""Maximum CPU seconds to visit all positions once; a search takes far longer."""


class Position(Protocol):
    """Protocol of a game position for search.

    `acts` lists the legal acts, `word` returns an act's text, `after` the next position, `payoffs` the payoffs so far.
    """

    mover: int
    """Index of the seat to move; -1 after the end."""

    @property
    def key(self) -> Hashable:
        """Key for caches, equal for positions with the same future."""
        ...

    def acts(self) -> Sequence[Any]: ...
    def word(self, act: Any) -> str: ...
    def after(self, act: Any) -> Position: ...
    def payoffs(self) -> Sequence[float]: ...


class SpielPosition:
    """Position of an OpenSpiel game. Only the root has a `game`, which can write acts as text."""

    def __init__(self, state: Any, game: SpielRules | None = None) -> None:
        self.state, self.game = state, game
        self.mover: int = -1 if state.is_terminal() else state.current_player()

    @property
    def key(self) -> Hashable:
        return self.mover, str(self.state)

    def acts(self) -> Sequence[int]:
        return list(self.state.legal_actions())

    def word(self, act: int) -> str:
        assert self.game is not None, "only the root can write acts as text"
        return self.game.word(act)

    def after(self, act: int) -> SpielPosition:
        return SpielPosition(self.state.child(act))

    def payoffs(self) -> Sequence[float]:
        return list(self.state.returns())


class ClonePosition:
    """Position of any game that can be cloned; `after` plays an act on a clone."""

    def __init__(self, game: Game) -> None:
        self.game = game
        self.seats = list(game.possible_agents)
        self.mover = -1 if game.ended else self.seats.index(game.agent_selection)

    @property
    def key(self) -> Hashable:
        # Nothing is hidden, so the facts that the seats see are the whole state.
        info = self.game.infos[self.game.agent_selection]
        facts = json.dumps([info["public"], info["private"]], sort_keys=True)
        return self.mover, facts, tuple(self.payoffs())

    def acts(self) -> Sequence[str]:
        return list(self.game.infos[self.game.agent_selection]["legal"])

    def word(self, act: str) -> str:
        return act

    def after(self, act: str) -> ClonePosition:
        game = self.game.clone()
        game.step(act)
        return ClonePosition(game)

    def payoffs(self) -> Sequence[float]:
        payoffs = self.game.payoffs()
        return [payoffs[seat] for seat in self.seats]

    def play_out(self, rng: random.Random) -> Sequence[float]:
        """Play random acts from here to the end, on a clone, and return the payoffs by seat."""
        game = self.game.clone()
        while not game.ended:
            game.step(rng.choice(game.infos[game.agent_selection]["legal"]))
        return ClonePosition(game).payoffs()


def make_position(game: Game) -> Position:
    """Return the current position of a game: OpenSpiel's state if it has one, else a clonable position."""
    return SpielPosition(game.state, game) if isinstance(game, SpielRules) else ClonePosition(game)


def clone_fresh(game: Game) -> Game:
    """Return a clone of a game, reset with seed 0."""
    fresh = game.clone()
    fresh.reset(seed=0)
    return fresh


def get_title(game: Game) -> str:
    """Return a game's name for messages: its title if it has one, else its registered name."""
    return game.title or game.name


_CACHE: dict[Hashable, bool] = {}
"""Cached results of `is_contest` and `is_small`, by function and game."""


def _cache_key(game: Game) -> tuple[str, ...]:
    """Return a cache key for a game that has been reset; it depends on the game's options."""
    spiel = str(game.spiel) if isinstance(game, SpielRules) else ""
    return game.name, spiel, game.infos[game.agent_selection]["rules"]


def is_contest(game: Game) -> bool:
    """Return True if, in ten random matches, a better result for one seat is always worse for the other; cached."""
    trial, ends = clone_fresh(game), []
    name = ("contest", *_cache_key(trial))
    if name not in _CACHE:
        for seed in range(10):
            trial.reset(seed=seed)
            ends.append(ClonePosition(trial).play_out(random.Random(seed)))
        gains = [(end[0] - other[0], end[1] - other[1]) for end in ends for other in ends]
        _CACHE[name] = all(first * second < 0 or first == second == 0 for first, second in gains)
    return _CACHE[name]


def is_small(game: Game) -> bool:
    """Return True if all positions can be visited: at most `MAX_POSITIONS`, within `SEARCH_SECONDS`; cached."""
    trial = clone_fresh(game)
    name = ("small", *_cache_key(trial))
    if name not in _CACHE:
        start, deadline = make_position(trial), process_time() + SEARCH_SECONDS
        seen, stack = {start.key}, [start]
        while stack and len(seen) <= MAX_POSITIONS and process_time() < deadline:
            position = stack.pop()
            for act in position.acts() if position.mover >= 0 else ():
                after = position.after(act)
                if after.key not in seen:
                    seen.add(after.key)
                    stack.append(after)
        _CACHE[name] = len(seen) <= MAX_POSITIONS and not stack
    return _CACHE[name]
