"""Image code that models write, such as `image.rotate(90).crop(0, 0, 332, 332)`: parsed, checked and interpreted.

The code is never executed as Python. A program has at most `MAX_STATEMENTS` lines, each `name = IMAGE` or `IMAGE`. An
IMAGE is a known name followed by calls of `OPERATIONS` with numbers as arguments.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from games.png import Pixels
from games.python_source import parse_python
from simulators.vision.boxes import SCALE, Box, clamp_box
from simulators.vision.drawing import crop

MAX_CHARACTERS, MAX_STATEMENTS, MAX_CALLS, MAX_SIZE = 400, 8, 12, 256
"""Maximum characters, statements and calls of a program, and maximum side of an image in pixels."""
BRIGHTEST = 16
"""Largest factor of `brighten` and `contrast`."""


class CodeError(Exception):
    """Raised for code that cannot be run; the message is the reason, in one line."""


@dataclass(frozen=True)
class Picture:
    """Image that records where in the original picture each of its pixels comes from."""

    pixels: Pixels
    rows: NDArray[np.int64]
    """[height, width], row in the original picture; `columns` is the column."""
    columns: NDArray[np.int64]

    @classmethod
    def of(cls, pixels: Pixels) -> Picture:
        """Return an original picture."""
        rows, columns = np.mgrid[: pixels.shape[0], : pixels.shape[1]]
        return cls(pixels, rows, columns)

    def move_pixels(self, move: Callable[[NDArray[Any]], NDArray[Any]]) -> Picture:
        """Return the picture with its pixels, and their recorded origins, rearranged by a function of arrays."""
        return Picture(move(self.pixels), move(self.rows), move(self.columns))

    @property
    def is_upright(self) -> bool:
        """True if it is neither rotated nor mirrored. False if it shows only one row or column of the original."""
        return bool(self.rows[-1, 0] > self.rows[0, 0] and self.columns[0, -1] > self.columns[0, 0])

    @property
    def box(self) -> Box:
        """Bounding box of the part of the original picture that it shows."""
        return (
            int(self.columns.min()), int(self.rows.min()), int(self.columns.max()) + 1, int(self.rows.max()) + 1,
        )  # fmt: skip


def _rotate(picture: Picture, angle: float) -> Picture:
    if angle % 90:
        raise CodeError("rotate takes 90, 180 or 270, counter-clockwise")
    return picture.move_pixels(lambda array: np.rot90(array, int(angle) // 90 % 4))


def _flip(picture: Picture) -> Picture:
    return picture.move_pixels(lambda array: array[:, ::-1])


def _crop(picture: Picture, *edges: float) -> Picture:
    height, width = picture.pixels.shape[:2]
    box = clamp_box([int(edge) for edge in edges], width, height)
    if box is None:
        raise CodeError("crop takes x0, y0, x1, y1 from 0 to 999, with x0 < x1 and y0 < y1")
    left, top, right, bottom = box
    return picture.move_pixels(lambda array: array[top:bottom, left:right])


def _brighten(picture: Picture, factor: float) -> Picture:
    return replace(picture, pixels=_scale(picture.pixels, factor, 0))


def _contrast(picture: Picture, factor: float) -> Picture:
    return replace(picture, pixels=_scale(picture.pixels, factor, 128))


def _scale(pixels: Pixels, factor: float, about: int) -> Pixels:
    if not 0 < factor <= BRIGHTEST:
        raise CodeError(f"a factor is above 0 and at most {BRIGHTEST}")
    levels = about + (pixels.astype(np.int64) - about) * round(factor * 100) // 100
    return levels.clip(0, 255).astype(np.uint8)


def _resize(picture: Picture, width: float, height: float) -> Picture:
    if not (1 <= width <= MAX_SIZE and 1 <= height <= MAX_SIZE):
        raise CodeError(f"an image is 1 to {MAX_SIZE} pixels wide and high")
    full = (0, 0, picture.pixels.shape[1], picture.pixels.shape[0])
    return picture.move_pixels(lambda array: crop(array, full, int(height), int(width)))


OPERATIONS: Mapping[str, tuple[int, Callable[..., Picture]]] = {
    "rotate": (1, _rotate), "flip": (0, _flip), "crop": (4, _crop), "brighten": (1, _brighten),
    "contrast": (1, _contrast), "resize": (2, _resize),
}  # fmt: skip
"""Number of arguments and function of each operation."""
_WORD = re.compile(r"rotate ([1-3])|crop ([A-Ia-i])|(flip|bright)", re.ASCII)
_WORDS = re.compile(rf"(?:{_WORD.pattern})(?: (?:{_WORD.pattern}))*", re.ASCII)


def spell_out(text: str) -> str:
    """Translate words such as `rotate 1 flip bright crop E` to code on `last`. Returns other texts unchanged.

    `rotate` counts quarter turns counter-clockwise, `bright` multiplies levels by eight, and `crop` keeps one ninth of
    the picture, A to I row by row.
    """
    text = text.strip()
    if not _WORDS.fullmatch(text):
        return text
    return "last" + "".join(_spell_match(*match.groups()) for match in _WORD.finditer(text))


def _spell_match(turns: str | None, cell: str | None, word: str | None) -> str:
    if turns:
        return f".rotate({90 * int(turns)})"
    if cell:
        return ".crop({}, {}, {}, {})".format(*compute_ninth(ord(cell.upper()) - ord("A")))
    return ".flip()" if word == "flip" else ".brighten(8)"


def compute_ninth(cell: int) -> Box:
    """Return the box of a cell of a 3 x 3 grid, in thousandths of the picture, as arguments of `crop`."""
    left, top, right, bottom = (
        edge * SCALE // 3 for edge in (cell % 3, cell // 3, cell % 3 + 1, cell // 3 + 1)
    )  # fmt: skip
    return left, top, right - 1, bottom - 1


def run(code: str, images: Mapping[str, Picture]) -> tuple[Picture, tuple[str, ...]]:
    """Interpret code on images by name, and return the image of its last line and the names of the operations called.

    Raises CodeError for code that breaks a rule.
    """
    if len(code) > MAX_CHARACTERS:
        raise CodeError(f"code has at most {MAX_CHARACTERS} characters")
    try:
        body = parse_python(code.strip()).body
    except ValueError:
        raise CodeError("this is no code: write one like image.rotate(90)") from None
    if not 0 < len(body) <= MAX_STATEMENTS:
        raise CodeError(f"code is 1 to {MAX_STATEMENTS} lines")
    program = _Program(dict(images))
    return [program.execute(statement) for statement in body][-1], tuple(program.operations)


class _Program:
    """Interpreter of one program: its images by name, and the operations called so far."""

    def __init__(self, images: dict[str, Picture]) -> None:
        self.images, self.operations = images, list[str]()

    def execute(self, statement: ast.stmt) -> Picture:
        if isinstance(statement, ast.Expr):
            return self.evaluate(statement.value)
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            target = statement.targets[0]
            if isinstance(target, ast.Name):
                self.images[target.id] = self.evaluate(statement.value)
                return self.images[target.id]
        raise CodeError("a line is an image or name = image")

    def evaluate(self, node: ast.expr) -> Picture:
        """Evaluate an expression to an image. The code's maximum length bounds the recursion."""
        if isinstance(node, ast.Name):
            if node.id not in self.images:
                raise CodeError(f"there is no image {node.id[:40]}; there are: {', '.join(self.images)[:200]}")
            return self.images[node.id]
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)) or node.keywords:
            raise CodeError("only images and calls such as image.rotate(90) are allowed")
        name = node.func.attr
        if name not in OPERATIONS:
            raise CodeError(f"there is no operation {name[:40]}; there are: {', '.join(OPERATIONS)}")
        arity, operate = OPERATIONS[name]
        numbers = _read_numbers(node.args)
        if len(numbers) != arity:
            raise CodeError(f"{name} takes {arity} numbers")
        picture = self.evaluate(node.func.value)
        self.operations.append(name)
        if len(self.operations) > MAX_CALLS:
            raise CodeError(f"code has at most {MAX_CALLS} calls")
        return operate(picture, *numbers)


def _read_numbers(nodes: Sequence[ast.expr]) -> list[float]:
    """Return the values of number literals with or without a sign. Raises CodeError for anything else."""
    numbers = []
    for node in nodes:
        sign = 1
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            node, sign = node.operand, -1
        value = node.value if isinstance(node, ast.Constant) else None
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e9:
            raise CodeError("arguments are numbers")
        numbers.append(sign * value)
    return numbers
