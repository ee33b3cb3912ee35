"""Grounding lessons of the game `reach`, by kind.

`colours`: the word `colours` and a table. The labels of a 6 x 6 grid are the colours of the blocks, or `none`.
`completed`: the instruction, `completed?`, and a picture of an expert's match. The answer is `yes` in half of the
lessons, else `no`.
`segment`: the words `go red` and a table whose hand is on its way to some block. The answer is `yes`, in about half of
the lessons, if an expert's next act puts the hand down on the red block. It trains a process reward model (VLA-RL).
`spots`: the word `colour` and a table. The labels of a 3 x 3 grid are the colours of blocks and hand, or `none`.
`where`: the words `where red`, or `where white` for the hand, and a table. The answer is its column and row, as bins.
`way`: the words `go red` and a table whose hand is anywhere, in half of the lessons near the red block. The answer is
an expert's next act towards that block, as bins. It uses tables without pushes. Its prompts are those of `segment`, so
train different policies on the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Literal, Protocol

import numpy as np

from games.abilities import GroundingLesson, Labels
from games.png import Album
from simulators.vision.drawing import pick
from simulators.vision.reach_players import expert_act, format_act
from simulators.vision.reach_table import BLOCKS, HAND, SIDE, UNIT, Layout, Point, Table, as_coarse, as_fine

KINDS = ("colours", "completed", "segment", "spots", "where", "way")
GRID, COARSE = 6, 3
HAND_COLOUR = "white"
CLOSE = 6 * UNIT
"""Maximum distance along each axis at which a hand counts as near a block."""
MAX_ACTS = 64
"""Maximum acts of an expert's match."""


class TableGame(Protocol):
    """Attributes of a `reach` game that lessons use to draw tables of its split."""

    task: Literal["reach", "push", "mixed"]
    bins: int
    follows: bool

    def draw_layout(self, rng: np.random.Generator) -> Layout: ...


def draw_lesson(game: TableGame, rng: np.random.Generator, kind: str) -> GroundingLesson:
    """Draw a lesson of a kind in `KINDS`."""
    pushes = bool(rng.integers(2)) if game.task == "mixed" else game.task == "push"
    table = Table(game.draw_layout(rng), pushes, follows=game.follows)
    if kind in ("segment", "where", "way"):
        return {"segment": _draw_segment, "where": _draw_where, "way": _draw_way}[kind](table, rng, game.bins)
    return {"colours": _draw_colours, "completed": _draw_completed, "spots": _draw_spots}[kind](table, rng)


def _draw_colours(table: Table, rng: np.random.Generator) -> GroundingLesson:
    album, cell = Album(), SIDE * UNIT // GRID
    colour_by_cell = {
        (y // cell, x // cell): name for name, (x, y) in _locate_by_colour(table).items() if name != HAND_COLOUR
    }
    labels: Labels = tuple(
        tuple((colour_by_cell.get((row, column), "none"),) for column in range(GRID)) for row in range(GRID)
    )
    return GroundingLesson(("colours", album.add(table.paint())), album.pictures, (labels,))


def _draw_completed(table: Table, rng: np.random.Generator) -> GroundingLesson:
    album, wanted = Album(), table.layout.wanted
    pictures = [table.paint()]
    while not table.is_done(wanted) and len(pictures) < MAX_ACTS:
        table.move(*expert_act(table, wanted))
        pictures.append(table.paint())
    is_done = bool(rng.integers(2))
    picture = pictures[-1] if is_done else pictures[int(rng.integers(len(pictures) - 1))]
    text = f"{write_instruction(table.layout, table.pushes)}, completed?"
    return GroundingLesson((text, album.add(picture)), album.pictures, ((((),),),), "yes" if is_done else "no")


def _draw_segment(table: Table, rng: np.random.Generator, bins: int) -> GroundingLesson:
    wanted, is_near = table.layout.wanted, bool(rng.integers(4))
    block = wanted if rng.integers(3) else pick(rng, [other for other in range(BLOCKS) if other != wanted])
    tables = [deepcopy(table)]
    while not table.is_done(block) and len(tables) < MAX_ACTS:
        table.move(*(as_fine(as_coarse(number, bins), bins) for number in expert_act(table, block, bins)))
        tables.append(deepcopy(table))
    shown_table = tables[-2] if is_near else tables[int(rng.integers(len(tables) - 1))]
    answer = "yes" if block == wanted and shown_table is tables[-2] else "no"
    colour = table.layout.colours[wanted]
    return _make_grid_lesson(f"go {colour}", shown_table, {colour: "target"}, answer)


def _draw_spots(table: Table, rng: np.random.Generator) -> GroundingLesson:
    return _make_grid_lesson("colour", table, {name: name for name in _locate_by_colour(table)})


def _draw_where(table: Table, rng: np.random.Generator, bins: int) -> GroundingLesson:
    x, y = rng.integers(HAND, SIDE - HAND, 2).tolist()
    table.hand = (x * UNIT, y * UNIT)
    name, spot = pick(rng, [*_locate_by_colour(table).items()])
    return _make_grid_lesson(
        f"where {name}", table, {name: "target"}, " ".join(str(axis * bins // (SIDE * UNIT)) for axis in spot)
    )


def _draw_way(table: Table, rng: np.random.Generator, bins: int) -> GroundingLesson:
    table.pushes, block = False, pick(rng, range(BLOCKS))
    x, y = rng.integers(HAND * UNIT, (SIDE - HAND) * UNIT, 2).tolist()
    if rng.integers(2):
        x, y = (axis + int(rng.integers(-CLOSE, CLOSE + 1)) for axis in table.blocks[block])
    table.hand = (x, y)
    colour = table.layout.colours[block]
    return _make_grid_lesson(
        f"go {colour}",
        table,
        {HAND_COLOUR: "start", colour: "target"},
        format_act(expert_act(table, block, bins), bins),
    )


def _locate_by_colour(table: Table) -> dict[str, Point]:
    """Return the positions in the picture of the hand and the visible blocks, by colour."""
    points = {HAND_COLOUR: table.hand, **dict(zip(table.layout.colours, table.blocks, strict=True))}
    return {colour: position for colour, point in points.items() if (position := table.locate_in_picture(point))}


def _make_grid_lesson(text: str, table: Table, words: Mapping[str, str], answer: str = "") -> GroundingLesson:
    """Return a lesson with the table's picture and the labels of a 3 x 3 grid.

    `words` are the labels by colour of block or hand; cells without any of these are labelled `none`.
    """
    album, cell = Album(), SIDE * UNIT // COARSE
    word_by_cell = {
        (y // cell, x // cell): words[name] for name, (x, y) in _locate_by_colour(table).items() if name in words
    }
    labels: Labels = (((),),)
    if words:
        rows = range(COARSE)
        labels = tuple(tuple((word_by_cell.get((row, column), "none"),) for column in rows) for row in rows)
    return GroundingLesson((text, album.add(table.paint())), album.pictures, (labels,), answer)


def write_instruction(layout: Layout, pushes: bool) -> str:
    """Return the viewer's instruction, such as `reach the red block`."""
    block = f"the {layout.colours[layout.wanted]} block"
    return f"push {block} into the ring" if pushes else f"reach {block}"
