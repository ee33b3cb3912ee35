"""Cells and doors on a grid, for mazes and houses."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal

import numpy as np

Starts = Literal["any", "near", "far"]
Cell = tuple[int, int]  # column from the west, row from the north
Doors = dict[Cell, dict[str, Cell]]  # for every cell, by direction, the cells next door
Door = frozenset[Cell]  # the two cells that it joins
STEPS = {"NORTH": (0, -1), "EAST": (1, 0), "SOUTH": (0, 1), "WEST": (-1, 0)}
BACK = {"NORTH": "SOUTH", "EAST": "WEST", "SOUTH": "NORTH", "WEST": "EAST"}


def neighbour(cell: Cell, direction: str) -> Cell:
    """Return the cell next to this one in a direction, even if there is no door or no such cell."""
    east, south = STEPS[direction]
    return cell[0] + east, cell[1] + south


def add_door(doors: Doors, cell: Cell, direction: str) -> None:
    """Connect a cell with the next one in a direction by a door, in both directions. Changes `doors`."""
    other = neighbour(cell, direction)
    doors[cell][direction], doors[other][BACK[direction]] = other, cell


def carve(cells: Collection[Cell], rng: np.random.Generator) -> Doors:
    """Return the doors of a random depth-first spanning tree: exactly one path joins any two connected cells."""
    doors: Doors = {cell: {} for cell in cells}
    path = [min(cells)]
    seen = set(path)
    while path:
        fresh = [d for d in STEPS if (there := neighbour(path[-1], d)) in doors and there not in seen]
        if not fresh:
            path.pop()
            continue
        direction = fresh[rng.integers(len(fresh))]
        add_door(doors, path[-1], direction)
        path.append(doors[path[-1]][direction])
        seen.add(path[-1])
    return doors


def measure_distances(doors: Doors, start: Cell, shut: Collection[Door] = ()) -> dict[Cell, int]:
    """Return the steps of the shortest path from `start` to every reachable cell, by cell (breadth-first search).

    Doors in `shut` cannot be passed.
    """
    steps, edge = {start: 0}, [start]
    for cell in edge:
        for there in doors[cell].values():
            if there not in steps and frozenset((cell, there)) not in shut:
                steps[there] = steps[cell] + 1
                edge.append(there)
    return steps


def draw_walk(
    size: int, locks: int, rng: np.random.Generator, layout: int | None, starts: Starts
) -> tuple[Doors, Cell, Cell]:
    """Draw the doors of a maze, with a start and a goal that are more than `locks` steps apart.

    `layout` is a seed of doors and goal, so that only the start is drawn from `rng`. A start that is "near" or "far" is
    among the half of the other cells nearer to the goal, or farther from it; that half may be within `locks` steps.
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
    among = {"any": nearest_first, "near": nearest_first[:half], "far": nearest_first[half:]}[starts]
    return doors, among[rng.integers(len(among))], goal


def draw_map(doors: Doors, marks: Mapping[Cell, str], shut: Collection[Door] = ()) -> str:
    """Draw a map as text: # for walls, blanks for cells and open doors, D for doors in `shut`, and `marks` by cell.

    Cell (x, y) is at column 2x+1, row 2y+1. Rows are separated by line breaks.
    """
    columns, lines = (2 * max(cell[axis] for cell in doors) + 3 for axis in (0, 1))
    rows = [["#"] * columns for _ in range(lines)]
    for (x, y), ways in doors.items():
        rows[2 * y + 1][2 * x + 1] = marks.get((x, y), " ")
        for direction, there in ways.items():
            east, south = STEPS[direction]
            rows[2 * y + 1 + south][2 * x + 1 + east] = "D" if frozenset(((x, y), there)) in shut else " "
    return "\n".join("".join(row) for row in rows)
