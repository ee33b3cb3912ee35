"""A turned, mirrored or dimmed picture: repair it and zoom in by image code, then answer (CodeVision)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from games.base import flag, whole_number
from games.contracts import TOOL
from simulators.vision.damage import BRIGHT, Damage
from simulators.vision.image_code import OPERATIONS, CodeError, run, spell_out
from simulators.vision.scenes import Scene, cell_box, compute_iou, draw_scene, mark_corner, paint, resize
from simulators.vision.seeing import JUDGED, DigitWorld, read_digit
from simulators.vision.transform_lessons import KINDS, draw_lesson
from simulators.vision.transform_players import PLAYERS

RIGHT, FORMAT, RECALL, BONUS, OVERUSE, SPURIOUS = "right", "format", "recall", "bonus", "overuse", "spurious"
SPARE = 2
"""Number of runs allowed beyond the mandatory operations before they are penalised as overuse."""
CODE = "image.rotate(90).flip().brighten(8).crop(0, 0, 332, 332)"
TERSE = "In short: rotate 1 flip bright crop A, for quarter turns and a ninth of `last`, A to I. "
BRIGHTER = ("brighten", "contrast")


class Transform(DigitWorld):
    """Single-player game of repairing a scene's picture by code, to say the digit in the wanted object's cell.

    The scene is one of `zoom`, with a yellow mark at its top left. Its picture may be rotated, mirrored and dimmed, and
    the viewer sees an overview. Acts: image code (`image_code`) on `image`, the picture, and `last`, the newest result,
    which is shown at 48 x 48 pixels; or a digit, which ends the match. Invalid code gets an error message.
    Options in addition to Simulator's: max_turns, the maximum number of acts, 2 to 32; terse, which allows code on
    `last` as words such as `rotate 1 flip bright crop E` (`image_code.spell_out`).

    CodeVision's rewards, paid with the answer: "right", 1; "format", 0.1 if all code ran; "recall", the mean over the
    mandatory operations (crop, by intersection over union with the cell; an upright result, if the picture was rotated
    or mirrored; a brightened one, if it was dimmed); "bonus", 0.2 for a right answer if the code called `resize`, or
    `brighten` or `contrast` although the picture was not dimmed; "overuse", -0.5 for more than two runs beyond the
    mandatory operations; "spurious", -0.5 for `rotate` or `flip` on an upright picture.
    """

    name = "transform"
    metadata: ClassVar[dict[str, Any]] = {"name": "transform_v0", "render_modes": ["ansi"]}
    reward_parts: Mapping[str, str] = {
        RIGHT: "the target's digit", FORMAT: "0.1 if all code ran", RECALL: "share of mandatory operations",
        BONUS: "0.2 for another useful operation", OVERUSE: "-0.5 for too many runs", SPURIOUS: "-0.5 for a wrong turn",
    }  # fmt: skip
    players = PLAYERS
    lesson_kinds = KINDS
    draw_lesson = draw_lesson

    def __init__(self, *, max_turns: int = 6, terse: bool = False, **options: Any) -> None:
        self.terse = flag("terse", terse)
        self.max_turns = whole_number("max_turns", max_turns, least=2, most=32)
        super().__init__(**options)

    def set_up(self, rng: np.random.Generator, options: Mapping[str, Any]) -> None:
        """Draw a scene and its damage (rotation, mirroring, dimming), and show the overview."""
        self.scene: Scene = self.draw_scene(rng)
        self.digit = int(options.get(JUDGED, self.scene.digits[self.scene.target]))
        self.damage = Damage.draw(rng)
        self.image = self.newest = self.damage.apply(mark_corner(paint(self.scene, rng)))
        self.runs = self.errors = 0
        self.done_operations: set[str] = set()
        self.done: dict[str, float] = {"crop": 0.0}
        if not self.image.is_upright:
            self.done["upright"] = 0.0
        if self.damage.dimmed:
            self.done["brighten"] = 0.0
        self.right = False
        self.show(f"find {self.scene.target_thing}", resize(self.image.pixels))

    def draw_scene(self, rng: np.random.Generator) -> Scene:
        """Draw a scene from the game's split."""
        return self.draw_entity(lambda: draw_scene(rng, 3, True), repr)

    def rules(self) -> str:
        """Return the task and the acts, as text."""
        return (
            "Find the object and say its digit. The picture may be turned, mirrored or dark: the yellow mark belongs "
            "at the top left, its longer arm along the top. Mend it and look closer by code, such as "
            f"{CODE}: from 0 to 999. `last` is the newest result. {TERSE if self.terse else ''}"
            f"Operations: {', '.join(OPERATIONS)}. {self.max_turns} turns in all; then say the digit."
        )

    def public(self) -> dict[str, Any]:
        """Return the `wanted` object, the `runs` of code, and `turns_left`."""
        turns_left = self.max_turns - self.turns
        return {"wanted": str(self.scene.target_thing), "runs": self.runs, "turns_left": turns_left}

    def play(self, seat: str, act: str) -> str:
        """Run image code or take the answer. Returns the digit, or the operations that the code called."""
        if (digit := read_digit(act)) is not None:
            return self._answer(seat, digit)
        self.runs += 1
        try:
            code = spell_out(act) if self.terse else act
            self.newest, operations = run(code, {"image": self.image, "last": self.newest})
        except CodeError as error:
            self.errors += 1
            self.show(f"Error: {error}", sender=TOOL)
            operations = ()
        else:
            self._count(operations)
            self.show(resize(self.newest.pixels), sender=TOOL)
        if self.turns == self.max_turns - 1:
            self.end("turns", "No turns are left, and nothing was answered.")
        return " ".join(operations) or "nothing"

    def _count(self, operations: tuple[str, ...]) -> None:
        self.done_operations |= {*operations}
        scores = {
            "crop": compute_iou(self.newest.box, cell_box(self.scene.target, 3)),
            "upright": float(self.newest.is_upright),
            "brighten": float(self.newest.pixels.max() > BRIGHT),
        }
        self.done = {name: max(value, scores[name]) for name, value in self.done.items()}

    def _answer(self, seat: str, digit: int) -> str:
        self.right = digit == self.digit
        self.pay(seat, RIGHT, float(self.right))
        self.pay(seat, FORMAT, 0.0 if self.errors else 0.1)
        self.pay(seat, RECALL, self.recall)
        useful = {"resize", *(() if self.damage.dimmed else BRIGHTER)}
        self.pay(seat, BONUS, 0.2 if self.right and self.done_operations & useful else 0.0)
        self.pay(seat, OVERUSE, -0.5 if self.runs > len(self.done) + SPARE else 0.0)
        self.pay(seat, SPURIOUS, -0.5 if self.has_spurious_turn else 0.0)
        self.end("answered", "That is right." if self.right else "That is wrong.")
        return str(digit)

    @property
    def recall(self) -> float:
        """Mean score of the mandatory operations, each from 0 (not done) to 1."""
        return sum(self.done.values()) / len(self.done)

    @property
    def has_spurious_turn(self) -> bool:
        """True if the code rotated or mirrored a picture that was upright from the start."""
        return "upright" not in self.done and bool(self.done_operations & {"rotate", "flip"})

    def figures(self) -> dict[str, float | bool | str]:
        """Return `score`, `success`, `recall`, `runs`, `errors`, `spurious`, and `turned`, `flipped` and `dimmed`."""
        counts = {"recall": self.recall, "runs": self.runs, "errors": self.errors, "spurious": self.has_spurious_turn}
        return {"score": float(self.right), "success": self.right, **counts, **self.damage._asdict()}
