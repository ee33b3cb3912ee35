"""A turned, mirrored or dimmed scene: write image code to mend it and to look closer, then answer (CodeVision)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from games.base import whole_number
from games.contracts import TOOL
from simulators.vision.drawing import DIGITS, crop, pick, read_digit
from simulators.vision.image_code import OPERATIONS, CodeError, Picture, run
from simulators.vision.png import Pixels
from simulators.vision.scenes import CELL, Scene, cell_box, draw_scene, mark_corner, overlap, paint
from simulators.vision.seeing import Seeing
from simulators.vision.transform_players import PLAYERS

RIGHT, FORMAT, RECALL, BONUS, OVERUSE, SPURIOUS = "right", "format", "recall", "bonus", "overuse", "spurious"
DIM = 8
"""Divisor of a dimmed picture's levels."""
SPARE = 2
"""Runs beyond the number of mandatory operations that are no overuse."""
BRIGHTER = ("brighten", "contrast")


class Transform(Seeing):
    """Game of one viewer, who mends a scene's picture by code and says the digit in the wanted object's cell.

    The scene is one of `zoom`, with a yellow mark at its top left. Its picture may be turned, mirrored and dimmed, and
    the viewer sees an overview. Acts: image code (`image_code`) on `image`, the picture, and `last`, the newest result,
    which is shown at 48 x 48 pixels; or a digit, which ends the match. Code that cannot be run is answered by an error.
    Option besides Simulator's: max_turns, 2 to 32, acts in all.

    CodeVision's rewards, paid with the answer: "right", 1; "format", 0.1 if all code ran; "recall", the mean over the
    mandatory operations (crop, by intersection over union with the cell; an upright result, if the picture was turned
    or mirrored; a brightened one, if it was dimmed); "bonus", 0.2 for a right answer with an operation that was not
    mandatory; "overuse", -0.5 for more than two runs beyond the mandatory operations; "spurious", -0.5 for `rotate` or
    `flip` on an upright picture.
    """

    name = "transform"
    metadata: ClassVar[dict[str, Any]] = {"name": "transform_v0", "render_modes": ["ansi"]}
    reward_parts: Mapping[str, str] = {
        RIGHT: "the target's digit", FORMAT: "0.1 if all code ran", RECALL: "share of mandatory operations",
        BONUS: "0.2 for another useful operation", OVERUSE: "-0.5 for too many runs", SPURIOUS: "-0.5 for a wrong turn",
    }  # fmt: skip
    theory: ClassVar[Mapping[str, float]] = {"blind": 0.1}
    players = PLAYERS
    floor = 0.1

    def __init__(self, *, max_turns: int = 6, **options: Any) -> None:
        self.max_turns = whole_number("max_turns", max_turns, least=2, most=32)
        super().__init__(**options)

    def set_up(self, rng: np.random.Generator, options: Mapping[str, Any]) -> None:
        """Draw a scene and what was done to its picture. The reset option `judged` replaces the digit that is right."""
        self.scene: Scene = self.draw_entity(lambda: draw_scene(rng, 3, True), repr)
        self.digit = int(options.get("judged", self.scene.digits[self.scene.target]))
        self.turned, self.flipped, self.dimmed = pick(rng, (0, 90, 180, 270)), *(rng.integers(2, size=2) > 0).tolist()
        self.image = self.newest = self._damage(mark_corner(paint(self.scene, rng)))
        self.runs = self.errors = 0
        self.called: set[str] = set()
        self.done: dict[str, float] = {"crop": 0.0}
        if not self.image.is_upright:
            self.done["upright"] = 0.0
        if self.dimmed:
            self.done["brighten"] = 0.0
        self.right = False
        self.show(f"find {self.scene.wanted}", _shown(self.image))

    def _damage(self, pixels: Pixels) -> Picture:
        """Return the picture mirrored, then turned counter-clockwise, and dimmed, as drawn for this match."""
        levels = pixels // DIM if self.dimmed else pixels
        picture = Picture.of(levels)
        picture = picture.moved(lambda array: array[:, ::-1]) if self.flipped else picture
        return picture.moved(lambda array: np.rot90(array, self.turned // 90))

    def rules(self) -> str:
        """Return the task and the acts, as text."""
        return (
            "Find the object and say its digit. The picture may be turned, mirrored or dark: the yellow mark belongs "
            "at the top left, its longer arm along the top. Mend it and look closer by code, such as "
            "image.rotate(90).flip().brighten(8).crop(0, 0, 332, 332): from 0 to 999. `last` is the newest result. "
            f"Operations: {', '.join(OPERATIONS)}. {self.max_turns} turns in all; then say the digit."
        )

    def public(self) -> dict[str, Any]:
        """Return the `wanted` object, the `runs` of code, and `turns_left`."""
        left = self.max_turns - self.turns
        return {"wanted": str(self.scene.wanted), "runs": self.runs, "turns_left": left}

    def play(self, seat: str, act: str) -> str:
        """Run code or answer. Returns the digit or the code's operations."""
        if (digit := read_digit(act)) is not None:
            return self._answer(seat, digit)
        self.runs += 1
        try:
            self.newest, called = run(act, {"image": self.image, "last": self.last})
        except CodeError as why:
            self.errors += 1
            self.show(f"Error: {why}", sender=TOOL)
            called = ()
        else:
            self._count(called)
            self.show(_shown(self.newest), sender=TOOL)
        if self.turns == self.max_turns - 1:
            self.end("turns", "No turns are left, and nothing was answered.")
        return " ".join(called) or "nothing"

    def _count(self, called: tuple[str, ...]) -> None:
        self.called |= {*called}
        found = {
            "crop": overlap(self.newest.box, cell_box(self.scene.target, 3)),
            "upright": float(self.newest.is_upright),
            "brighten": float(self.newest.pixels.max() > 255 // 2 and bool(self.called & {*BRIGHTER})),
        }
        self.done = {name: max(value, found[name]) for name, value in self.done.items()}

    def _answer(self, seat: str, digit: int) -> str:
        self.right = digit == self.digit
        self.pay(seat, RIGHT, float(self.right))
        self.pay(seat, FORMAT, 0.0 if self.errors else 0.1)
        self.pay(seat, RECALL, self.recall)
        useful = {"resize", *(() if self.dimmed else BRIGHTER)}
        self.pay(seat, BONUS, 0.2 if self.right and self.called & useful else 0.0)
        self.pay(seat, OVERUSE, -0.5 if self.runs > len(self.done) + SPARE else 0.0)
        self.pay(seat, SPURIOUS, -0.5 if self.spurious else 0.0)
        self.end("answered", "That is right." if self.right else "That is wrong.")
        return str(digit)

    @property
    def recall(self) -> float:
        """Mean, over the mandatory operations, of how far they were done."""
        return sum(self.done.values()) / len(self.done)

    @property
    def spurious(self) -> bool:
        """Whether an upright picture was turned or mirrored."""
        return "upright" not in self.done and bool(self.called & {"rotate", "flip"})

    def figures(self) -> dict[str, float | bool | str]:
        """Return `score`, `success`, `recall`, `runs`, `errors`, `spurious`, and `turned`, `flipped` and `dimmed`."""
        damage = {"turned": self.turned, "flipped": self.flipped, "dimmed": self.dimmed}
        did = {"recall": self.recall, "runs": self.runs, "errors": self.errors, "spurious": self.spurious}
        return {"score": float(self.right), "success": self.right, **did, **damage}

    def hidden(self) -> dict[str, tuple[str, ...]]:
        """Return texts that reveal the digit."""
        return {"digit": (f"digit {self.digit}", DIGITS[self.digit])}

    def twin_deals(self, seat: str, rng: np.random.Generator) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return reset options of the same scene with two digits that count as right, which the seat never learns."""
        one, two = rng.permutation(10)[:2].tolist()
        return {"judged": one}, {"judged": two}


def _shown(picture: Picture) -> Pixels:
    """Return a picture as the viewer sees it: `CELL` x `CELL` pixels, the nearest ones."""
    height, width = picture.pixels.shape[:2]
    return crop(picture.pixels, (0, 0, width, height), CELL, CELL)
