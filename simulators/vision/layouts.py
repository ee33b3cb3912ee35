"""Layouts of the game `rooms`: parsers of the JSON or letters that models write, and pictures from above."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence

import numpy as np

from games.base import to_one_line
from games.png import Pixels
from games.untrusted_json import DECODER
from simulators.vision.drawing import COLOURS, INK, draw_ground
from simulators.vision.furniture import DEPTH, PILLAR, WIDTH, Places, Task
from simulators.vision.glyphs import GLYPH_HEIGHT, GLYPH_WIDTH, put_text

USAGE = '{"NAME": [x, y], ...} with the place of each thing'
STEP = 2
"""Units per letter."""
MAX_NUMBER = 1000
"""Maximum absolute value of a coordinate."""
UNIT, WALL = 3, 3
"""Pixels per unit of length, and thickness of a wall in pixels."""
WOOD, STONE, DARK = (120, 90, 60), (90, 90, 90), (20, 20, 20)
_ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL | re.IGNORECASE)


class LayoutError(ValueError):
    """Raised for an invalid layout; the message is the reason."""


def read_layout(text: str, names: Sequence[str]) -> Places:
    """Return the layout in a text: one JSON object, alone or as <answer>…</answer> after a thought.

    Its keys are exactly the names, its values pairs of numbers from -1,000 to 1,000. Fractions are dropped. Raises
    LayoutError for any other text, such as one with a duplicate key or NaN.
    """
    tagged = _ANSWER.search(text)
    try:
        layout = DECODER.decode(tagged[1] if tagged else text)
    except json.JSONDecodeError:
        raise LayoutError(f"write {USAGE}") from None
    except RecursionError:
        raise LayoutError("the layout is nested too deeply") from None
    except ValueError as error:
        raise LayoutError(str(error)) from None
    if not isinstance(layout, dict):
        raise LayoutError(f"write {USAGE}")
    if unknown := next((name for name in layout if name not in names), None):
        raise LayoutError(f"there is no {to_one_line(unknown, 20)!r} here")
    if missing := next((name for name in names if name not in layout), None):
        raise LayoutError(f"place the {missing}, too")
    return {name: _read_place(name, layout[name]) for name in names}


def read_letters(text: str, names: Sequence[str]) -> Places:
    """Return the layout in a text of two letters A to Z per thing, in the order of `names`: its place in steps of 2.

    Raises LayoutError for other texts.
    """
    letters = text.split()
    if len(letters) != 2 * len(names) or not all(len(letter) == 1 and "A" <= letter <= "Z" for letter in letters):
        raise LayoutError(f"write {2 * len(names)} letters A to Z")
    axes = [STEP * (ord(letter) - ord("A")) for letter in letters]
    return {name: (axes[2 * n], axes[2 * n + 1]) for n, name in enumerate(names)}


def as_letters(lengths: Iterable[int]) -> str:
    """Return lengths as letters A to Z, in steps of 2 and rounded up. Lengths beyond the range become A or Z."""
    return " ".join(chr(ord("A") + min(max(-(-length // STEP), 0), 25)) for length in lengths)


def write_letters(task: Task, places: Places) -> str:
    """Return a layout as letters, the format of `read_letters`."""
    return as_letters(axis for name, _ in task.sizes for axis in places[name])


def describe_briefly(task: Task) -> str:
    """Return a task as one line: each thing's number with its width and depth as letters, then the wishes.

    Wishes name things by their numbers, such as `1 at red` or `4 near 2`.
    """
    numbers = {name: str(number) for number, (name, _) in enumerate(task.sizes, 1)}
    sizes = [f"{numbers[name]} {as_letters(size)}" for name, size in task.sizes]
    kinds = {"at": "at", "beside": "near", "apart": "far"}
    wishes = [f"{numbers[w.thing]} {kinds[w.kind]} {numbers.get(w.other, w.other)}" for w in task.wishes]
    return " ".join([*sizes, *wishes])


def _read_place(name: str, place: object) -> tuple[int, int]:
    if not isinstance(place, list) or len(place) != 2 or not all(map(_is_number, place)):
        raise LayoutError(f"the {name} needs two numbers [x, y] from -{MAX_NUMBER} to {MAX_NUMBER}")
    return int(place[0]), int(place[1])


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= MAX_NUMBER


def draw_layout(task: Task, places: Places, seed: int) -> Pixels:
    """Draw the room from above, [114, 150, 3]: walls, the pillar, and each placed thing with its first letter.

    Things that collide or are misplaced are white. What lies beyond the walls is cut off.
    """
    pixels = draw_ground(np.random.default_rng(seed), DEPTH * UNIT + 2 * WALL, WIDTH * UNIT + 2 * WALL)
    left, top, right, bottom = (COLOURS[colour] for colour in task.walls)
    pixels[:, :WALL], pixels[:, -WALL:] = left, right
    pixels[:WALL, WALL:-WALL], pixels[-WALL:, WALL:-WALL] = top, bottom
    floor = pixels[WALL:-WALL, WALL:-WALL]
    x, y = task.pillar
    floor[y * UNIT : (y + PILLAR) * UNIT, x * UNIT : (x + PILLAR) * UNIT] = STONE
    wrong = task.find_colliding(places) | task.find_misplaced(places)
    for name, (x0, y0, x1, y1) in task.boxes(places).items():
        columns, rows = ([max(edge, 0) * UNIT for edge in edges] for edges in ((x0, x1), (y0, y1)))
        area = floor[rows[0] + 1 : rows[1] - 1, columns[0] + 1 : columns[1] - 1]
        area[:] = INK if name in wrong else WOOD
        row, column = (area.shape[0] - GLYPH_HEIGHT) // 2, (area.shape[1] - GLYPH_WIDTH) // 2
        if row >= 0 and column >= 0:
            put_text(area, name[0], row, column, 1, DARK if name in wrong else INK)
    return pixels
