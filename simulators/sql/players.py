"""Scripted players for all three seats: `oracle`, `flawed` (right about half the time), `lister`, `random`, `noop`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np

from games.contracts import View
from simulators.base import Script, silent
from simulators.sql.acts import write_names, write_sql
from simulators.sql.questions import Question, draw_question
from simulators.sql.schemas import World

SLIPS = 0.5
"""Probability that the flawed writer's solution is the true query with one mistake."""
OMITS, ADDS, MISJUDGES = 0.2, 0.25, 0.25
"""Probabilities that the flawed grounder omits a name, that it adds one, and that the flawed judge is wrong."""


class Match(Protocol):
    """Attributes of a text-to-SQL match that scripted players read."""

    question: Question
    linked_names: frozenset[str]
    terse: bool

    @property
    def world(self) -> World: ...
    @property
    def is_right(self) -> bool: ...
    @property
    def turns_left(self) -> int: ...


def _make_random(game: Match, seed: int) -> Script:
    """Return a player that answers another random question of the same level and database, and judges at random."""
    rng = np.random.default_rng([seed, 1])  # independent of the match, which may have the same seed

    def act(view: View) -> str:
        other = draw_question(game.world, game.question.level, rng)
        if _is_grounder(view):
            return write_names(other.names, game.terse)
        return _write_verdict(rng.random() < 0.5) if view.seat == "judge" else write_sql(other.sql, game.terse, True)

    return act


def _make_oracle(game: Match, seed: int) -> Script:
    """Return a player that names the true query's tables and columns, writes the query at once, and judges correctly.

    If the grounder has omitted a name of the true query, the writer writes a wrong query.
    """

    def act(view: View) -> str:
        if _is_grounder(view):
            return write_names(game.question.names, game.terse)
        if view.seat == "judge":
            return _write_verdict(game.is_right)
        return write_sql(_choose_query(game), game.terse, True)

    return act


def _make_lister(game: Match, seed: int) -> Script:
    """Return a grounder that names the whole schema; at the other seats it plays like the oracle."""
    oracle = _make_oracle(game, seed)
    return lambda view: write_names(game.world.schema.names(), game.terse) if _is_grounder(view) else oracle(view)


def _is_grounder(view: View) -> bool:
    return view.seat == "grounder"


def _make_flawed(game: Match, seed: int) -> Script:
    """Return a player that is right about half of the time, as training data for imitation.

    The writer gives its solution at once, after running it as a query, or after running a query that fails. The
    grounder omits or adds a name in just under half of the matches. The judge is right in three matches of four.
    """
    rng = np.random.default_rng([seed, 1])
    start = ("solve", "check", "fail")[int(rng.integers(3))]
    is_wrong = bool(rng.random() < SLIPS)

    def act(view: View) -> str:
        nonlocal start
        if _is_grounder(view):
            return write_names(_draw_flawed_names(game, rng), game.terse)
        if view.seat == "judge":
            return _write_verdict(game.is_right != (rng.random() < MISJUDGES))
        question = game.question
        sql = question.wrong[seed % len(question.wrong)] if is_wrong else _choose_query(game)
        if start == "solve" or game.turns_left == 1:
            return write_sql(sql, game.terse, True)
        if start == "fail" and question.failing:
            sql = str(rng.choice(question.failing))
        start = "solve"
        return write_sql(sql, game.terse, False)

    return act


def _choose_query(game: Match) -> str:
    """Return the true query, or a wrong one if the writer does not see all of its names."""
    return game.question.sql if game.linked_names.issuperset(game.question.names) else game.question.wrong[0]


def _draw_flawed_names(game: Match, rng: np.random.Generator) -> tuple[str, ...]:
    names, draw = game.question.names, rng.random()
    columns = [name for name in names if "." in name]
    if draw < OMITS:
        columns.pop(int(rng.integers(len(columns))))
    others = [name for name in game.world.schema.names() if "." in name and name not in names]
    if OMITS <= draw < OMITS + ADDS and others:
        columns.append(str(rng.choice(others)))
    return (*columns, *(name for name in names if "." not in name))


def _write_verdict(is_right: bool) -> str:
    return "yes" if is_right else "no"


PLAYERS: Mapping[str, Callable[[Match, int], Script]] = {
    "noop": silent,
    "random": _make_random,
    "oracle": _make_oracle,
    "lister": _make_lister,
    "flawed": _make_flawed,
}
