"""Detection of perfect information by trial matches: nothing is dealt, and every seat sees every act.

Then a seat's history determines the state, so search players may look ahead without cheating. Games in which two acts
have the same effect may wrongly count as hidden; a game with hidden information never counts as open, as far as the
trial matches show.
"""

from __future__ import annotations

import random
from typing import Any

from games.base import TextGame
from games.conformance.fuzz import plain

SEEDS, ACTS = 4, 60
"""Number of trial matches, and of acts examined in each."""


def hides_nothing(game: TextGame) -> bool:
    """Return True if trial matches of listed acts show that nothing is hidden from any seat. The game is unchanged."""
    return all(_deals_nothing(game, seed) and _acts_are_seen(game, seed) for seed in range(SEEDS))


def _begun(game: TextGame, seed: int) -> TextGame:
    begun = game.clone()
    begun.reset(seed=seed)
    return begun


def _deals_nothing(game: TextGame, seed: int) -> bool:
    """Return True if equal acts after two different seeds give all seats equal views at every step."""
    one, two, rng = _begun(game, seed), _begun(game, seed + 1), random.Random(seed)
    for _ in range(ACTS):
        if _views(one) != _views(two):
            return False
        if one.ended or not (listed := one.infos[one.agent_selection]["legal"]):
            return True
        act = rng.choice(listed)
        one.step(act)
        two.step(act)
    return True


def _acts_are_seen(game: TextGame, seed: int) -> bool:
    """Return True if two different acts always gave every other seat different views, and some were compared."""
    here, rng, compared = _begun(game, seed), random.Random(seed), 0
    for _ in range(ACTS):
        mover = here.agent_selection
        if here.ended or not (listed := here.infos[mover]["legal"]):
            break
        if len(listed) > 1:
            after = [here.clone(), here.clone()]
            for branch, act in zip(after, rng.sample(list(listed), 2), strict=True):
                branch.step(act)
            if any(_seen(after[0], seat) == _seen(after[1], seat) for seat in here.seats if seat != mover):
                return False
            compared += 1
        here.step(rng.choice(listed))
    return compared > 0


def _views(game: TextGame) -> str:
    return plain([game.agent_selection, game.ended, [_seen(game, seat) for seat in game.seats]])


def _seen(game: TextGame, seat: str) -> str:
    """Return the messages and facts of this seat as JSON text."""
    facts: list[Any] = [game.observe(seat)["messages"], game.public(), game.private(seat)]
    return plain(facts)
