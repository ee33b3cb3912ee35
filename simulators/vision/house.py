"""Houses of the game `rooms3d`: a chain of rooms joined by doorways, with things to walk to. All numbers are integers.

Lengths are millimetres. Directions are headings of 15 degrees, clockwise from the x axis, with the y axis downwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from simulators.vision.drawing import COLOURS, pick

ROOM, DOOR = 4000, 1200
"""Side of a square room, and width of a doorway."""
BODY, STEP = 150, 250
"""Radius of the walker, and length of a step."""
HEADINGS, VECTOR_LENGTH = 24, 1024
"""Number of headings, and the length of the vectors in `DIRECTIONS`."""
KINDS = ("pillar", "box", "ball")
RADIUS = 250
"""Half the side of the square that a thing occupies."""
CORNER = 1100
"""Distance of things from the lines through a room's middle, in both axes."""
DOORS = (1000, 2000, 3000)
"""Places of a doorway's middle along its wall."""
CELLS = ((0, 0), (1, 0), (1, 1), (0, 1))
"""Columns and rows of the rooms, in the order in which doorways join them."""
CLEARANCE = 100
"""Minimum distance of a start from walls and things, in addition to the walker's radius."""
APART = 1500
"""Minimum distance of a start from the wanted thing."""

_QUARTER = (1024, 989, 887, 724, 512, 265)
DIRECTIONS: Sequence[tuple[int, int]] = tuple(
    way
    for turns in range(4)
    for way in [
        ((c, s), (-s, c), (-c, -s), (s, -c))[turns]
        for c, s in zip(_QUARTER, (0, *_QUARTER[:0:-1]), strict=True)
    ]
)  # fmt: skip
"""Vectors of the headings: cosine and sine, times `VECTOR_LENGTH`."""

Rectangle = tuple[int, int, int, int]
"""Left, top, right and bottom edge."""


class Pose(NamedTuple):
    """Position and heading of the walker."""

    x: int
    y: int
    heading: int


class Thing(NamedTuple):
    """Object in a house: its kind, colour, and the position of its middle."""

    kind: str
    colour: str
    x: int
    y: int

    def __str__(self) -> str:
        return f"{self.colour} {self.kind}"


class House(NamedTuple):
    """House of a match: rooms, doorways, things, and the walker's start."""

    rooms: int
    doors: tuple[int, ...]
    """Place of the doorway from each room to the next, along their wall."""
    tints: tuple[int, ...]
    """Number of each room's wall colour."""
    things: tuple[Thing, ...]
    """The wanted thing, another one of its kind in another colour, then things of other kinds."""
    start: Pose
    heading: int
    """Heading at the start of a match that begins part-way along the route."""

    def openings(self) -> list[tuple[bool, int, int]]:
        """Return the doorways: (whether the wall runs along the y axis, the wall's position, the doorway's middle)."""
        doorways = []
        for (column, row), (column2, row2), door in zip(CELLS, CELLS[1:], self.doors, strict=False):
            is_upright = row == row2
            position, along = (max(column, column2), row) if is_upright else (max(row, row2), column)
            doorways.append((is_upright, position * ROOM, along * ROOM + door))
        return doorways

    def floors(self, margin: int) -> list[Rectangle]:
        """Return the rectangles in which a body's middle may be: floors and doorways, less `margin` on each side."""
        rectangles = [
            (column * ROOM + margin, row * ROOM + margin, (column + 1) * ROOM - margin, (row + 1) * ROOM - margin)
            for column, row in CELLS[: self.rooms]
        ]
        half = DOOR // 2 - margin
        for is_upright, wall_position, middle in self.openings():
            box = (wall_position - margin, middle - half, wall_position + margin, middle + half)
            rectangles.append(box if is_upright else (box[1], box[0], box[3], box[2]))
        return rectangles

    def is_free(self, x: Any, y: Any, margin: int = BODY) -> Any:
        """Return True where a body of radius `margin` touches neither wall nor thing. x and y are numbers or arrays."""
        inside, reach = False, RADIUS + margin
        for left, top, right, bottom in self.floors(margin):
            inside |= (left <= x) & (x <= right) & (top <= y) & (y <= bottom)
        for thing in self.things:
            inside &= (abs(x - thing.x) >= reach) | (abs(y - thing.y) >= reach)
        return inside

    def step(self, pose: Pose) -> Pose:
        """Return the pose after a step. A walker that hits something slides along it, or stays in place."""
        x, y, heading = unobstructed = step(pose)
        poses = (unobstructed, Pose(x, pose.y, heading), Pose(pose.x, y, heading))
        return next((candidate for candidate in poses if self.is_free(candidate.x, candidate.y)), pose)


def step(pose: Pose) -> Pose:
    """Return the pose one step straight ahead, ignoring obstacles."""
    dx, dy = ((STEP * axis + VECTOR_LENGTH // 2) // VECTOR_LENGTH for axis in DIRECTIONS[pose.heading])
    return Pose(pose.x + dx, pose.y + dy, pose.heading)


def heading_to(pose: Pose, thing: Thing) -> int:
    """Return the heading that points most nearly from a pose to a thing."""
    dx, dy = thing.x - pose.x, thing.y - pose.y
    return max(range(HEADINGS), key=lambda heading: DIRECTIONS[heading][0] * dx + DIRECTIONS[heading][1] * dy)


def square_distance(first: Pose | Thing, second: Pose | Thing) -> int:
    """Return the squared distance between two positions."""
    return (first.x - second.x) ** 2 + (first.y - second.y) ** 2


def draw_house(rng: np.random.Generator, rooms: int, things: int) -> House:
    """Draw a house and the walker's start. Exactly one other thing is of the wanted thing's kind."""
    kind, colours = pick(rng, KINDS), rng.permutation([*COLOURS]).tolist()
    others = [other_kind for other_kind in KINDS if other_kind != kind]
    slots = rng.permutation(4 * rooms).tolist()
    house_things = []
    for number in range(things):
        column, row = CELLS[slots[number] // 4]
        x, y = (ROOM // 2 + CORNER * (2 * side - 1) for side in divmod(slots[number] % 4, 2))
        house_things.append(
            Thing(kind if number < 2 else pick(rng, others), colours[number], column * ROOM + x, row * ROOM + y)
        )
    doors = tuple(pick(rng, DOORS) for _ in range(rooms - 1))
    tints = tuple(rng.permutation(len(CELLS))[:rooms].tolist())
    empty = House(rooms, doors, tints, tuple(house_things), Pose(0, 0, 0), int(rng.integers(HEADINGS)))
    return empty._replace(start=_draw_start(rng, empty))


def _draw_start(rng: np.random.Generator, house: House) -> Pose:
    while True:  # at least half of each room is free
        x, y = rng.integers(2 * ROOM, size=2).tolist()
        start = Pose(x, y, int(rng.integers(HEADINGS)))
        if house.is_free(x, y, BODY + CLEARANCE) and square_distance(start, house.things[0]) >= APART**2:
            return start
