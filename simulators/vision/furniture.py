"""Tasks of the game `rooms`: furniture to place so that wishes are met. Some wishes name walls by their colours.

Lengths are whole units. A place is the upper left corner of a thing, counted from the upper left corner of the room.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from simulators.vision.boxes import Box
from simulators.vision.drawing import COLOURS, pick

WIDTH, DEPTH = 48, 36
"""Size of the room."""
SIDES = ("left", "top", "right", "bottom")
LARGE: Mapping[str, tuple[int, int]] = {"bed": (12, 8), "desk": (8, 5), "shelf": (9, 4), "table": (7, 7)}
SMALL: Mapping[str, tuple[int, int]] = {"chair": (4, 4), "lamp": (3, 3), "plant": (4, 3)}
"""Minimum width and depth of each thing, by name; each may be a unit longer."""
MIN_THINGS, MAX_THINGS = 2, 5
"""Number of things in a task."""
PILLAR = 4
"""Width and depth of the pillar."""
AT_WALL, NEAR, FAR = 1, 2, 10
"""Maximum gap between a wall and a thing at it, and between things beside each other; minimum gap between things apart.
"""
TRIES = 30
"""Maximum number of layouts to try, and of positions per thing."""

Places = Mapping[str, tuple[int, int]]
"""Upper left corners by thing."""


class Wish(NamedTuple):
    """Wish for one thing: "at" the wall of a colour but in no corner, "beside" another thing, or "apart" from it."""

    kind: str
    thing: str
    other: str
    """Colour of a wall, or another thing."""

    def __str__(self) -> str:
        wordings = {
            "at": f"at the {self.other} wall, in no corner",
            "beside": f"beside the {self.other}, at most {NEAR} apart",
            "apart": f"at least {FAR} from the {self.other}",
        }
        return f"the {self.thing} {wordings[self.kind]}"


class Task(NamedTuple):
    """Task of a match: things, wishes about them, and the room."""

    sizes: tuple[tuple[str, tuple[int, int]], ...]
    """Width and depth of each thing."""
    wishes: tuple[Wish, ...]
    walls: tuple[str, ...]
    """Colours of the walls, in the order of `SIDES`."""
    pillar: tuple[int, int]
    """Upper left corner of the pillar."""
    step: int = 1
    """Step of the grid on which `arrange` places things."""

    def boxes(self, places: Places) -> dict[str, Box]:
        """Return the boxes of the placed things."""
        return {
            name: (places[name][0], places[name][1], places[name][0] + width, places[name][1] + depth)
            for name, (width, depth) in self.sizes
            if name in places
        }

    def compute_met_share(self, places: Places) -> float:
        """Return the share of the wishes that a layout meets."""
        boxes = self.boxes(places)
        return sum(self._is_met(wish, boxes) for wish in self.wishes) / len(self.wishes)

    def _is_met(self, wish: Wish, boxes: Mapping[str, Box]) -> bool:
        box = boxes[wish.thing]
        if wish.kind == "at":
            side = self.walls.index(wish.other)
            gaps = (box[0], box[1], WIDTH - box[2], DEPTH - box[3])
            return all(0 <= gap <= AT_WALL if number == side else gap > AT_WALL for number, gap in enumerate(gaps))
        gap_between = compute_gap(box, boxes[wish.other])
        return 0 <= gap_between <= NEAR if wish.kind == "beside" else gap_between >= FAR

    def find_colliding(self, places: Places) -> set[str]:
        """Return the things that overlap another."""
        boxes = self.boxes(places)
        return {
            name for name in boxes for other in boxes if name != other and compute_gap(boxes[name], boxes[other]) < 0
        }

    def find_misplaced(self, places: Places) -> set[str]:
        """Return the things that overlap the pillar or leave the room."""
        left, top = self.pillar
        pillar = (left, top, left + PILLAR, top + PILLAR)
        return {name for name, box in self.boxes(places).items() if compute_gap(box, pillar) < 0 or not _is_inside(box)}

    def is_solved_by(self, places: Places) -> bool:
        """Return True if a layout meets all wishes, and nothing collides or is misplaced."""
        return (
            self.compute_met_share(places) == 1 and not self.find_colliding(places) and not self.find_misplaced(places)
        )

    def arrange(self, rng: np.random.Generator, walls: Sequence[str]) -> Places:
        """Draw up to 30 layouts until one solves the task with walls of these colours. Returns the last one drawn."""
        task = self._replace(walls=tuple(walls))
        for _ in range(TRIES):
            places = task._draw(rng)
            if task.is_solved_by(places):
                break
        return places

    def _draw(self, rng: np.random.Generator) -> Places:
        """Draw a layout thing by thing, trying up to 30 places for each thing until one fits."""
        places = dict[str, tuple[int, int]]()
        wish_by_thing = {wish.thing: wish for wish in self.wishes}
        for name, _ in self.sizes:
            wish = wish_by_thing.get(name)
            for _ in range(TRIES):
                x, y = self._place(rng, name, wish, places)
                places[name] = x // self.step * self.step, y // self.step * self.step
                is_wrong = name in self.find_colliding(places) or name in self.find_misplaced(places)
                if not is_wrong and (wish is None or self._is_met(wish, self.boxes(places))):
                    break
        return places

    def _place(self, rng: np.random.Generator, name: str, wish: Wish | None, places: Places) -> tuple[int, int]:
        """Draw a place for a thing: at the wished wall, next to the wished thing, or anywhere."""
        sizes = dict(self.sizes)
        width, depth = sizes[name]
        if wish and wish.kind == "beside":
            (x, y), (other_width, other_depth) = places[wish.other], sizes[wish.other]
            left = x + int(rng.integers(-width - NEAR, other_width + NEAR + 1))
            return left, y + int(rng.integers(-depth - NEAR, other_depth + NEAR + 1))
        left, top = int(rng.integers(WIDTH - width + 1)), int(rng.integers(DEPTH - depth + 1))
        if wish and wish.kind == "at":
            side = self.walls.index(wish.other)
            return ((0, top), (left, 0), (WIDTH - width, top), (left, DEPTH - depth))[side]
        return left, top


def compute_gap(first: Box, second: Box) -> int:
    """Return the larger of the horizontal and the vertical gap between boxes; below 0 if they overlap."""
    across = max(first[0] - second[2], second[0] - first[2])
    return max(across, first[1] - second[3], second[1] - first[3])


def _is_inside(box: Box) -> bool:
    return box[0] >= 0 and box[1] >= 0 and box[2] <= WIDTH and box[3] <= DEPTH


def _draw_size(rng: np.random.Generator, name: str) -> tuple[int, int]:
    width, depth = {**LARGE, **SMALL}[name]
    return width + int(rng.integers(2)), depth + int(rng.integers(2))


def draw_task(rng: np.random.Generator, step: int = 1, things: int = MAX_THINGS) -> Task:
    """Draw a task with a solution in multiples of `step`: three large things, two of them at walls, and two small ones.

    With fewer `things` it has the two at walls, then a small one beside one of these, then one apart from one of these.
    """
    while True:
        large = [[*LARGE][number] for number in rng.permutation(len(LARGE))[:3].tolist()]
        small = [[*SMALL][number] for number in rng.permutation(len(SMALL))[:2].tolist()]
        size_by_name = {name: _draw_size(rng, name) for name in large + small}
        names = large + small if things == MAX_THINGS else large[:2] + small[: things - 2]
        sizes = tuple((name, size_by_name[name]) for name in names)
        walls = tuple([*COLOURS][number] for number in rng.permutation(len(COLOURS))[: len(SIDES)].tolist())
        first, second = rng.permutation(len(SIDES))[:2].tolist()
        wishes = (
            Wish("at", large[0], walls[first]),
            Wish("at", large[1], walls[second]),
            Wish("beside", small[0], pick(rng, large if things == MAX_THINGS else large[:2])),
            Wish("apart", small[1], pick(rng, large if things == MAX_THINGS else large[:2])),
        )
        pillar = (int(rng.integers(6, WIDTH - 6 - PILLAR)), int(rng.integers(6, DEPTH - 6 - PILLAR)))
        task = Task(sizes, tuple(wish for wish in wishes if wish.thing in names), walls, pillar, step)
        if task.is_solved_by(task.arrange(rng, walls)):
            return task
