"""Grounding lessons of the game `pages` with objects, by kind: those of `zoom` about boards, `query` and `figure`.

`query`: a question; the answer is the search for the slide's caption.
`figure`: a cell at full size, then `read`; the label is its digit, and the answer is the act that says it.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from games.abilities import GroundingLesson
from games.png import Album
from simulators.vision.boards import CELLS, SIDE, draw_things, place_things
from simulators.vision.drawing import pick
from simulators.vision.scenes import CELL, Scene, crop_cell, paint
from simulators.vision.slides import Deck
from simulators.vision.zoom_lessons import LESSONS
from simulators.vision.zoom_lessons import draw_lesson as draw_scene_lesson

KINDS = (*LESSONS, "query", "figure")


class SlideGame(Protocol):
    """Attributes of a `pages` game that lessons use."""

    deck: Deck


class Boards:
    """Scenes of boards, for the lessons of `zoom`."""

    names, layout = tuple(CELLS), "picture"
    act, bins, cells = "cell", 0, SIDE  # looks are written as in `zoom`

    def draw_scene(self, rng: np.random.Generator) -> Scene:
        """Draw a board's scene."""
        return place_things(rng, draw_things(rng))


def draw_lesson(game: SlideGame, rng: np.random.Generator, kind: str) -> GroundingLesson:
    """Draw a lesson of a kind in `KINDS`, with names from the game's deck."""
    if kind == "figure":
        return _draw_figure(rng)
    if kind != "query":
        return draw_scene_lesson(Boards(), rng, kind)
    slide = pick(rng, game.deck.slides)
    question = slide.question(int(rng.integers(len(slide.labels))))
    return GroundingLesson((f"{question} query",), {}, (), f"search {slide.caption}")


def _draw_figure(rng: np.random.Generator) -> GroundingLesson:
    scene, album = place_things(rng, draw_things(rng)), Album()
    cell = int(rng.integers(SIDE**2))
    digit = str(scene.digits[cell])
    image = album.add(crop_cell(paint(scene, rng), cell, CELL))
    return GroundingLesson((image, "read"), album.pictures, ((((digit,),),),), f"answer {digit}")
