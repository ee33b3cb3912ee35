"""Scripted players of a workspace: oracle, flawed, random, noop."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np

from games.contracts import View
from simulators.base import Script
from simulators.workspace.apps import SHORT
from simulators.workspace.state import State
from simulators.workspace.tasks import Call

DONE = "done"


class Match(Protocol):
    """Attributes of a match that its players use."""

    terse: bool
    start: State
    solution: Sequence[Call]


def format_call(call: Call, terse: bool) -> str:
    """Return a call as text: `close_ticket(ticket=7)`, in terse mode `end(7)`."""
    if terse:
        return f"{SHORT[call.tool]}({','.join(json.dumps(value) for value in call.arguments.values())})"
    arguments = ", ".join(f"{name}={json.dumps(value)}" for name, value in call.arguments.items())
    return f"{call.tool}({arguments})"


def _make_player(acts: Callable[[Match, np.random.Generator], Iterator[str]]) -> Callable[[Match, int], Script]:
    """Return a factory of players that play these acts and then `done`."""

    def make(game: Match, seed: int) -> Script:
        plan: Iterator[str] | None = None

        def act(view: View) -> str:
            nonlocal plan
            plan = plan or acts(game, np.random.default_rng([seed, 1]))
            return next(plan, DONE)

        return act

    return make


def _play_oracle(game: Match, rng: np.random.Generator) -> Iterator[str]:
    return (format_call(call, game.terse) for call in game.solution)


def _play_flawed(game: Match, rng: np.random.Generator) -> Iterator[str]:
    """Yield the oracle's calls. Half of the time one write is left out or made on another ticket or meeting.

    Three times in ten a write is first made with an invalid argument, refused, and then repaired.
    """
    writes = [index for index, call in enumerate(game.solution) if call.is_write]
    wrong_index = int(rng.choice(writes)) if rng.random() < 0.5 else -1
    invalid_index = int(rng.choice(writes)) if rng.random() < 0.3 else -1
    for index, call in enumerate(game.solution):
        if index == invalid_index:
            yield format_call(_invalidate(call), game.terse)
        if index != wrong_index:
            yield format_call(call, game.terse)
        elif other := _misdirect(game, call, rng):
            yield format_call(other, game.terse)


def _invalidate(call: Call) -> Call:
    """Return the call with an invalid first argument: the number 0, or a text that is neither a path nor a name."""
    name, value = next(iter(call.arguments.items()))
    return Call(call.tool, {**call.arguments, name: 0 if isinstance(value, int) else "?"})


def _misdirect(game: Match, call: Call, rng: np.random.Generator) -> Call | None:
    """Return the call on another ticket or meeting; None half of the time, and if there is no other."""
    records_by_kind: Mapping[str, Mapping[int, object]] = {"ticket": game.start.tickets, "meeting": game.start.meetings}
    for name, records in records_by_kind.items():
        others = [number for number in records if number != call.arguments.get(name)]
        if name in call.arguments and others and rng.random() < 0.5:
            return Call(call.tool, {**call.arguments, name: int(rng.choice(others))})
    return None


def _make_random(game: Match, seed: int) -> Script:
    """Return a player that chooses among the listed acts at random."""
    rng = np.random.default_rng([seed, 1])
    return lambda view: str(view.legal[int(rng.integers(len(view.legal)))]) if view.legal else DONE


PLAYERS: Mapping[str, Callable[[Match, int], Script]] = {
    "noop": lambda game, seed: lambda view: DONE,
    "random": _make_random,
    "oracle": _make_player(_play_oracle),
    "flawed": _make_player(_play_flawed),
}
