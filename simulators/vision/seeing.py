"""Base class of visual worlds: a store of the match's pictures, and messages with images among their texts."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from games.abilities import GroundingLesson
from games.contracts import REFEREE, TOOL, ContentPart, Image, Message
from games.png import Album, Pixels
from simulators.base import Simulator
from simulators.vision.drawing import DIGITS

VIEWER = "viewer"
JUDGED = "judged"
"""Reset option that replaces the right answer, to test that views do not depend on it."""


class VisualWorld(Simulator):
    """Base class of visual worlds with one seat, and therefore without talk."""

    seats = (VIEWER,)
    errors: int
    lesson_kinds: Sequence[str]
    """Kinds of lessons that `draw_lesson` draws."""
    draw_lesson: Callable[[np.random.Generator, str], GroundingLesson]

    def __init__(self, **options: Any) -> None:
        super().__init__(talk=False, **options)

    def reset(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> None:
        """Start a match without pictures of an earlier one."""
        self.album = Album()
        super().reset(seed, options)

    def lesson(self, rng: random.Random, kind: str) -> GroundingLesson:
        """Draw a lesson. Raises ValueError for a kind that is not in `lesson_kinds`."""
        if kind not in self.lesson_kinds:
            raise ValueError(f"there is no lesson '{kind}'; there are: {', '.join(self.lesson_kinds)}")
        return self.draw_lesson(np.random.default_rng(rng.getrandbits(64)), kind)

    def picture(self, hash: str) -> bytes:
        """Return a picture of this match. Raises KeyError for another hash."""
        return self.album.pictures[hash]

    def show(self, *parts: str | Pixels, sender: str = REFEREE) -> Sequence[Image]:
        """Send the seat a message of texts and pictures in order, and return its images."""
        content: Sequence[ContentPart] = [part if isinstance(part, str) else self.album.add(part) for part in parts]
        message = Message(sender, tuple(content))
        self._tell(message, ())
        return message.images

    def fail(self, reason: str) -> None:
        """Count an error in `errors` (which a subclass sets to 0), and show it to the viewer."""
        self.errors += 1
        self.show(f"Error: {reason}", sender=TOOL)


class DigitWorld(VisualWorld):
    """Base class of visual worlds in which the viewer says one digit; a subclass's `set_up` draws `digit`."""

    theory: ClassVar[Mapping[str, float]] = {"blind": 0.1}
    floor = 0.1
    digit: int
    """Digit that counts as right. The reset option `judged` replaces it."""

    def hidden(self) -> dict[str, tuple[str, ...]]:
        """Return texts that reveal the digit."""
        return {"digit": (f"digit {self.digit}", DIGITS[self.digit])}

    def twin_deals(self, seat: str, rng: np.random.Generator) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return reset options of two deals with the same world but different right digits."""
        first, second = rng.permutation(10)[:2].tolist()
        return {JUDGED: first}, {JUDGED: second}


def read_digit(text: str) -> int | None:
    """Return the digit that a text names in a figure or a word, with or without "answer:" before it, or None."""
    word = text.strip().lower().removeprefix("answer:").strip()
    if word in DIGITS:
        return DIGITS.index(word)
    return int(word) if len(word) == 1 and word in "0123456789" else None
