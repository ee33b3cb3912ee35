"""Detection of perfect information by trial matches: nothing is dealt, and every seat sees every act.

A seat's history then determines the state, so search players may look ahead without cheating. A game in which two acts
have the same effect may wrongly count as hiding something. A game with hidden information counts as open only if the
trial matches do not reveal it.
"""

from __future__ import annotations

import random
from typing import Any

from games.base import TextGame
from games.conformance.fuzz import to_json

SEEDS, ACTS = 4, 60
"""Number of trial matches, and of acts examined in each."""


def shows_everything(game: TextGame) -> bool:
    """Return True if `SEEDS` random trial matches show that nothing is hidden from any seat. The game is unchanged."""
    return all(_ignores_seed(game, seed) and _shows_acts(game, seed) for seed in range(SEEDS))


def _start(game: TextGame, seed: int) -> TextGame:
    match = game.clone()
    match.reset(seed=seed)
    return match


def _ignores_seed(game: TextGame, seed: int) -> bool:
    """Return True if one random match looks equal to all seats after resets with `seed` and with `seed + 1`.

    Compares at most `ACTS` acts, and stops at the end of the match or if no legal acts are listed.
    """
    one, two, rng = _start(game, seed), _start(game, seed + 1), random.Random(seed)
    for _ in range(ACTS):
        if _dump_views(one) != _dump_views(two):
            return False
        if one.ended or not (listed := one.infos[one.agent_selection]["legal"]):
            return True
        act = rng.choice(listed)
        one.step(act)
        two.step(act)
    return True


def _shows_acts(game: TextGame, seed: int) -> bool:
    """Return True if, in one random match, two different acts always gave every other seat different views.

    Compares two listed acts at each of at most `ACTS` turns; False if there never were two.
    """
    here, rng, compared = _start(game, seed), random.Random(seed), 0
    for _ in range(ACTS):
        mover = here.agent_selection
        if here.ended or not (listed := here.infos[mover]["legal"]):
            break
        if len(listed) > 1:
            after = [here.clone(), here.clone()]
            for branch, act in zip(after, rng.sample(list(listed), 2), strict=True):
                branch.step(act)
            if any(_dump_view(after[0], seat) == _dump_view(after[1], seat) for seat in here.seats if seat != mover):
                return False
            compared += 1
        here.step(rng.choice(listed))
    return compared > 0


def _dump_views(game: TextGame) -> str:
    return to_json([game.agent_selection, game.ended, [_dump_view(game, seat) for seat in game.seats]])


def _dump_view(game: TextGame, seat: str) -> str:
    """Return the messages and facts of this seat as JSON text."""
    facts: list[Any] = [game.observe(seat)["messages"], game.public(), game.private(seat)]
    return to_json(facts)
