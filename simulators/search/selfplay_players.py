"""Scripted players of search self-play: random, reading and oracle proposers with the solvers of `search`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import numpy as np

from games.contracts import View
from simulators.base import Script, silent
from simulators.search.acts import write_answer, write_call, write_question
from simulators.search.checker import Requirements, list_possible_programs
from simulators.search.library import Library
from simulators.search.pages import Notes
from simulators.search.players import PLAYERS as SOLVERS
from simulators.search.players import find_answer, write_backward_query
from simulators.search.questions import Question, draw_question
from simulators.search.relations import RELATIONS
from simulators.search.session import Session

PROPOSER, READER = "proposer", "reader"
PlayerFactory = Callable[[Any, int], Script]


class Match(Protocol):
    """Attributes of a self-play match that the scripted proposers use."""

    terse: bool
    hops: tuple[int, int]
    library: Library
    example: Question
    requirements: Requirements

    @property
    def session(self) -> Session: ...


def _make_random(game: Match, seed: int) -> Script:
    """Return a proposer that writes a random question about the world without reading any page."""
    rng = np.random.default_rng([seed, 1])  # independent of the match, which may have the same seed

    def act(view: View) -> str:
        assert game.library.world is not None, "a proposer needs a world of its own"
        program = draw_question(game.library.world, rng, ["chain"], game.hops).program
        return write_question(program, game.terse) if program else ""

    return act


def _make_oracle(game: Match, seed: int) -> Script:
    """Return a proposer that knows the match's example question, reads its evidence pages and asks it."""

    def act(view: View) -> str:
        session, example = game.session, game.example
        for page in sorted(example.evidence - set(session.read)):
            return write_call("open" if page in session.found else "search", page, game.terse)
        return write_question(example.program, game.terse) if example.program else ""

    return act


def _make_reader(game: Match, seed: int) -> Script:
    """Return a proposer that reads about the given answer and things that name it, until a chain leads to it.

    It prefers a chain without backward steps. If its calls run out, it asks any valid chain found, or writes nothing.
    """

    def act(view: View) -> str:
        session = game.session
        programs = list_possible_programs(session, game.requirements)
        if programs and "^" not in str(programs[0]):
            return write_question(programs[0], game.terse)
        unread = [title for title in session.found if title not in session.read]
        if unread and session.remaining_calls.get("opens", 0) > 0:
            return write_call("open", unread[0], game.terse)
        query = next((query for query in _list_queries(game) if query not in session.queries), None)
        if query and session.remaining_calls["searches"] > 0:
            return write_call("search", query, game.terse)
        return write_question(programs[0], game.terse) if programs else ""

    return act


def _list_queries(game: Match) -> Iterator[str]:
    """Yield queries for the given answer and for pages that name it, then the same for every thing read about."""
    notes = Notes.of(game.session.texts)
    for name in dict.fromkeys([game.requirements.answer, *notes.facts]):
        yield name
        yield from (
            write_backward_query(name, each, game.terse)
            for each in RELATIONS
            if RELATIONS[each].target == notes.kind(name)
        )


def _make_player(make_proposer: PlayerFactory, make_solver: PlayerFactory) -> PlayerFactory:
    """Return a factory of players of all seats from those of a proposer and a solver.

    At the reader's seat they answer from the pages shown.
    """

    def make(game: Match, seed: int) -> Script:
        propose, solve = make_proposer(game, seed), make_solver(game, seed)

        def act(view: View) -> str:
            if view.seat == READER:
                pages = view.private["pages"]
                return write_answer(find_answer(view.private["question"], pages, game.terse), game.terse)
            return propose(view) if view.seat == PROPOSER else solve(view)

        return act

    return make


PLAYERS: Mapping[str, PlayerFactory] = {
    "noop": silent,
    "random": _make_player(_make_random, SOLVERS["random"]),
    "oracle": _make_player(_make_oracle, SOLVERS["oracle"]),
    "reader": _make_player(_make_reader, SOLVERS["reader"]),
    "closed_book": _make_player(_make_reader, SOLVERS["closed_book"]),
}
