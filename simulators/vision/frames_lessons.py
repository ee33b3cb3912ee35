"""Grounding lessons of the game `frames`, by kind. A sheet is a picture of up to eight frames, with a label for each.

`lamp`: the sheet of a whole clip after the word `lamp`; labels are the lamp's colours.
`digit`: the sheet of an interval with an event, or one frame, after `read`; labels are the digits shown, or `none`. The
answer is the digit if there is only one.
`edge`: the sheet of a whole clip after `last red` or `first green` and the frames' numbers; labels are the lamp's
colours, and the answer is that frame's number, or the clip's first or last frame if no shown frame has the colour.
`copy`: a question that names a time, or a frame's number; the answer is the act that looks up the time or shows the
frame.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from games.abilities import GroundingLesson, Labels
from games.png import Album, Pixels
from simulators.vision.clips import SIDE, WINDOW, Clip, draw_clip, draw_frame, sample_frames
from simulators.vision.drawing import pick
from simulators.vision.frames_acts import format_clock

NONE = "none"
GAPS = (2 * WINDOW, 5 * WINDOW)
"""Range of the length of an interval around an event; the upper end is excluded."""


class ClipGame(Protocol):
    """Attributes of a `frames` game that lessons use to draw clips of its split."""

    longest: int

    def draw_entity(self, draw: Callable[[], Any], key: Callable[[Any], str]) -> Any: ...


def draw_lesson(game: ClipGame, rng: np.random.Generator, kind: str) -> GroundingLesson:
    """Draw a lesson of a kind in `KINDS` about a clip of the game."""
    clip: Clip = game.draw_entity(lambda: draw_clip(rng, game.longest, bool(rng.integers(2))), repr)
    return LESSONS[kind](clip, rng)


def _draw_lamp(clip: Clip, rng: np.random.Generator) -> GroundingLesson:
    numbers = sample_frames(0, clip.length - 1)
    return _make_sheet_lesson("lamp", clip.draw_sheet(numbers), [clip.colour_at(number) for number in numbers])


def _draw_digit(clip: Clip, rng: np.random.Generator) -> GroundingLesson:
    event = pick(rng, clip.events)
    if not rng.integers(3):
        album = Album()
        number, digit = event.start + int(rng.integers(WINDOW)), str(event.digit)
        return GroundingLesson(("read", album.add(draw_frame(clip, number))), album.pictures, ((((digit,),),),), digit)
    length = int(rng.integers(*GAPS))
    first = max(0, event.start + WINDOW // 2 - int(rng.integers(length)))
    numbers = sample_frames(first, min(first + length, clip.length) - 1)
    words = [NONE if (digit_shown := clip.digit_at(number)) is None else str(digit_shown) for number in numbers]
    digits = {word for word in words if word != NONE}
    return _make_sheet_lesson("read", clip.draw_sheet(numbers), words, digits.pop() if len(digits) == 1 else "")


def _draw_edge(clip: Clip, rng: np.random.Generator) -> GroundingLesson:
    numbers, is_first = sample_frames(0, clip.length - 1), bool(rng.integers(2))
    text = f"{'first green' if is_first else 'last red'} {' '.join(map(str, numbers))}"
    colours = [clip.colour_at(number) for number in numbers]
    return _make_sheet_lesson(text, clip.draw_sheet(numbers), colours, str(clip.find_gap(numbers)[is_first]))


def _draw_copy(clip: Clip, rng: np.random.Generator) -> GroundingLesson:
    if rng.integers(2):
        return GroundingLesson((f"frame {(number := int(rng.integers(clip.length)))}.",), {}, (), f"frame {number}")
    numbers, time = sample_frames(0, clip.length - 1), format_clock(int(rng.integers(clip.length // clip.rate)))
    return _make_sheet_lesson(f"at {time}? {' '.join(map(str, numbers))}", clip.draw_sheet(numbers), [], time)


def _make_sheet_lesson(text: str, pixels: Pixels, words: Sequence[str], answer: str = "") -> GroundingLesson:
    """Return a lesson of a text and a sheet, whose first frames have these labels."""
    album = Album()
    cells = [(word,) for word in words] + [()] * (SIDE**2 - len(words))
    labels: Labels = tuple(tuple(cells[row * SIDE : (row + 1) * SIDE]) for row in range(SIDE))
    return GroundingLesson((text, album.add(pixels)), album.pictures, (labels,), answer)


LESSONS: Mapping[str, Callable[[Clip, np.random.Generator], GroundingLesson]] = {
    "lamp": _draw_lamp, "digit": _draw_digit, "edge": _draw_edge, "copy": _draw_copy,
}  # fmt: skip
KINDS = tuple(LESSONS)
