"""Grounding lessons of the game `transform`, by kind.

`attribute`, `glyph`, `find`: those of `zoom` about the undamaged picture; the answer to `find` is code that crops.
`mend`: the overview of a damaged picture after `find red circle`; the label of the yellow mark's corner is the
direction of its longer arm, the others' is `none`, and the answer is code that mends the picture, or crops the target's
cell if nothing is to be mended.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from games.abilities import GroundingLesson
from games.png import Album
from simulators.vision.damage import Damage
from simulators.vision.scenes import NAMES, NONE, Scene, mark_corner, paint, resize
from simulators.vision.transform_players import list_repairs
from simulators.vision.zoom_lessons import LESSONS

MEND = "mend"
KINDS = ("attribute", "glyph", "find", MEND)
SIDE = 3
CORNERS = ((0, 0), (SIDE - 1, 0), (SIDE - 1, SIDE - 1), (0, SIDE - 1))
"""Row and column of the corner at the top left, after each quarter turn counter-clockwise."""
ARMS = ("right", "up", "left", "down")
"""Directions of the longer arm, after each quarter turn counter-clockwise."""


@dataclass
class UndamagedScene:
    """Options of a `zoom` game that shows a scene undamaged."""

    act: str = "cell"
    bins: int = 0
    cells: int = SIDE
    names: tuple[str, ...] = tuple(NAMES[: SIDE**2])
    layout: str = "picture"


class DrawsScenes(Protocol):
    """Attributes of a `transform` game that lessons use to draw scenes of its split."""

    def draw_scene(self, rng: np.random.Generator) -> Scene: ...


def draw_lesson(game: DrawsScenes, rng: np.random.Generator, kind: str) -> GroundingLesson:
    """Draw a lesson of a kind in `KINDS` about a scene of the game."""
    scene = game.draw_scene(rng)
    pixels = mark_corner(paint(scene, rng))
    if kind != MEND:
        lesson = LESSONS[kind](UndamagedScene(), scene, pixels, rng)
        return lesson._replace(answer=f"crop {lesson.answer}") if lesson.answer else lesson
    damage, album = Damage.draw(rng), Album()
    overview = album.add(resize(damage.apply(pixels).pixels))
    answer = " ".join(list_repairs(damage)) or f"crop {NAMES[scene.target]}"
    return GroundingLesson(
        (f"find {scene.target_thing}", overview), album.pictures, (make_corner_labels(damage),), answer
    )


def make_corner_labels(damage: Damage) -> tuple[tuple[tuple[str], ...], ...]:
    """Return a 3 x 3 grid of labels: the direction of the mark's longer arm at the mark's corner, `none` elsewhere."""
    turns = damage.turned // 90
    # A mirrored picture has its mark at the top right, pointing left, before it is turned.
    corner = CORNERS[(turns - damage.flipped) % 4]
    arm = ARMS[(turns + 2 * damage.flipped) % 4]
    return tuple(tuple((arm if (row, column) == corner else NONE,) for column in range(SIDE)) for row in range(SIDE))
