"""Reference players of `pages`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np

from games.contracts import View
from simulators.base import Answer
from simulators.vision.boxes import SCALE
from simulators.vision.drawing import pick
from simulators.vision.slides import HEIGHT, VALUES, WIDTH, Question, Slide


class Played(Protocol):
    """Part of a match of `pages` that its players read."""

    question: Question
    found: list[Slide]
    looks: int


GUESS = f"answer {VALUES[len(VALUES) // 2]}"


def _reader(query: Callable[[Slide], str]) -> Callable[[Played, int], Answer]:
    """Return a factory of players that search by a query, look at the asked label's value, and answer it."""

    def make(game: Played, seed: int) -> Answer:
        def act(seen: View) -> str:
            asked = game.question
            if not game.found:
                return f"search {query(asked.slide)}"
            slide = game.found[-1]
            row = slide.labels.index(asked.label)
            if not game.looks:
                return closer(slide, row)
            return f"answer {slide.values[row]}"

        return act

    return make


def closer(slide: Slide, row: int) -> str:
    """Return the act that shows a value of a slide, a few pixels larger on each side."""
    left, top, right, bottom = slide.value_box(row)
    edges = ((left - 3, WIDTH), (top - 3, HEIGHT), (right + 3, WIDTH), (bottom + 3, HEIGHT))
    return "bbox " + " ".join(str(edge * SCALE // size) for edge, size in edges)


def _blind(game: Played, seed: int) -> Answer:
    """Return a player that reads texts alone: it finds the slide, and guesses."""
    return lambda seen: GUESS if seen.public["found"] else f"search {seen.public['question'][:199]}"


def _random(game: Played, seed: int) -> Answer:
    """Return a player that searches for words of the question and looks anywhere, then says a random number."""
    rng = np.random.default_rng([seed, 1])

    def act(seen: View) -> str:
        if not seen.public["found"]:
            return f"search {pick(rng, seen.public['question'].split()[5:])}"
        if seen.public["turns_left"] > 1 and rng.integers(2):
            left, right = sorted(rng.choice(SCALE, 2, replace=False).tolist())
            top, bottom = sorted(rng.choice(SCALE, 2, replace=False).tolist())
            return f"bbox {left} {top} {right} {bottom}"
        return f"answer {pick(rng, VALUES)}"

    return act


PLAYERS: Mapping[str, Callable[[Played, int], Answer]] = {
    "noop": lambda game, seed: lambda seen: "",
    "random": _random,
    "oracle": _reader(lambda slide: f"{slide.firm} {slide.topic} {slide.year}"),
    "blind": _blind,
    "hasty": _reader(lambda slide: f"{slide.firm} {slide.topic}"),
}
"""`hasty` is a flawed demonstrator: it leaves out the year, takes the first slide, and is right half of the time."""
