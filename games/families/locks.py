"""Locked doors on a grid, and the keys that open them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from games.families.grid import STEPS, Cell, Door, Doors, measure_distances


class State(NamedTuple):
    """State of a walk on a grid: the walker's cell, the keys lying and held, and the doors still locked."""

    position: Cell
    keys: frozenset[Cell]
    """Cells where a key lies."""
    held: int
    """Keys that the walker has; any of them opens any door."""
    locked: frozenset[Door]


def lock_doors(
    doors: Doors, start: Cell, goal: Cell, count: int, rng: np.random.Generator
) -> tuple[frozenset[Door], frozenset[Cell]]:
    """Lock `count` doors on the path from start to goal, and draw a key for each. Returns locked doors and key cells.

    Every key can be reached without passing its door or a later one. `start` and `goal` are joined by one path.
    """
    away, way = measure_distances(doors, goal), [start]
    while way[-1] != goal:
        way.append(min(doors[way[-1]].values(), key=away.__getitem__))
    places = sorted(rng.choice(np.arange(1, len(way) - 1), size=count, replace=False).tolist()) if count else []
    locked = [frozenset(way[place : place + 2]) for place in places]
    keys: list[Cell] = []
    for k in range(count):
        free = sorted(measure_distances(doors, start, locked[k:]).keys() - {start, *keys})
        keys.append(free[rng.integers(len(free))])
    return frozenset(locked), frozenset(keys)


def take_step(doors: Doors, at: State, direction: str) -> State:
    """Return the state after a step, which unlocks doors with held keys and picks up keys.

    Returns the state itself if a wall or a locked door is in the way.
    """
    there = doors[at.position].get(direction)
    door = frozenset((at.position, there)) if there else None
    if there is None or (door in at.locked and not at.held):
        return at
    held = at.held - (door in at.locked) + (there in at.keys)
    return State(there, at.keys - {there}, held, at.locked - {door})


def count_steps_left(doors: Doors, at: State, goal: Cell) -> int:
    """Return the fewest steps from a state to the goal, by breadth-first search, with keys fetched on the way.

    Raises ValueError if the goal is unreachable.
    """
    steps, edge = {at: 0}, [at]
    for state in edge:
        if state.position == goal:
            return steps[state]
        for direction in STEPS:
            if (after := take_step(doors, state, direction)) not in steps:
                steps[after] = steps[state] + 1
                edge.append(after)
    raise ValueError(f"no way leads from {at.position} to {goal}")
