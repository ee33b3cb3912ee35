"""Lessons of `rooms`, by kind.

`walls`: an empty room after the word `colour`; labels of a 3 x 3 grid are the walls' colours in the middles of the
sides, and `none` elsewhere.
`wall`: an empty room after the words `where red`; the label of the cell at that wall is `target`, the others' `none`,
and the answer is `left`, `top`, `right` or `bottom`.
`layout`: an empty room after sizes and wishes of its first one to three things, as the fact `brief` tells them; the
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
MOST = 3
"""Largest number of things in a lesson `layout`."""
CELLS = {"left": (1, 0), "top": (0, 1), "right": (1, 2), "bottom": (2, 1)}
"""Row and column of each side's middle in a grid of 3 x 3."""


class RoomGame(Protocol):
    """Part of `rooms` that draws tasks of the split."""

    def draw_task(self, rng: np.random.Generator) -> Task: ...


def draw_lesson(game: RoomGame, rng: np.random.Generator, kind: str) -> GroundingLesson:
    """Draw a lesson of a kind in `KINDS`. Raises ValueError for another kind."""
    if kind not in KINDS:
        raise ValueError(f"there is no lesson '{kind}'; there are: {', '.join(KINDS)}")
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
    sizes = task.sizes[: 1 + int(rng.integers(min(MOST, len(task.sizes))))]
    known = {name for name, _ in sizes}
    wishes = tuple(wish for wish in task.wishes if wish.thing in known)
    few = task._replace(sizes=sizes, wishes=wishes, step=STEP)
    picture = album.add(draw_layout(few, {}, int(rng.integers(2**31))))
    answer = write_letters(few, few.arrange(rng, few.walls))
    return GroundingLesson((describe_briefly(few), picture), album.pictures, ((((),),),), answer)
