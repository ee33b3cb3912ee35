"""Scripted players of the game `pages`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np

from games.contracts import View
from simulators.base import Script, silent
from simulators.vision.boards import Board
from simulators.vision.boxes import SCALE
from simulators.vision.drawing import pick
from simulators.vision.slides import Deck, Question, Slide


class Match(Protocol):
    """Attributes of a `pages` match that its players read."""

    deck: Deck
    question: Question
    found: list[Slide | Board]
    looks: int


def guess(values: Sequence[int]) -> str:
    """Return the act that answers the middle one of the possible values."""
    return f"answer {values[len(values) // 2]}"


def _make_reader(is_hasty: Callable[[np.random.Generator], bool]) -> Callable[[Match, int], Script]:
    """Return a factory of players that search for the slide, look at the value of the label, and answer with it.

    Hasty players leave out the year, and may confuse the object with another one of its colour.
    """

    def make(game: Match, seed: int) -> Script:
        rng = np.random.default_rng([seed, 2])
        hasty, seen_row = is_hasty(rng), 0

        def act(view: View) -> str:
            nonlocal seen_row
            question = game.question
            if not game.found:
                words = (question.slide.firm, question.slide.topic, "" if hasty else str(question.slide.year))
                return f"search {' '.join(filter(None, words))}"
            slide = game.found[-1]
            if not game.looks:
                row = slide.labels.index(question.label)
                seen_row = pick(rng, slide.rivals(row)) if hasty else row
                return slide.write_zoom(seen_row)
            return f"answer {slide.values[seen_row]}"

        return act

    return make


def _make_blind(game: Match, seed: int) -> Script:
    """Return a player that only reads texts: it searches for the slide, and then guesses the number."""
    return lambda view: guess(game.deck.values) if view.public["found"] else f"search {view.public['question'][:199]}"


def _make_random(game: Match, seed: int) -> Script:
    """Return a player that searches for a word of the question, looks anywhere, and answers with a random number."""
    rng = np.random.default_rng([seed, 1])

    def act(view: View) -> str:
        if not view.public["found"]:
            return f"search {pick(rng, view.public['question'].split()[5:])}"
        if view.public["turns_left"] > 1 and rng.integers(2):
            left, right = sorted(rng.choice(SCALE, 2, replace=False).tolist())
            top, bottom = sorted(rng.choice(SCALE, 2, replace=False).tolist())
            return f"bbox {left} {top} {right} {bottom}"
        return f"answer {pick(rng, game.deck.values)}"

    return act


PLAYERS: Mapping[str, Callable[[Match, int], Script]] = {
    "noop": silent,
    "random": _make_random,
    "oracle": _make_reader(lambda rng: False),
    "blind": _make_blind,
    "hasty": _make_reader(lambda rng: True),
    "moody": _make_reader(lambda rng: bool(rng.integers(2))),
}
"""`hasty` is a flawed demonstrator that looks at the first slide of a firm and topic; with printed slides it is right
half of the time. `moody` is hasty in half of its matches, and the oracle in the others."""
