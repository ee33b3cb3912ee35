"""Scripted planners (random, step-by-step reading, best for its cost, oracle) with a scripted reader."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from games.contracts import View
from simulators.base import Answer
from simulators.search.acts import perform, read_act, write_answer, write_call
from simulators.search.base import LibraryGame
from simulators.search.players import answer_from, next_call, read_asked
from simulators.search.scoring import exact

READER = "reader"
Plan = Callable[[Any, int], Callable[[], str]]
"""Factory of a planner, a function that returns its next act, from the match's game and a seed."""


def effort(game: LibraryGame) -> tuple[int, bool]:
    """Return how many calls the player `reader` would make on this deal, and True if its answer would be right."""
    work = game.session()
    program = read_asked(game.question.text, game.terse)
    while program and (call := next_call(program, work, game.terse)):
        act = read_act(write_call(*call, game.terse), game.terse)
        before = work.calls
        if act is None or not perform(act, work) or work.calls == before:
            break
    return work.calls, exact(answer_from(game.question.text, work.texts, game.terse), game.question.answers)


def at_random(game: LibraryGame, seed: int) -> bool:
    """Reset the game to this seed, let the random planner search, and return True if the reader is then right."""
    game.reset(seed=seed)
    plan = _random_plan(game, seed)
    while (act := plan()) != _stop(game):
        done = read_act(act, game.terse)
        if done is not None:
            perform(done, game.work)
    return exact(answer_from(game.question.text, game.work.texts, game.terse), game.question.answers)


def _stop(game: LibraryGame) -> str:
    return "." if game.terse else "STOP"


def _random_plan(game: LibraryGame, seed: int) -> Callable[[], str]:
    """Return a planner that searches up to three random names seen so far, opens nothing, and stops."""
    rng = np.random.default_rng([seed, 1])  # other chance than the match's, where that has the same seed
    left = int(rng.integers(4))

    def act() -> str:
        nonlocal left
        names = game.names_read(game.work, game.question.text)
        left -= 1
        if left < 0 or not names or game.work.left["searches"] <= 0:
            return _stop(game)
        return write_call("search", names[int(rng.integers(len(names)))], game.terse)

    return act


def _reading_plan(game: LibraryGame, seed: int) -> Callable[[], str]:
    """Return a planner that searches step by step until the reader knows the answer, at any cost."""

    def act() -> str:
        program = read_asked(game.question.text, game.terse)
        call = next_call(program, game.work, game.terse) if program else None
        return write_call(*call, game.terse) if call else _stop(game)

    return act


def _oracle_plan(game: LibraryGame, seed: int) -> Callable[[], str]:
    """Return a planner that knows which pages are evidence, reads them by title, and stops."""

    def act() -> str:
        for page in sorted(game.question.evidence - set(game.work.read)):
            return write_call("open" if page in game.work.found else "search", page, game.terse)
        return _stop(game)

    return act


def _best_plan(game: LibraryGame, seed: int) -> Callable[[], str]:
    """Return a planner that searches like `reader` if that pays, and otherwise stops at once.

    It pays if the reader then answers right, could not without pages, and the calls cost less than 1 together.
    """
    reading = _reading_plan(game, seed)

    def act() -> str:
        calls, right = effort(game)
        known = exact(answer_from(game.question.text, [], game.terse), game.question.answers)
        return reading() if right and not known and game.cost * calls < 1.0 else _stop(game)

    return act


def _player(plan: Plan) -> Callable[[Any, int], Answer]:
    """Return a player of both seats: the planner follows `plan`, the reader answers from the planner's pages."""

    def make(game: LibraryGame, seed: int) -> Answer:
        plans = plan(game, seed)

        def act(seen: View) -> str:
            if seen.seat == READER:
                return write_answer(answer_from(game.question.text, seen.private["pages"], game.terse), game.terse)
            return plans()

        return act

    return make


PLAYERS: Mapping[str, Callable[[Any, int], Answer]] = {
    "noop": _player(lambda game, seed: lambda: ""), "random": _player(_random_plan), "reader": _player(_reading_plan),
    "best": _player(_best_plan), "oracle": _player(_oracle_plan),
}  # fmt: skip
