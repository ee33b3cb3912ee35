"""A house of rooms and doors, the shortest way through it with a thing, and scripts that walk it or say how."""

from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np

from games.contracts import View
from games.families.grid import STEPS, Cell, Doors, beside, carve, distances, join

SHORTCUT = 0.25  # how often neighbours that need no door have one
STRATEGIST = "strategist"
HEEDED = 0.9
"""How often the scripted `heeder` does what the strategist says."""


class House(Protocol):
    """State of a match in a house, as its scripted players know it (`text_navigation` provides it)."""

    doors: Doors
    places: dict[str, Cell | None]
    """Room of each item, or None if the walker carries it."""
    position: Cell
    wanted: str
    goal: Cell

    def acts(self) -> list[str]:
        """Return all acts that the walker may play now."""
        ...


def built(size: int, rng: np.random.Generator) -> tuple[list[Cell], Doors]:
    """Draw a house of `size` adjacent rooms. Returns their cells and doors: a spanning tree and some extra doors."""
    cells: list[Cell] = [(0, 0)]
    while len(cells) < size:
        free = sorted({beside(cell, direction) for cell in cells for direction in STEPS} - set(cells))
        cells.append(free[rng.integers(len(free))])
    doors = carve(cells, rng)
    for cell in cells:
        for direction in ("EAST", "SOUTH"):
            near = beside(cell, direction) in doors
            if near and direction not in doors[cell] and rng.random() < SHORTCUT:
                join(doors, cell, direction)
    return cells, doors


def shortest(house: House) -> int:
    """Return the number of acts of the shortest solution: to the item, TAKE, to the goal room, DROP."""
    steps = distances(house.doors, house.places[house.wanted] or house.position)
    return steps[house.position] + 1 + steps[house.goal] + 1


def best_act(house: House) -> str:
    """Return the next act of a shortest solution, given full knowledge of the house."""
    where, ways = house.places[house.wanted], house.doors[house.position]
    if where == house.position:
        return f"TAKE {house.wanted}"
    if where is None and house.position == house.goal:
        return f"DROP {house.wanted}"
    steps = distances(house.doors, where or house.goal)
    return f"GO {min(ways, key=lambda direction: steps[ways[direction]])}"


def _oracle(house: House, seed: int) -> Callable[[View], str]:
    """Return a player for either seat that knows the house and names the next act of a shortest solution."""
    return lambda seen: best_act(house)


def _rambler(house: House, seed: int) -> Callable[[View], str]:
    """Return a player for either seat that names one of the walker's legal acts at random."""
    rng = np.random.default_rng([seed, 1])  # other chance than the match's, where that has the same seed
    return lambda seen: str(rng.choice(house.acts()))


def _heeder(house: House, seed: int) -> Callable[[View], str]:
    """Return a walker that mostly (.9) follows the strategist's advice if it is legal, and else acts at random."""
    rng = np.random.default_rng([seed, 2])

    def act(seen: View) -> str:
        said = seen.public["strategy"].get(STRATEGIST, "")
        return said if said in house.acts() and rng.random() < HEEDED else str(rng.choice(house.acts()))

    return act


PLAYERS: Mapping[str, Callable[[House, int], Callable[[View], str]]] = {
    "oracle": _oracle, "rambler": _rambler, "heeder": _heeder,
}  # fmt: skip
