"""Houses of rooms and doors for `text_navigation`: generation, shortest solutions, and scripted players."""

from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np

from games.contracts import View
from games.families.grid import STEPS, Cell, Doors, add_door, carve, measure_distances, neighbour

SHORTCUT_PROBABILITY = 0.25  # of an extra door between adjacent rooms
STRATEGIST = "strategist"
HEED_PROBABILITY = 0.9
"""Probability that the scripted walker `heeder` follows the strategist's advice."""


class House(Protocol):
    """Protocol of a match's state that scripted players read: the house, its items, and the walker's task."""

    doors: Doors
    places: dict[str, Cell | None]
    """Room of each item, or None if the walker carries it."""
    position: Cell
    target_item: str
    goal: Cell

    def acts(self) -> list[str]:
        """Return all acts that the walker may play now."""
        ...


def draw_house(size: int, rng: np.random.Generator) -> tuple[list[Cell], Doors]:
    """Draw a house of `size` connected rooms. Returns their cells and doors: a spanning tree and some extra doors."""
    cells: list[Cell] = [(0, 0)]
    while len(cells) < size:
        free = sorted({neighbour(cell, direction) for cell in cells for direction in STEPS} - set(cells))
        cells.append(free[rng.integers(len(free))])
    doors = carve(cells, rng)
    for cell in cells:
        for direction in ("EAST", "SOUTH"):
            has_neighbour = neighbour(cell, direction) in doors
            if has_neighbour and direction not in doors[cell] and rng.random() < SHORTCUT_PROBABILITY:
                add_door(doors, cell, direction)
    return cells, doors


def count_fewest_acts(house: House) -> int:
    """Return the number of acts of the shortest solution: go to the item, TAKE, go to the goal room, DROP."""
    steps = measure_distances(house.doors, house.places[house.target_item] or house.position)
    return steps[house.position] + 1 + steps[house.goal] + 1


def find_best_act(house: House) -> str:
    """Return the next act of a shortest solution, given full knowledge of the house."""
    item_place, ways = house.places[house.target_item], house.doors[house.position]
    if item_place == house.position:
        return f"TAKE {house.target_item}"
    if item_place is None and house.position == house.goal:
        return f"DROP {house.target_item}"
    steps = measure_distances(house.doors, item_place or house.goal)
    return f"GO {min(ways, key=lambda direction: steps[ways[direction]])}"


def _make_oracle(house: House, seed: int) -> Callable[[View], str]:
    """Return a player for either seat that plays the next act of a shortest solution, with full knowledge."""
    return lambda view: find_best_act(house)


def _make_rambler(house: House, seed: int) -> Callable[[View], str]:
    """Return a player for either seat that plays a random legal act of the walker."""
    rng = np.random.default_rng([seed, 1])  # differs from the match's generator even if the seeds are equal
    return lambda view: str(rng.choice(house.acts()))


def _make_heeder(house: House, seed: int) -> Callable[[View], str]:
    """Return a walker that follows legal advice of the strategist with probability .9, else acts at random."""
    rng = np.random.default_rng([seed, 2])

    def act(view: View) -> str:
        advice = view.public["strategy"].get(STRATEGIST, "")
        return advice if advice in house.acts() and rng.random() < HEED_PROBABILITY else str(rng.choice(house.acts()))

    return act


PLAYERS: Mapping[str, Callable[[House, int], Callable[[View], str]]] = {
    "oracle": _make_oracle, "rambler": _make_rambler, "heeder": _make_heeder,
}  # fmt: skip
