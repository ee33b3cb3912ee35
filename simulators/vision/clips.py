"""Clips of `frames`: long films of a ball, with a lamp that changes once, in which digits are shown for a moment."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from games.png import Pixels
from simulators.vision.drawing import DIGIT_HEIGHT, DIGIT_WIDTH, ground, pick, put_digit, put_form

FRAME = 32
"""Width and height of a frame in pixels."""
SHOWN = 8
"""Number of frames that are shown at once."""
WINDOW, APART, EVENTS = 10, 20, 4
"""Length of an event and least distance of two events in frames, and events per clip."""
SHORTEST, LONGEST = 400, 2000
RATES = (2, 3, 4, 5, 6)
"""Frames per second."""


class Event(NamedTuple):
    """Digit that is shown for `WINDOW` frames."""

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
    """Seed of what does not matter: grain, tints and the ball's way."""

    @property
    def wanted(self) -> Event:
        """Event that the question is about."""
        return self.events[self.target]

    @property
    def change(self) -> int:
        """First frame in which the lamp is green."""
        return self.events[0].start + WINDOW // 2

    def frame_at(self, second: int) -> int | None:
        """Return the frame at a second; None beyond the end."""
        return second * self.rate if second * self.rate < self.length else None

    def frame(self, number: int) -> Pixels:
        """Draw a frame, [32, 32, 3]."""
        rng = np.random.default_rng([self.seed, number])
        pixels = ground(rng, FRAME, FRAME)
        way = (number * (1 + self.seed % 3) + self.seed) % 48
        put_form(pixels, "circle", "blue", (27, 4 + min(way, 47 - way)), 3, rng)
        put_form(pixels, "square", "red" if number < self.change else "green", (4, 27), 4, rng)
        shown = next((event for event in self.events if event.holds(number)), None)
        if shown:
            row, column = rng.integers(1, 3, 2).tolist()
            put_digit(pixels, shown.digit, 3 + row, (FRAME - DIGIT_WIDTH) // 2 - 4 + column)
        return pixels


def sample(first: int, last: int) -> list[int]:
    """Return `SHOWN` frames spread evenly from `first` to `last`, fewer if there are not so many."""
    count = last - first + 1
    if count <= SHOWN:
        return [*range(first, last + 1)]
    return [first + (2 * number + 1) * count // (2 * SHOWN) for number in range(SHOWN)]


def draw_clip(rng: np.random.Generator, longest: int, is_timed: bool) -> Clip:
    """Draw a clip of at most `longest` frames. The question is about the lamp's event, or about another if `is_timed`.

    No digit is shown in the frames that `sample` takes from the whole clip.
    """
    length, rate = int(rng.integers(SHORTEST, longest + 1)), pick(rng, RATES)
    shown, events = sample(0, length - 1), list[Event]()
    for second in rng.permutation(np.arange(1 + WINDOW // rate, (length - WINDOW) // rate)).tolist():
        start = second * rate - int(rng.integers(WINDOW))
        event = Event(start, second, int(rng.integers(10)))
        is_free = not any(event.holds(frame) for frame in shown)
        if is_free and all(abs(start - other.start) >= WINDOW + APART for other in events):
            events.append(event)
        if len(events) == EVENTS:
            break
    target = int(rng.integers(1, EVENTS)) if is_timed else 0
    return Clip(length, rate, tuple(events), target, int(rng.integers(2**31)))


assert DIGIT_HEIGHT + 6 < FRAME
