"""Lessons of `reach`, by kind.

`colours`: the table after the word `colours`; labels of a 6 x 6 grid are the colours of blocks in it, or `none`.
`completed`: a moment of an expert's match after the instruction and `completed?`; the answer is `yes` or `no`, each in
half of the lessons. It teaches a process reward model (VLA-RL).
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from games.abilities import GroundingLesson, Labels
from games.png import Album
from simulators.vision.reach_players import expert_act
from simulators.vision.reach_table import SIDE, UNIT, Layout, Table

KINDS = ("colours", "completed")
GRID = 6
LONGEST = 64
"""Maximum acts of an expert's match."""


class TableGame(Protocol):
    """A game that draws tables."""

    task: str

    def draw_layout(self, rng: np.random.Generator) -> Layout: ...


def draw_lesson(game: TableGame, rng: np.random.Generator, kind: str) -> GroundingLesson:
    """Draw a lesson of a kind in `KINDS`. Raises ValueError for another kind."""
    if kind not in KINDS:
        raise ValueError(f"there is no lesson '{kind}'; there are: {', '.join(KINDS)}")
    pushes = bool(rng.integers(2)) if game.task == "mixed" else game.task == "push"
    table = Table(game.draw_layout(rng), pushes)
    return _colours(table) if kind == "colours" else _completed(table, rng)


def _colours(table: Table) -> GroundingLesson:
    album, cell = Album(), SIDE * UNIT // GRID
    places = {(y // cell, x // cell): colour for (x, y), colour in zip(table.blocks, table.layout.colours, strict=True)}
    labels: Labels = tuple(tuple((places.get((row, column), "none"),) for column in range(GRID)) for row in range(GRID))
    return GroundingLesson(("colours", album.add(table.paint())), album.pictures, (labels,))


def _completed(table: Table, rng: np.random.Generator) -> GroundingLesson:
    album, wanted = Album(), table.layout.wanted
    pictures = [table.paint()]
    while not table.is_done(wanted) and len(pictures) < LONGEST:
        table.move(*expert_act(table, wanted))
        pictures.append(table.paint())
    is_done = bool(rng.integers(2))
    shown = pictures[-1] if is_done else pictures[int(rng.integers(len(pictures) - 1))]
    text = f"{instruction(table.layout, table.pushes)}, completed?"
    return GroundingLesson((text, album.add(shown)), album.pictures, ((((),),),), "yes" if is_done else "no")


def instruction(layout: Layout, pushes: bool) -> str:
    """Return what the viewer is told to do."""
    block = f"the {layout.colours[layout.wanted]} block"
    return f"push {block} into the ring" if pushes else f"reach {block}"
