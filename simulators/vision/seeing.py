"""Base class of visual worlds: a store of the match's pictures, and messages with images among their texts."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from games.contracts import REFEREE, ContentPart, Image, Message
from simulators.base import Simulator
from simulators.vision.png import Pixels, encode

VIEWER = "viewer"


class Album:
    """Pictures of a match or a lesson, by hash."""

    def __init__(self) -> None:
        self.pictures: dict[str, bytes] = {}

    def add(self, pixels: Pixels) -> Image:
        """Keep RGB pixels as a PNG file, and return the image part that names it."""
        data = encode(pixels)
        image = Image(hashlib.sha256(data).hexdigest(), "image/png", pixels.shape[1], pixels.shape[0])
        self.pictures[image.hash] = data
        return image


class Seeing(Simulator):
    """Base class of visual worlds with one seat. Nobody else is there to talk to."""

    seats = (VIEWER,)

    def __init__(self, **options: Any) -> None:
        super().__init__(talk=False, **options)

    def reset(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> None:
        """Start a match without pictures of an earlier one."""
        self.album = Album()
        super().reset(seed, options)

    def picture(self, hash: str) -> bytes:
        """Return a picture of this match. Raises KeyError for another hash."""
        return self.album.pictures[hash]

    def show(self, *parts: str | Pixels, sender: str = REFEREE) -> None:
        """Send the seat a message of texts and pictures in order."""
        shown: Sequence[ContentPart] = [part if isinstance(part, str) else self.album.add(part) for part in parts]
        self._tell(Message(sender, tuple(shown)), ())

    def private(self, seat: str) -> dict[str, Any]:
        """Return {}: the seat has no private facts."""
        return {}
