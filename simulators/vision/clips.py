"""Clips of the game `frames`: a ball moves, a lamp changes its colour once, and digits appear for a moment."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from games.png import Pixels
from simulators.vision.drawing import DIGIT_HEIGHT, DIGIT_WIDTH, crop, draw_ground, pick, put_digit, put_form

FRAME = 32
"""Width and height of a frame in pixels."""
SHOWN = 8
"""Maximum number of frames shown at once."""
SIDE = 3
"""Number of rows and columns of a sheet, a picture of several frames. The last cell is empty."""
WINDOW, APART, EVENTS = 10, 20, 4
"""Length of an event and minimum gap between events, in frames, and number of events per clip."""
SHORTEST, LONGEST = 400, 2000
RATES = (2, 3, 4, 5, 6)
"""Frames per second."""


class Event(NamedTuple):
    """Appearance of a digit for `WINDOW` frames."""

    start: int
    second: int
    """Second of the clip that begins within the event."""
    digit: int

    def holds(self, frame: int) -> bool:
        """Return True if the digit is shown in this frame."""
        return self.start <= frame < self.start + WINDOW


class Clip(NamedTuple):
    """Content of a clip. The lamp changes from red to green in the middle of the first event."""

    length: int
    rate: int
    """Frames per second."""
    events: tuple[Event, ...]
    target: int
    """Index of the event that the question is about."""
    seed: int
    """Seed of irrelevant details: grain, tints and the ball's path."""

    @property
    def target_event(self) -> Event:
        """Event that the question is about."""
        return self.events[self.target]

    @property
    def change(self) -> int:
        """First frame in which the lamp is green."""
        return self.events[0].start + WINDOW // 2

    def frame_at(self, second: int) -> int | None:
        """Return the frame at a second; None beyond the end."""
        return second * self.rate if second * self.rate < self.length else None

    def colour_at(self, frame: int) -> str:
        """Return the lamp's colour in a frame."""
        return "red" if frame < self.change else "green"

    def digit_at(self, frame: int) -> int | None:
        """Return the digit shown in a frame, or None."""
        return next((event.digit for event in self.events if event.holds(frame)), None)

    def find_gap(self, shown_frames: Collection[int]) -> tuple[int, int]:
        """Return the interval in which the lamp changes, as far as the shown frames tell.

        It goes from the last shown frame with a red lamp to the first with a green one, or else from the clip's first
        frame or to its last.
        """
        first = max((frame for frame in shown_frames if frame < self.change), default=0)
        return first, min((frame for frame in shown_frames if frame >= self.change), default=self.length - 1)

    def draw_sheet(self, numbers: Sequence[int]) -> Pixels:
        """Draw up to `SHOWN` frames at half their size as one picture, [48, 48, 3], row by row."""
        size = FRAME // 2
        pixels = np.zeros((SIDE * size, SIDE * size, 3), np.uint8)
        for cell, number in enumerate(numbers):
            top, left = cell // SIDE * size, cell % SIDE * size
            pixels[top : top + size, left : left + size] = crop(
                draw_frame(self, number), (0, 0, FRAME, FRAME), size, size
            )
        return pixels


@lru_cache(maxsize=4096)
def draw_frame(clip: Clip, number: int) -> Pixels:
    """Draw a frame of a clip, [32, 32, 3]. Read-only, because it is cached by content."""
    rng = np.random.default_rng([clip.seed, number])
    pixels = draw_ground(rng, FRAME, FRAME)
    phase = (number * (1 + clip.seed % 3) + clip.seed) % 48
    put_form(pixels, "circle", "blue", (27, 4 + min(phase, 47 - phase)), 3, rng)
    put_form(pixels, "square", clip.colour_at(number), (4, 27), 4, rng)
    digit = clip.digit_at(number)
    if digit is not None:
        row, column = rng.integers(1, 3, 2).tolist()
        put_digit(pixels, digit, 3 + row, (FRAME - DIGIT_WIDTH) // 2 - 4 + column)
    pixels.flags.writeable = False
    return pixels


def sample_frames(first: int, last: int) -> list[int]:
    """Return the numbers of `SHOWN` evenly spaced frames from `first` to `last`, or of all if there are fewer."""
    count = last - first + 1
    if count <= SHOWN:
        return [*range(first, last + 1)]
    return [first + (2 * number + 1) * count // (2 * SHOWN) for number in range(SHOWN)]


def format_frames(clip: Clip, numbers: Sequence[int], as_sheet: bool) -> list[str | Pixels]:
    """Return frames as message parts: each after its number or, if `as_sheet`, one sheet after all numbers."""
    if as_sheet and len(numbers) > 1:
        return [" ".join(map(str, numbers)), clip.draw_sheet(numbers)]
    return [part for number in numbers for part in (str(number), draw_frame(clip, number))]


def draw_clip(rng: np.random.Generator, longest: int, is_timed: bool) -> Clip:
    """Draw a clip of at most `longest` frames. The question is about the lamp's event, or about another if `is_timed`.

    No digit is shown in the frames that `sample_frames` takes from the whole clip.
    """
    length, rate = int(rng.integers(SHORTEST, longest + 1)), pick(rng, RATES)
    frames, events = sample_frames(0, length - 1), list[Event]()
    for second in rng.permutation(np.arange(1 + WINDOW // rate, (length - WINDOW) // rate)).tolist():
        start = second * rate - int(rng.integers(WINDOW))
        event = Event(start, second, int(rng.integers(10)))
        is_free = not any(event.holds(frame) for frame in frames)
        if is_free and all(abs(start - other.start) >= WINDOW + APART for other in events):
            events.append(event)
        if len(events) == EVENTS:
            break
    target = int(rng.integers(1, EVENTS)) if is_timed else 0
    return Clip(length, rate, tuple(events), target, int(rng.integers(2**31)))


assert DIGIT_HEIGHT + 6 < FRAME and SHOWN < SIDE**2
