"""Positions of games for search: OpenSpiel's states, or clones of any game."""

from __future__ import annotations

import json
import random
from collections.abc import Hashable, Sequence
from time import process_time
from typing import Any, Protocol

from games.abilities import SpielRules
from games.contracts import Game

SMALL = 20_000  # positions of a game that is searched to its end: tic-tac-toe has 5,478
SEARCH_SECONDS = 5.0  # maximum processor time to visit all of them once; a full search takes far longer


class Position(Protocol):
    """Protocol of a game position for search.

    `mover` is the index of the seat to move, -1 after the end. `acts` lists the legal acts, `word` returns an act's
    text, `after` the position after an act, and `payoffs` the payoffs so far by seat.
    """

    mover: int

    @property
    def key(self) -> Hashable:
        """Key for caches, equal for positions with the same future."""
        ...

    def acts(self) -> Sequence[Any]: ...
    def word(self, act: Any) -> str: ...
    def after(self, act: Any) -> Position: ...
    def payoffs(self) -> Sequence[float]: ...


class SpielPosition:
    """Position of an OpenSpiel game. Only the root has a `game`, for the texts of its acts."""

    def __init__(self, state: Any, game: SpielRules | None = None) -> None:
        self.state, self.game = state, game
        self.mover: int = -1 if state.is_terminal() else state.current_player()

    @property
    def key(self) -> Hashable:
        return self.mover, str(self.state)

    def acts(self) -> Sequence[int]:
        return list(self.state.legal_actions())

    def word(self, act: int) -> str:
        assert self.game is not None, "only the root position has texts of acts"
        return self.game.word(act)

    def after(self, act: int) -> SpielPosition:
        return SpielPosition(self.state.child(act))

    def payoffs(self) -> Sequence[float]:
        return list(self.state.returns())


class ClonePosition:
    """Position of any game that can be cloned, for search; `after` plays an act on a clone."""

    def __init__(self, game: Game) -> None:
        self.game = game
        self.seats = list(game.possible_agents)
        self.mover = -1 if game.ended else self.seats.index(game.agent_selection)

    @property
    def key(self) -> Hashable:
        # Nothing is hidden, so the mover's view is the whole state.
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
    """Return the current position of a game for search: OpenSpiel's state if it has one, else the game itself."""
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
"""Cached properties of games, by property and title."""


def _cache_key(game: Game) -> tuple[str, ...]:
    """Return a cache key that distinguishes a reset game from the same game with other options."""
    spiel = str(game.spiel) if isinstance(game, SpielRules) else ""
    return game.name, spiel, game.infos[game.agent_selection]["rules"]


def is_contest(game: Game) -> bool:
    """Return True if, in ten random matches, one seat's better result was always the other's worse result; cached."""
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
    """Return True if a search can visit all positions: at most `SMALL`, within `SEARCH_SECONDS` CPU seconds; cached."""
    trial = clone_fresh(game)
    name = ("small", *_cache_key(trial))
    if name not in _CACHE:
        start, deadline = make_position(trial), process_time() + SEARCH_SECONDS
        seen, stack = {start.key}, [start]
        while stack and len(seen) <= SMALL and process_time() < deadline:
            position = stack.pop()
            for act in position.acts() if position.mover >= 0 else ():
                after = position.after(act)
                if after.key not in seen:
                    seen.add(after.key)
                    stack.append(after)
        _CACHE[name] = len(seen) <= SMALL and not stack
    return _CACHE[name]
