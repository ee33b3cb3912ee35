"""Description of a MiniGrid agent's view in words."""

from __future__ import annotations

import importlib
from typing import Any

BACKGROUND = ("unseen", "empty", "floor", "wall", "agent")
"""Kinds of cells that are not listed as objects."""


def describe(cells: Any, carried_object: Any) -> str:
    """Describe a view in words: its objects, the free cells ahead, left and right, and the carried object.

    `cells` is MiniGrid's encoding [columns, rows, 3] of kind, colour and state. The agent stands in the middle of the
    last row and looks up. `carried_object` is the carried object or None.
    """
    constants = importlib.import_module("minigrid.core.constants")
    kinds, colours = constants.IDX_TO_OBJECT, constants.IDX_TO_COLOR
    states = {number: name for name, number in constants.STATE_TO_IDX.items()}
    width, height = cells.shape[:2]
    middle, last = width // 2, height - 1
    objects = []
    for row in range(last, -1, -1):
        for column in range(width):
            kind, colour, state = (int(number) for number in cells[column, row])
            if kinds[kind] in BACKGROUND or (column, row) == (middle, last):
                continue
            state_text = f"{states[state]} " if kinds[kind] == "door" else ""
            objects.append(f"{state_text}{colours[colour]} {kinds[kind]} {_format_offset(last - row, column - middle)}")
    free = [
        f"{_count_free(cells, kinds, middle, last, *step)} {name}"
        for name, step in (("ahead", (0, -1)), ("left", (-1, 0)), ("right", (1, 0)))
    ]
    carried_text = f"{carried_object.color} {carried_object.type}" if carried_object else "nothing"
    return f"You see: {'; '.join(objects) or 'nothing'}. Free cells: {', '.join(free)}. You carry: {carried_text}."


def _format_offset(ahead: int, right: int) -> str:
    """Return a cell's position relative to the agent, such as "2 ahead 1 left"."""
    side = f"{abs(right)} {'right' if right > 0 else 'left'}"
    return " ".join([*([f"{ahead} ahead"] if ahead else []), *([side] if right else [])])


def _count_free(cells: Any, kinds: Any, column: int, row: int, right: int, down: int) -> int:
    """Count the visible free cells from a cell in a direction, up to the first object, wall or hidden cell."""
    count = 0
    while True:
        column, row = column + right, row + down
        if not (0 <= column < cells.shape[0] and 0 <= row < cells.shape[1]):
            return count
        if kinds[int(cells[column, row, 0])] not in ("empty", "floor"):
            return count
        count += 1
