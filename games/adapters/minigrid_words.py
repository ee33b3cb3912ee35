"""Describe the view of a MiniGrid agent in words."""

from __future__ import annotations

import importlib
from typing import Any

FLOOR = ("unseen", "empty", "floor", "wall", "agent")
"""Kinds of cells that are no objects."""


def describe(cells: Any, carried: Any) -> str:
    """Describe a view: its objects, the free cells in the agent's three directions, and the carried object.

    `cells` is MiniGrid's encoding [columns, rows, 3] of kind, colour and state. The agent stands in the middle of the
    last row and looks up. `carried` is the object that it carries, or None.
    """
    constants = importlib.import_module("minigrid.core.constants")
    kinds, colours = constants.IDX_TO_OBJECT, constants.IDX_TO_COLOR
    states = {number: name for name, number in constants.STATE_TO_IDX.items()}
    width, height = cells.shape[:2]
    middle, last = width // 2, height - 1
    seen = []
    for row in range(last, -1, -1):
        for column in range(width):
            kind, colour, state = (int(number) for number in cells[column, row])
            if kinds[kind] in FLOOR or (column, row) == (middle, last):
                continue
            shown = f"{states[state]} " if kinds[kind] == "door" else ""
            seen.append(f"{shown}{colours[colour]} {kinds[kind]} {_place(last - row, column - middle)}")
    free = [
        f"{_free(cells, kinds, middle, last, *step)} {name}"
        for name, step in (("ahead", (0, -1)), ("left", (-1, 0)), ("right", (1, 0)))
    ]
    held = f"{carried.color} {carried.type}" if carried else "nothing"
    return f"You see: {'; '.join(seen) or 'nothing'}. Free cells: {', '.join(free)}. You carry: {held}."


def _place(ahead: int, right: int) -> str:
    """Return where a cell is, such as "2 ahead 1 left"."""
    side = f"{abs(right)} {'right' if right > 0 else 'left'}"
    return " ".join([*([f"{ahead} ahead"] if ahead else []), *([side] if right else [])])


def _free(cells: Any, kinds: Any, column: int, row: int, right: int, down: int) -> int:
    """Return the number of visible cells in a direction before something that is no floor."""
    count = 0
    while True:
        column, row = column + right, row + down
        if not (0 <= column < cells.shape[0] and 0 <= row < cells.shape[1]):
            return count
        if kinds[int(cells[column, row, 0])] not in ("empty", "floor"):
            return count
        count += 1
