"""Scripted players of the game `rooms`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np

from games.contracts import View
from simulators.base import Script, silent
from simulators.vision.drawing import COLOURS, pick
from simulators.vision.furniture import DEPTH, WIDTH, Places, Task
from simulators.vision.layouts import write_letters

DONE = "done"
ALIKE: Sequence[tuple[str, str]] = (("red", "purple"), ("blue", "cyan"), ("green", "yellow"))
"""Colours that `weak` cannot tell from each other."""


class Match(Protocol):
    """Attributes of a `rooms` match that its players read."""

    task: Task
    places: Places


See = Callable[[Task, np.random.Generator], Sequence[str]]
"""Function that returns the walls' colours as a player sees them, in the order of `SIDES`."""


def _make_furnisher(see: See) -> Callable[[Match, int], Script]:
    """Return a factory of players that solve the task for the wall colours that they see, and then say `done`."""

    def make(game: Match, seed: int) -> Script:
        rng = np.random.default_rng([seed, 1])

        def act(view: View) -> str:
            return (
                DONE if view.public["layouts"] else _format_act(game.task, game.task.arrange(rng, see(game.task, rng)))
            )

        return act

    return make


def _make_reviser(game: Match, seed: int) -> Script:
    """Return a player that reads the walls again each turn, as `weak` does, and writes layouts until one fits."""
    rng = np.random.default_rng([seed, 1])

    def act(view: View) -> str:
        walls = _see_weakly(game.task, rng)
        if game.places and game.task._replace(walls=tuple(walls)).is_solved_by(game.places):
            return DONE
        return _format_act(game.task, game.task.arrange(rng, walls))

    return act


def format_layout(places: Places) -> str:
    """Return a layout as JSON."""
    return json.dumps({name: [*place] for name, place in places.items()})


def _format_act(task: Task, places: Places) -> str:
    """Return a layout in the game's format: letters if the task's step is more than 1, else JSON."""
    return format_layout(places) if task.step == 1 else write_letters(task, places)


def _see_weakly(task: Task, rng: np.random.Generator) -> Sequence[str]:
    """Return the walls' colours. If two walls' colours look alike, they are swapped half of the time."""
    swapped = {colour: lookalike for pair in ALIKE if rng.integers(2) for colour, lookalike in (pair, pair[::-1])}
    swapped_walls = [wall for wall in task.walls if swapped.get(wall) in task.walls]
    return [swapped[wall] if wall in swapped_walls else wall for wall in task.walls]


def _guess_walls(task: Task, rng: np.random.Generator) -> Sequence[str]:
    """Return guessed wall colours: the two that wishes name are those of the top and the bottom wall."""
    named = [wish.other for wish in task.wishes if wish.kind == "at"]
    others = [colour for colour in COLOURS if colour not in named]
    return [others[0], named[0], others[1], named[1]]


def _make_blind(game: Match, seed: int) -> Script:
    """Return a player that ignores pictures: it solves the task for guessed walls, as if there were no pillar."""
    rng = np.random.default_rng([seed, 1])
    outside = (WIDTH, DEPTH)

    def act(view: View) -> str:
        task = game.task._replace(pillar=outside)
        return DONE if view.public["layouts"] else _format_act(task, task.arrange(rng, _guess_walls(task, rng)))

    return act


def _make_random(game: Match, seed: int) -> Script:
    """Return a player that places things anywhere in the room until it is done."""
    rng = np.random.default_rng([seed, 1])

    def act(view: View) -> str:
        if view.public["layouts"] and rng.integers(2):
            return DONE
        sizes = view.public["things"].items()
        return _format_act(
            game.task,
            {name: (pick(rng, range(WIDTH - w + 1)), pick(rng, range(DEPTH - d + 1))) for name, (w, d) in sizes},
        )

    return act


PLAYERS: Mapping[str, Callable[[Match, int], Script]] = {
    "noop": silent,
    "random": _make_random,
    "oracle": _make_furnisher(lambda task, rng: task.walls),
    "blind": _make_blind,
    "weak": _make_furnisher(_see_weakly),
    "reviser": _make_reviser,
}
"""Flawed demonstrators: `weak` confuses red and purple, blue and cyan, green and yellow half of the time; `reviser`
does so again in each turn, and writes layouts until one seems to fit."""
