"""Damage to a picture of `transform`, besides its reduction."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from games.png import Pixels
from simulators.vision.drawing import pick
from simulators.vision.image_code import Picture

DIM = 8
"""Divisor of a dimmed picture's levels."""
BRIGHT = 127
"""Level that a brightened picture exceeds somewhere, and a dimmed one nowhere."""


class Damage(NamedTuple):
    """Damage of a picture, in the order in which it is done."""

    flipped: bool
    """Whether left and right are exchanged."""
    turned: int
    """Degrees counter-clockwise: 0, 90, 180 or 270."""
    dimmed: bool

    @classmethod
    def draw(cls, rng: np.random.Generator) -> Damage:
        """Draw a damage; one in sixteen is none."""
        return cls(bool(rng.integers(2)), pick(rng, (0, 90, 180, 270)), bool(rng.integers(2)))

    def apply(self, pixels: Pixels) -> Picture:
        """Return the damaged picture."""
        picture = Picture.of(pixels // DIM if self.dimmed else pixels)
        if self.flipped:
            picture = picture.move_pixels(lambda array: array[:, ::-1])
        return picture.move_pixels(lambda array: np.rot90(array, self.turned // 90))
