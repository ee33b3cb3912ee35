"""Scripted planners (random, step-by-step reading, best for its cost, oracle) with a scripted reader."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from games.contracts import View
from simulators.base import Script
from simulators.search.acts import perform, read_act, write_answer, write_call
from simulators.search.players import Match as SearchMatch
from simulators.search.players import choose_next_call, find_answer, parse_question
from simulators.search.scoring import is_exact
from simulators.search.session import Session

READER = "reader"
Plan = Callable[[Any, int], Callable[[], str]]
"""Factory that takes the match's game and a seed, and returns a planner: a function that returns its next act."""


class Match(SearchMatch, Protocol):
    """Attributes of a planner's match that the scripted players use."""

    cost: float

    def reset(self, seed: int | None = None) -> None: ...
    def make_session(self) -> Session: ...


def measure_effort(game: Match) -> tuple[int, bool]:
    """Return the number of calls of the player `reader` on this deal, and whether its answer would be right."""
    session = game.make_session()
    program = parse_question(game.question.text, game.terse)
    while program and (call := choose_next_call(program, session, game.terse)):
        act = read_act(write_call(*call, game.terse), game.terse)
        before = session.calls
        if act is None or not perform(act, session) or session.calls == before:
            break
    return session.calls, is_exact(find_answer(game.question.text, session.texts, game.terse), game.question.answers)


def succeeds_at_random(game: Match, seed: int) -> bool:
    """Reset the game to this seed, let the random planner search, and return True if the reader is then right."""
    game.reset(seed=seed)
    plan = _make_random_plan(game, seed)
    while (act := plan()) != _write_stop(game):
        parsed = read_act(act, game.terse)
        if parsed is not None:
            perform(parsed, game.session)
    return is_exact(find_answer(game.question.text, game.session.texts, game.terse), game.question.answers)


def _write_stop(game: Match) -> str:
    return "." if game.terse else "STOP"


def _make_random_plan(game: Match, seed: int) -> Callable[[], str]:
    """Return a planner that searches up to three random names seen so far, opens nothing, and stops."""
    rng = np.random.default_rng([seed, 1])  # independent of the match, which may have the same seed
    left = int(rng.integers(4))

    def act() -> str:
        nonlocal left
        names = game.list_names_read(game.session, game.question.text)
        left -= 1
        if left < 0 or not names or game.session.remaining_calls["searches"] <= 0:
            return _write_stop(game)
        return write_call("search", names[int(rng.integers(len(names)))], game.terse)

    return act


def _make_reading_plan(game: Match, seed: int) -> Callable[[], str]:
    """Return a planner that searches step by step until the reader knows the answer, at any cost."""

    def act() -> str:
        program = parse_question(game.question.text, game.terse)
        call = choose_next_call(program, game.session, game.terse) if program else None
        return write_call(*call, game.terse) if call else _write_stop(game)

    return act


def _make_oracle_plan(game: Match, seed: int) -> Callable[[], str]:
    """Return a planner that knows which pages are evidence, reads them by title, and stops."""

    def act() -> str:
        for page in sorted(game.question.evidence - set(game.session.read)):
            return write_call("open" if page in game.session.found else "search", page, game.terse)
        return _write_stop(game)

    return act


def _make_best_plan(game: Match, seed: int) -> Callable[[], str]:
    """Return a planner that searches like `reader` if that pays, and otherwise stops at once.

    It pays if the reader then answers right, could not without pages, and the calls cost less than 1 together.
    """
    reading = _make_reading_plan(game, seed)

    def act() -> str:
        calls, right = measure_effort(game)
        is_known = is_exact(find_answer(game.question.text, [], game.terse), game.question.answers)
        return reading() if right and not is_known and game.cost * calls < 1.0 else _write_stop(game)

    return act


def _make_player(plan: Plan) -> Callable[[Any, int], Script]:
    """Return a player of both seats: the planner follows `plan`, the reader answers from the planner's pages."""

    def make(game: Match, seed: int) -> Script:
        next_act = plan(game, seed)

        def act(view: View) -> str:
            if view.seat == READER:
                return write_answer(find_answer(game.question.text, view.private["pages"], game.terse), game.terse)
            return next_act()

        return act

    return make


PLAYERS: Mapping[str, Callable[[Any, int], Script]] = {
    "noop": _make_player(lambda game, seed: lambda: ""), "random": _make_player(_make_random_plan),
    "reader": _make_player(_make_reading_plan), "best": _make_player(_make_best_plan),
    "oracle": _make_player(_make_oracle_plan),
}  # fmt: skip
