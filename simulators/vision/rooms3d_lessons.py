"""Grounding lessons of the game `rooms3d`, by kind. Each shows a view from a random place, labelled by a 3 x 3 grid.

`colours`: the view after the word `colours`; labels are the colours of things, or `none`.
`find`: the view after `find the red one`; cells with this thing say `left`, `middle` or `right`, the others `none`, and
the answer is the act that faces it (`left 45` to `right 45`, `go 75` if it is straight ahead), or `none`.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Protocol

import numpy as np

from games.abilities import GroundingLesson, Labels
from games.png import Album
from simulators.vision.drawing import pick
from simulators.vision.house import BODY, CLEARANCE, HEADINGS, ROOM, House, Pose, Thing, heading_to
from simulators.vision.house_paths import ANGLES, LENGTHS, Act
from simulators.vision.house_view import draw_view

KINDS = ("colours", "find")
GRID, NONE = 3, "none"
COLUMNS = ("left", "middle", "right")
VISIBLE = 1 / 200
"""Minimum share of a cell's pixels that a thing must cover to count as seen there."""
MAX_DEVIATION = HEADINGS // 8
"""Maximum deviation of most views from the direction of a thing, in headings."""


class HouseGame(Protocol):
    """Attributes of a `rooms3d` game that lessons use to draw houses of its split."""

    size: int

    def draw_house(self, rng: np.random.Generator) -> House: ...


def draw_lesson(game: HouseGame, rng: np.random.Generator, kind: str) -> GroundingLesson:
    """Draw a lesson of a kind in `KINDS`."""
    house, album = game.draw_house(rng), Album()
    number = int(rng.integers(len(house.things)))
    pose = _draw_pose(rng, house, number)
    pixels, numbers = draw_view(house, pose, game.size)
    shares = np.stack([_share_by_cell(numbers == other) for other in range(len(house.things))])
    colours = [thing.colour for thing in house.things]
    if kind == "colours":
        words = np.where(shares.max(0) >= VISIBLE, np.array(colours)[shares.argmax(0)], NONE)
        return GroundingLesson(("colours", album.add(pixels)), album.pictures, (_make_labels(words),))
    words = np.where(shares[number] >= VISIBLE, np.array(COLUMNS), NONE)
    parts = (f"find the {colours[number]} one", album.add(pixels))
    answer = _turn_towards(pose, house.things[number]) if (words != NONE).any() else NONE
    return GroundingLesson(parts, album.pictures, (_make_labels(words),), answer)


def _turn_towards(pose: Pose, thing: Thing) -> str:
    """Return the act that turns the walker towards a thing, or walks if the thing is straight ahead."""
    turn = (heading_to(pose, thing) - pose.heading + HEADINGS // 2) % HEADINGS - HEADINGS // 2
    angle = ANGLES[min(max(abs(turn), 1), len(ANGLES)) - 1]
    return str(Act("go", LENGTHS[-1]) if not turn else Act("right" if turn > 0 else "left", angle))


def _draw_pose(rng: np.random.Generator, house: House, number: int) -> Pose:
    """Draw a free position, and a heading that points roughly at a thing in three of four lessons."""
    thing = house.things[number]
    while True:
        x, y = rng.integers(2 * ROOM, size=2).tolist()
        if house.is_free(x, y, BODY + CLEARANCE // 2):
            break
    turn = pick(rng, range(-MAX_DEVIATION, MAX_DEVIATION + 1)) if rng.integers(4) else pick(rng, range(HEADINGS))
    return Pose(x, y, (heading_to(Pose(x, y, 0), thing) + turn) % HEADINGS)


def _share_by_cell(is_shown: np.ndarray) -> np.ndarray:
    """Return the share of each cell's pixels that the mask covers, [3, 3]."""
    edges = [size * len(is_shown) // GRID for size in range(GRID + 1)]
    rows = list(pairwise(edges))
    return np.array([[is_shown[top:bottom, left:right].mean() for left, right in rows] for top, bottom in rows])


def _make_labels(words: np.ndarray) -> Labels:
    return tuple(tuple((str(word),) for word in row) for row in words)
