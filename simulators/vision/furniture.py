"""Tasks of `rooms`: furniture to place by wishes, some of which name walls by colours that only a picture shows.

Lengths are whole units. A place is the left upper corner of a thing, counted from the left upper corner of the room.
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
"""Least sizes of the things; each side may be a unit longer."""
MIN_THINGS, MAX_THINGS = 2, 5
"""Number of things in a task."""
PILLAR = 4
"""Width and depth of the pillar."""
AT_WALL, NEAR, FAR = 1, 2, 10
"""Maximum gap between a wall and a thing at it, and between things beside each other; minimum gap of things apart."""
TRIES = 30
"""Maximum number of layouts to try, and of positions per thing."""

Places = Mapping[str, tuple[int, int]]
"""Left upper corners by thing."""


class Wish(NamedTuple):
    """Wish for one thing: "at" the wall of a colour and in no corner, or "beside" or "apart" from another thing."""

    kind: str
    thing: str
    other: str
    """Colour of a wall, or another thing."""

    def __str__(self) -> str:
        where = {
            "at": f"at the {self.other} wall, in no corner",
            "beside": f"beside the {self.other}, at most {NEAR} apart",
            "apart": f"at least {FAR} from the {self.other}",
        }
        return f"the {self.thing} {where[self.kind]}"


class Task(NamedTuple):
    """Task of a match: things, wishes about them, and the room."""

    sizes: tuple[tuple[str, tuple[int, int]], ...]
    """Width and depth of each thing."""
    wishes: tuple[Wish, ...]
    walls: tuple[str, ...]
    """Colours of the walls, in the order of `SIDES`."""
    pillar: tuple[int, int]
    """Left upper corner of the pillar."""
    step: int = 1
    """Number of which `arrange` draws multiples as places."""

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
            return all(0 <= near <= AT_WALL if n == side else near > AT_WALL for n, near in enumerate(gaps))
        apart = compute_gap(box, boxes[wish.other])
        return 0 <= apart <= NEAR if wish.kind == "beside" else apart >= FAR

    def find_colliding(self, places: Places) -> set[str]:
        """Return the things that overlap another."""
        boxes = self.boxes(places)
        return {one for one in boxes for two in boxes if one != two and compute_gap(boxes[one], boxes[two]) < 0}

    def find_misplaced(self, places: Places) -> set[str]:
        """Return the things that lie on the pillar, or not wholly in the room."""
        left, top = self.pillar
        pillar = (left, top, left + PILLAR, top + PILLAR)
        return {name for name, box in self.boxes(places).items() if compute_gap(box, pillar) < 0 or not _is_inside(box)}

    def is_solved_by(self, places: Places) -> bool:
        """Return True if a layout meets all wishes, and nothing collides or is misplaced."""
        return (
            self.compute_met_share(places) == 1 and not self.find_colliding(places) and not self.find_misplaced(places)
        )

    def arrange(self, rng: np.random.Generator, walls: Sequence[str]) -> Places:
        """Draw layouts until one solves the task, if walls have these colours; the last one if none of 30 does."""
        believed = self._replace(walls=tuple(walls))
        for _ in range(TRIES):
            places = believed._draw(rng)
            if believed.is_solved_by(places):
                break
        return places

    def _draw(self, rng: np.random.Generator) -> Places:
        """Draw a layout, thing by thing, each where it fits if one of 30 places does."""
        places = dict[str, tuple[int, int]]()
        asked = {wish.thing: wish for wish in self.wishes}
        for name, _ in self.sizes:
            wish = asked.get(name)
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


def compute_gap(one: Box, two: Box) -> int:
    """Return the larger of the horizontal and the vertical gap between boxes; below 0 if they overlap."""
    across = max(one[0] - two[2], two[0] - one[2])
    return max(across, one[1] - two[3], two[1] - one[3])


def _is_inside(box: Box) -> bool:
    return box[0] >= 0 and box[1] >= 0 and box[2] <= WIDTH and box[3] <= DEPTH


def _draw_size(rng: np.random.Generator, name: str) -> tuple[int, int]:
    width, depth = {**LARGE, **SMALL}[name]
    return width + int(rng.integers(2)), depth + int(rng.integers(2))


def draw_task(rng: np.random.Generator, step: int = 1, things: int = MAX_THINGS) -> Task:
    """Draw a task that a layout in multiples of `step` solves: three large things, two at walls, and two small ones.

    Of fewer `things` there are the two at walls first, then a small one beside one of them, then one apart from one.
    """
    while True:
        large = [[*LARGE][number] for number in rng.permutation(len(LARGE))[:3].tolist()]
        small = [[*SMALL][number] for number in rng.permutation(len(SMALL))[:2].tolist()]
        grown = {name: _draw_size(rng, name) for name in large + small}
        placed = large + small if things == MAX_THINGS else large[:2] + small[: things - 2]
        sizes = tuple((name, grown[name]) for name in placed)
        walls = tuple([*COLOURS][number] for number in rng.permutation(len(COLOURS))[: len(SIDES)].tolist())
        first, second = rng.permutation(len(SIDES))[:2].tolist()
        wishes = (
            Wish("at", large[0], walls[first]),
            Wish("at", large[1], walls[second]),
            Wish("beside", small[0], pick(rng, large if things == MAX_THINGS else large[:2])),
            Wish("apart", small[1], pick(rng, large if things == MAX_THINGS else large[:2])),
        )
        pillar = (int(rng.integers(6, WIDTH - 6 - PILLAR)), int(rng.integers(6, DEPTH - 6 - PILLAR)))
        task = Task(sizes, tuple(wish for wish in wishes if wish.thing in placed), walls, pillar, step)
        if task.is_solved_by(task.arrange(rng, walls)):
            return task
