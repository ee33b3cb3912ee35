"""Locked doors on a grid, and the keys that open them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from games.families.grid import STEPS, Cell, Door, Doors, measure_distances


class State(NamedTuple):
    """State of a walk on a grid: the walker's cell, the keys that lie in cells and those held, and the locked doors."""

    position: Cell
    keys: frozenset[Cell]
    """Cells where a key lies."""
    key_count: int
    """Number of keys that the walker has; any key opens any door."""
    locked: frozenset[Door]


def lock_doors(
    doors: Doors, start: Cell, goal: Cell, count: int, rng: np.random.Generator
) -> tuple[frozenset[Door], frozenset[Cell]]:
    """Lock `count` doors on the only path from start to goal, and draw a cell for each key.

    Returns the locked doors and the cells with keys. Every key can be reached without passing its door or a later one.
    """
    distances, path = measure_distances(doors, goal), [start]
    while path[-1] != goal:
        path.append(min(doors[path[-1]].values(), key=distances.__getitem__))
    places = sorted(rng.choice(np.arange(1, len(path) - 1), size=count, replace=False).tolist()) if count else []
    locked = [frozenset(path[place : place + 2]) for place in places]
    keys: list[Cell] = []
    for k in range(count):
        free = sorted(measure_distances(doors, start, locked[k:]).keys() - {start, *keys})
        keys.append(free[rng.integers(len(free))])
    return frozenset(locked), frozenset(keys)


def take_step(doors: Doors, state: State, direction: str) -> State:
    """Return the state after a step. Steps unlock doors with held keys, and pick up keys.

    Returns `state` itself if a wall, or a locked door without a key, is in the way.
    """
    target = doors[state.position].get(direction)
    door = frozenset((state.position, target)) if target else None
    if target is None or (door in state.locked and not state.key_count):
        return state
    key_count = state.key_count - (door in state.locked) + (target in state.keys)
    return State(target, state.keys - {target}, key_count, state.locked - {door})


def count_steps_left(doors: Doors, start: State, goal: Cell) -> int:
    """Return the fewest steps from a state to the goal, by breadth-first search, including detours for keys.

    Raises ValueError if the goal is unreachable.
    """
    steps, queue = {start: 0}, [start]
    for state in queue:
        if state.position == goal:
            return steps[state]
        for direction in STEPS:
            if (after := take_step(doors, state, direction)) not in steps:
                steps[after] = steps[state] + 1
                queue.append(after)
    raise ValueError(f"no way leads from {start.position} to {goal}")
