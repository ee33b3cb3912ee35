"""Damage to a picture of the game `transform`: mirroring, rotation and dimming."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from games.png import Pixels
from simulators.vision.drawing import pick
from simulators.vision.image_code import Picture

DIM = 8
"""Divisor of a dimmed picture's levels."""
BRIGHT = 127
"""Threshold level: a brightened picture has pixels above it, a dimmed one has none."""


class Damage(NamedTuple):
    """Transformations of a picture: mirroring, rotation and dimming."""

    flipped: bool
    """Whether the picture is mirrored left to right, before it is turned."""
    turned: int
    """Degrees counter-clockwise: 0, 90, 180 or 270."""
    dimmed: bool

    @classmethod
    def draw(cls, rng: np.random.Generator) -> Damage:
        """Draw a combination uniformly; one in sixteen leaves the picture unchanged."""
        return cls(bool(rng.integers(2)), pick(rng, (0, 90, 180, 270)), bool(rng.integers(2)))

    def apply(self, pixels: Pixels) -> Picture:
        """Return the transformed picture."""
        picture = Picture.of(pixels // DIM if self.dimmed else pixels)
        if self.flipped:
            picture = picture.move_pixels(lambda array: array[:, ::-1])
        return picture.move_pixels(lambda array: np.rot90(array, self.turned // 90))
