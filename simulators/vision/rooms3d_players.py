"""Scripted players of the game `rooms3d`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import repeat
from typing import Protocol

import numpy as np

from games.contracts import View
from simulators.base import Script
from simulators.vision.drawing import pick
from simulators.vision.house import House
from simulators.vision.house_paths import LENGTHS, STOP, Act, Route, expert_route
from simulators.vision.rooms3d_acts import ACTS, MAX_ACTS, format_acts


class Match(Protocol):
    """Attributes of a `rooms3d` match that its players read."""

    house: House
    route: Route


Plan = Callable[[Match, np.random.Generator], Iterator[Act]]
"""Function that returns a player's acts from the start of a match."""


def _make_planner(plan: Plan) -> Callable[[Match, int], Script]:
    """Return a factory of players that follow a plan, three acts per turn."""

    def make(game: Match, seed: int) -> Script:
        acts: Iterator[Act] | None = None

        def act(view: View) -> str:
            nonlocal acts
            acts = acts or plan(game, np.random.default_rng([seed, 1]))
            return format_acts([one for _, one in zip(range(MAX_ACTS), acts, strict=False)])

        return act

    return make


def _plan_to_form(game: Match, rng: np.random.Generator) -> Iterator[Act]:
    """Return the acts of a player that goes to a random thing of the wanted form, whatever its colour."""
    *stations, last = game.route.stations
    wanted = game.house.things[last].kind
    target = pick(rng, [n for n, thing in enumerate(game.house.things) if thing.kind == wanted])
    return iter(expert_route(game.house, game.route.poses[0], (*stations, target)).acts)


def _plan_blind(game: Match, rng: np.random.Generator) -> Iterator[Act]:
    """Return the acts of a player that ignores the pictures: it goes a typical distance and stops."""
    return iter([*[Act("go", LENGTHS[-1])] * 4, Act(STOP)])


PLAYERS: Mapping[str, Callable[[Match, int], Script]] = {
    "noop": _make_planner(lambda game, rng: repeat(ACTS[3])),
    "random": _make_planner(lambda game, rng: (pick(rng, ACTS) for _ in repeat(None))),
    "oracle": _make_planner(lambda game, rng: iter(game.route.acts)),
    "blind": _make_planner(_plan_blind),
    "form": _make_planner(_plan_to_form),
}
"""`form` is a flawed demonstrator: it sees forms but no colours, and two things have the wanted form."""
