"""Grounding lessons of the game `rooms`, by kind. Each prompt is a text and the picture of an empty room.

`walls`: the text is `colour`. The picture is labelled by a 3 x 3 grid: the middle cell of each side has its wall's
colour, the others have `none`.
`wall`: the text is, for example, `where red`. The cell at that wall has the label `target`, the others have `none`, and
the answer is `left`, `top`, `right` or `bottom`.
`layout`: the text gives the sizes and wishes of the first one to three things, in the format of the fact `brief`. The
answer is a layout of these things in letters that meets the wishes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from games.abilities import GroundingLesson
from games.png import Album
from simulators.vision.drawing import pick
from simulators.vision.furniture import SIDES, Task
from simulators.vision.layouts import STEP, describe_briefly, draw_layout, write_letters

KINDS = ("walls", "wall", "layout")
MAX_THINGS = 3
"""Largest number of things in a lesson `layout`."""
CELLS = {"left": (1, 0), "top": (0, 1), "right": (1, 2), "bottom": (2, 1)}
"""Row and column of each side's middle in a grid of 3 x 3."""


class RoomGame(Protocol):
    """Attributes of a `rooms` game that lessons use to draw tasks of its split."""

    def draw_task(self, rng: np.random.Generator) -> Task: ...


def draw_lesson(game: RoomGame, rng: np.random.Generator, kind: str) -> GroundingLesson:
    """Draw a lesson of a kind in `KINDS`."""
    task, album = game.draw_task(rng), Album()
    if kind == "layout":
        return _draw_layout(task, album, rng)
    side = pick(rng, SIDES)
    wall = task.walls[SIDES.index(side)]
    words: Mapping[str, str] = dict(zip(SIDES, task.walls, strict=True)) if kind == "walls" else {side: "target"}
    cells = {CELLS[name]: word for name, word in words.items()}
    labels = tuple(tuple((cells.get((row, column), "none"),) for column in range(3)) for row in range(3))
    text, answer = ("colour", "") if kind == "walls" else (f"where {wall}", side)
    picture = album.add(draw_layout(task, {}, int(rng.integers(2**31))))
    return GroundingLesson((text, picture), album.pictures, (labels,), answer)


def _draw_layout(task: Task, album: Album, rng: np.random.Generator) -> GroundingLesson:
    sizes = task.sizes[: 1 + int(rng.integers(min(MAX_THINGS, len(task.sizes))))]
    names = {name for name, _ in sizes}
    wishes = tuple(wish for wish in task.wishes if wish.thing in names)
    subtask = task._replace(sizes=sizes, wishes=wishes, step=STEP)
    picture = album.add(draw_layout(subtask, {}, int(rng.integers(2**31))))
    answer = write_letters(subtask, subtask.arrange(rng, subtask.walls))
    return GroundingLesson((describe_briefly(subtask), picture), album.pictures, ((((),),),), answer)
