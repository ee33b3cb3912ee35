"""A test game whose messages contain images; its acts do not depend on them."""

import hashlib
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from games.base import IllegalAct, TextGame
from games.contracts import Image
from tests.factories.pictures import make_png

PIXELS = make_png(4, 4)
IMAGE = Image(hashlib.sha256(PIXELS).hexdigest(), "image/png", 4, 4)


class Gallery(TextGame):
    """Game that shows its only seat an image at the start and after each act."""

    name = "gallery"
    seats = ("visitor",)
    metadata: ClassVar[dict[str, Any]] = {"name": "gallery_v0"}

    def set_up(self, rng: np.random.Generator, options: Mapping[str, Any]) -> None:
        self.tell("What is this?", images=[IMAGE])

    def rules(self) -> str:
        return "Say what you see: A or B."

    def public(self) -> dict[str, Any]:
        return {"seen": self.turns}

    def legal(self, seat: str) -> list[str]:
        return ["A", "B"]

    def play(self, seat: str, act: str) -> str:
        if act.strip() not in ("A", "B"):
            raise IllegalAct("say A or B")
        self.pay(seat, "taste", float(act.strip() == "A"))
        self.tell("", images=[IMAGE])
        if self.turns == 2:
            self.end("seen", "That was all.")
        return act.strip()

    def picture(self, hash: str) -> bytes:
        return {IMAGE.hash: PIXELS}[hash]
