"""Grounding lessons of the game `zoom`, by kind.

`attribute`: the overview after the word `colour` or `form`; labels are the objects' colours or forms, or `none`.
`glyph`: digits at full size after the word `read`; labels are the digits, with points as words, or `none`.
`find`: the overview after `find red any` or `find any circle`; each matching cell's label is its name, the others' is
`none`, and the answer is a matching cell, or with points one at its middle.
`words`: each cell's overview and middle; labels are the words of `red circle is in` and `digit is seven`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np

from games.abilities import GroundingLesson, Labels
from games.png import Album, Pixels
from simulators.vision.drawing import DIGITS, draw_ground
from simulators.vision.scenes import NONE, TILE, Scene, Thing, crop_middle, paint, show_overview
from simulators.vision.zoom_acts import LookGame, look_at

EMPTY = 0.2
"""Share of places without a digit on a sheet of digits."""
NOTHING = "nothing"


class SceneGame(LookGame, Protocol):
    """Attributes of a `zoom` game that lessons use to draw scenes of its split."""

    def draw_scene(self, rng: np.random.Generator) -> Scene: ...


Words = tuple[str, ...]


def draw_lesson(game: SceneGame, rng: np.random.Generator, kind: str) -> GroundingLesson:
    """Draw a lesson of a kind in `KINDS` about a scene of the game."""
    scene = game.draw_scene(rng)
    return LESSONS[kind](game, scene, paint(scene, rng), rng)


def _draw_attribute(game: LookGame, scene: Scene, pixels: Pixels, rng: np.random.Generator) -> GroundingLesson:
    field = "colour" if rng.integers(2) else "form"
    words = [(_read_value(thing, field),) for thing in scene.things]
    return _make_lesson(game, [field, *show_overview(pixels, game.names, game.layout == "tiles")], words)


def _draw_glyph(game: LookGame, scene: Scene, pixels: Pixels, rng: np.random.Generator) -> GroundingLesson:
    is_empty = rng.random(len(scene.digits)) < EMPTY
    tiles = [
        draw_ground(rng, TILE, TILE) if empty else crop_middle(pixels, cell)
        for cell, empty in enumerate(is_empty.tolist())
    ]
    names = DIGITS if game.act == "point" else "0123456789"
    words = [(NONE if empty else names[digit],) for empty, digit in zip(is_empty, scene.digits, strict=True)]
    return _make_lesson(game, ["read", *(tiles if game.layout == "tiles" else [_join_pictures(tiles)])], words)


def _draw_find(game: LookGame, scene: Scene, pixels: Pixels, rng: np.random.Generator) -> GroundingLesson:
    things = [thing for thing in scene.things if thing]
    field = "colour" if rng.integers(2) else "form"
    value = _read_value(things[int(rng.integers(len(things)))], field)
    fits = [_read_value(thing, field) == value for thing in scene.things]
    words = [(name if fit else NONE,) for name, fit in zip(game.names, fits, strict=True)]
    text = f"find {value} any" if field == "colour" else f"find any {value}"
    answer = str(rng.choice([name for name, fit in zip(game.names, fits, strict=True) if fit]))
    answer = look_at(game, game.names.index(answer)) if game.act == "point" else answer
    return _make_lesson(game, [text, *show_overview(pixels, game.names, game.layout == "tiles")], words, answer)


def _draw_words(game: LookGame, scene: Scene, pixels: Pixels, rng: np.random.Generator) -> GroundingLesson:
    overview = show_overview(pixels, game.names, game.layout == "tiles")
    things = [(*(thing or (NOTHING, NOTHING)), "is", "in") for thing in scene.things]
    digits = [("digit", "is", DIGITS[digit]) for digit in scene.digits]
    middles = [crop_middle(pixels, cell) for cell in range(len(digits))]
    if game.layout == "tiles":
        return _make_lesson(game, [*overview, *middles], [*things, *digits])
    return _make_lesson(game, [*overview, _join_pictures(middles)], [*things, *digits])


LESSONS: Mapping[str, Callable[[LookGame, Scene, Pixels, np.random.Generator], GroundingLesson]] = {
    "attribute": _draw_attribute, "glyph": _draw_glyph, "find": _draw_find, "words": _draw_words,
}  # fmt: skip
KINDS = tuple(LESSONS)


def _read_value(thing: Thing | None, field: str) -> str:
    return str(getattr(thing, field)) if thing else NONE


def _join_pictures(tiles: Sequence[Pixels]) -> Pixels:
    """Return square pictures of equal size as one picture, row by row."""
    side = round(len(tiles) ** 0.5)
    return np.concatenate([np.concatenate(tiles[row * side : (row + 1) * side], axis=1) for row in range(side)])


def _make_lesson(
    game: LookGame, content: Sequence[str | Pixels], words: Sequence[Words], answer: str = ""
) -> GroundingLesson:
    """Return a lesson of these texts and pictures. `words` labels the cells: one per tile, or a grid per picture."""
    album, side = Album(), round(len(game.names) ** 0.5)
    parts = tuple(part if isinstance(part, str) else album.add(part) for part in content)
    size = 1 if game.layout == "tiles" else side
    grids = [words[start : start + size**2] for start in range(0, len(words), size**2)]
    labels: tuple[Labels, ...] = tuple(
        tuple(tuple(grid[row * size : (row + 1) * size]) for row in range(size)) for grid in grids
    )
    return GroundingLesson(parts, album.pictures, labels, answer)
