"""Scripted players of the search games: random, closed-book, reading, oracle."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from games.contracts import View
from simulators.base import Script, silent
from simulators.search.acts import write_answer, write_call
from simulators.search.library import Library
from simulators.search.pages import Notes
from simulators.search.programs import Chain, Program, evaluate, parse_terse
from simulators.search.questions import NONE, Question, find_question, read_question
from simulators.search.relations import DIGITS, NUMBERS, RELATIONS
from simulators.search.session import Session


class Match(Protocol):
    """Attributes of a search match that the scripted players use."""

    terse: bool
    turns: int
    library: Library

    @property
    def question(self) -> Question: ...
    @property
    def session(self) -> Session: ...
    def list_candidates(self) -> Sequence[str]: ...
    def list_names_read(self, session: Session, question: str) -> Sequence[str]: ...


def parse_question(text: str, terse: bool) -> Program | None:
    """Parse a question (in codes if `terse`, else in standard words) to its program. Returns None if that fails."""
    if not terse:
        return read_question(text)
    try:
        return parse_terse(text)
    except ValueError:
        return None


def find_answer(text: str, texts: list[str], terse: bool) -> str:
    """Return the answer that these texts give to a question, or "none" if they give none or several."""
    return _evaluate(parse_question(text, terse), texts)


def _evaluate(program: Program | None, texts: list[str]) -> str:
    found = evaluate(program, Notes.of(texts)) if program else frozenset()
    return next(iter(found)) if len(found) == 1 else NONE


def choose_next_call(program: Program, session: Session, terse: bool) -> tuple[str, str] | None:
    """Return the scripted reader's next call as ("search" or "open", query or title), or None.

    None means that the answer is known or that no call within the budget would help.
    """
    notes = Notes.of(session.texts)
    for chain in program.chains:
        call = _find_missing_call(chain, program.number, notes, session, terse)
        if call is not None and session.remaining_calls.get({"search": "searches", "open": "opens"}[call[0]], 0) > 0:
            return call
    return None


def _find_missing_call(
    chain: Chain, number: str, notes: Notes, session: Session, terse: bool
) -> tuple[str, str] | None:
    """Return a chain's next missing call, as `choose_next_call` does; None if its end is known or out of reach."""
    names: frozenset[str] = frozenset([chain.start])
    for step in (*chain.steps, *([number] if number else [])):
        if step.startswith("^"):
            for name in sorted(names):
                query = write_backward_query(name, step[1:], terse)
                if query not in session.queries:
                    return "search", query
                if unread := _find_unread_hit(session, query):
                    return "open", unread
            names = frozenset(each for name in names for each in notes.subjects(name, step[1:]))
            continue
        for name in sorted(names):
            if terse and not notes.value(name, step):
                query = f"{name} {RELATIONS[step].code}"
                return None if query in session.queries else ("search", query)
            if name not in session.read:
                return (
                    ("open", name)
                    if name in session.found
                    else ("search", name)
                    if name not in session.queries
                    else None
                )
        names = frozenset(notes.value(name, step) for name in names) - {""}
    return None


def write_backward_query(name: str, relation: str, terse: bool) -> str:
    """Return a query for the pages of things whose `relation` has the value `name` (books whose author is X)."""
    if terse:
        return RELATIONS[relation].code + name
    return " ".join(RELATIONS[relation].sentences[0].format(s="", o=name).strip(" .").split())


def _find_unread_hit(session: Session, query: str) -> str:
    """Return the title of the first unopened page that a query finds, or "" if none or if searches show pages."""
    if session.shows_pages:
        return ""
    hits = [
        session.library.titles[hit]
        for hit in session.library.index.find(query, session.budget.results, session.retriever)
    ]
    return next((title for title in hits if title not in session.read), "")


def _make_random(game: Match, seed: int) -> Script:
    """Return a player that searches up to two random names seen so far, then gives a random candidate answer."""
    rng = np.random.default_rng([seed, 1])  # independent of the match, which may have the same seed
    calls = int(rng.integers(3))

    def act(view: View) -> str:
        names = game.list_names_read(game.session, game.question.text)
        if game.turns < calls and names and game.session.remaining_calls["searches"] > 0:
            return write_call("search", names[int(rng.integers(len(names)))], game.terse)
        candidates = game.list_candidates()
        return write_answer(candidates[int(rng.integers(len(candidates)))], game.terse)

    return act


def _make_closed_book(game: Match, seed: int) -> Script:
    """Return a player that never searches: it guesses an answer of the kind that the question asks for."""
    rng = np.random.default_rng([seed, 1])

    def act(view: View) -> str:
        candidates = _list_plausible_answers(parse_question(game.question.text, game.terse), game)
        return write_answer(candidates[int(rng.integers(len(candidates)))], game.terse)

    return act


def _list_plausible_answers(program: Program | None, game: Match) -> tuple[str, ...]:
    """Return all answers of the kind that a program asks for, or all candidates if program or world is None."""
    if program is None or game.library.world is None:
        return tuple(game.list_candidates())
    if program.form == "count":
        return ("1",)
    chain = program.chains[0]
    if not chain.steps:
        return tuple(each.start for each in program.chains)
    last = RELATIONS[chain.steps[-1].removeprefix("^")]
    kind = last.source if chain.steps[-1].startswith("^") else last.target
    if kind:
        return tuple(game.library.world.of_kind[kind])
    return (str(sum(DIGITS if game.terse else NUMBERS[chain.steps[-1]]) // 2),)


def _make_reader(game: Match, seed: int) -> Script:
    """Return a player that searches step by step along the question's program and answers from the pages read.

    If an asker words the question, the player reads those words, and answers "none" if it cannot parse them.
    """

    def act(view: View) -> str:
        question = str(view.public.get("question") or game.question.text)
        is_original = question == game.question.text
        program = parse_question(question, game.terse) if is_original else find_question(question)
        call = choose_next_call(program, game.session, game.terse) if program else None
        if call is not None:
            return write_call(*call, game.terse)
        return write_answer(_evaluate(program, game.session.texts), game.terse)

    return act


PLAYERS: Mapping[str, Callable[[Any, int], Script]] = {
    "noop": silent,
    "random": _make_random,
    "oracle": lambda game, seed: lambda view: write_answer(game.question.answer, game.terse),
    "reader": _make_reader,
    "closed_book": _make_closed_book,
}
