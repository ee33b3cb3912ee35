"""Cells and doors on a grid, for mazes and houses."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal

import numpy as np

Starts = Literal["any", "near", "far"]
Cell = tuple[int, int]  # column from the west, row from the north
Doors = dict[Cell, dict[str, Cell]]  # cell -> direction -> the cell behind the door in this direction
Door = frozenset[Cell]  # the two cells that it joins
STEPS = {"NORTH": (0, -1), "EAST": (1, 0), "SOUTH": (0, 1), "WEST": (-1, 0)}
OPPOSITE = {"NORTH": "SOUTH", "EAST": "WEST", "SOUTH": "NORTH", "WEST": "EAST"}


def neighbour(cell: Cell, direction: str) -> Cell:
    """Return the position next to a cell in a direction, whether or not a cell or door is there."""
    east, south = STEPS[direction]
    return cell[0] + east, cell[1] + south


def add_door(doors: Doors, cell: Cell, direction: str) -> None:
    """Add a door to `doors` between a cell and the next one in a direction, for passing both ways."""
    other = neighbour(cell, direction)
    doors[cell][direction], doors[other][OPPOSITE[direction]] = other, cell


def carve(cells: Collection[Cell], rng: np.random.Generator) -> Doors:
    """Return the doors of a random depth-first spanning tree: exactly one path joins any two connected cells."""
    doors: Doors = {cell: {} for cell in cells}
    path = [min(cells)]
    seen = set(path)
    while path:
        fresh = [d for d in STEPS if (cell := neighbour(path[-1], d)) in doors and cell not in seen]
        if not fresh:
            path.pop()
            continue
        direction = fresh[rng.integers(len(fresh))]
        add_door(doors, path[-1], direction)
        path.append(doors[path[-1]][direction])
        seen.add(path[-1])
    return doors


def measure_distances(doors: Doors, start: Cell, shut: Collection[Door] = ()) -> dict[Cell, int]:
    """Return the length of the shortest path from `start` to every reachable cell, by cell (breadth-first search).

    Doors in `shut` cannot be passed.
    """
    steps, queue = {start: 0}, [start]
    for cell in queue:
        for other in doors[cell].values():
            if other not in steps and frozenset((cell, other)) not in shut:
                steps[other] = steps[cell] + 1
                queue.append(other)
    return steps


def draw_walk(
    size: int, locks: int, rng: np.random.Generator, layout: int | None, starts: Starts
) -> tuple[Doors, Cell, Cell]:
    """Draw the doors of a maze, with a start and a goal that are more than `locks` steps apart.

    With a seed `layout` for doors and goal, only the start is drawn from `rng`. A start "near" or "far" is drawn from
    the nearer or farther half of the other cells, and may be within `locks` steps of the goal.
    """
    cells = [(x, y) for x in range(size) for y in range(size)]
    source = rng if layout is None else np.random.default_rng(layout)
    doors, start, goal = carve(cells, source), cells[0], cells[0]
    while measure_distances(doors, start)[goal] <= locks:
        start, goal = (cells[k] for k in source.choice(len(cells), size=2, replace=False))
    if layout is None and starts == "any":
        return doors, start, goal
    nearest_first = list(measure_distances(doors, goal))[1:]
    half = len(nearest_first) // 2
    candidates = {"any": nearest_first, "near": nearest_first[:half], "far": nearest_first[half:]}[starts]
    return doors, candidates[rng.integers(len(candidates))], goal


def draw_map(doors: Doors, marks: Mapping[Cell, str], shut: Collection[Door] = ()) -> str:
    """Draw a map as text: # for walls, blanks for cells and open doors, D for doors in `shut`, and `marks` by cell.

    Cell (x, y) is at column 2x+1, row 2y+1. Rows are separated by line breaks.
    """
    columns, lines = (2 * max(cell[axis] for cell in doors) + 3 for axis in (0, 1))
    rows = [["#"] * columns for _ in range(lines)]
    for (x, y), ways in doors.items():
        rows[2 * y + 1][2 * x + 1] = marks.get((x, y), " ")
        for direction, other in ways.items():
            east, south = STEPS[direction]
            rows[2 * y + 1 + south][2 * x + 1 + east] = "D" if frozenset(((x, y), other)) in shut else " "
    return "\n".join("".join(row) for row in rows)
