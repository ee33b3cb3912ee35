"""Liar's dice: bid on all dice while seeing only your own, or doubt the last bid. Rules by OpenSpiel."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from games.base import whole_number
from games.families.openspiel import OpenSpielGame


@functools.cache
def list_words(dice: int, sides: int) -> tuple[str, ...]:
    """Return the act texts by action number: bids on that many dice, from lowest to highest, then LIAR. Cached."""
    bids = itertools.product(range(1, dice + 1), range(1, sides + 1))
    return (*(f"BID {count} {side}" for count, side in bids), "LIAR")


class LiarsDice(OpenSpielGame):
    """Liar's dice. Acts: BID 2 5 (at least two dice show five), LIAR (the last bid is false). Payoffs 1 and -1.

    Options: dice (1 to 5 each), sides (2 to 20); the highest side is wild. OpenSpiel plays it with two seats only.
    reset(options={"chance": [...]}) fixes the dice, first's and then second's, each as its side minus 1.
    """

    name = "liars_dice"
    seats: tuple[str, ...] = ("first", "second")
    metadata: ClassVar[dict[str, Any]] = {"name": "liars_dice_v0", "render_modes": ["ansi"]}
    theory: ClassVar[Mapping[str, float]] = {"value": -0.0278, "value_3_sides": 1 / 9}

    def __init__(self, *, dice: int = 1, sides: int = 6, **options: Any) -> None:
        self.dice = whole_number("dice", dice, least=1, most=5)
        self.sides = whole_number("sides", sides, least=2, most=20)
        self._words = list_words(2 * dice, sides)
        super().__init__(f"liars_dice(numdice={dice},dice_sides={sides})", **options)

    def rules(self) -> str:
        """Return the rules for the players, as one paragraph of text."""
        return (
            f"Liar's dice: first and second each roll {'one die' if self.dice == 1 else f'{self.dice} dice'} of "
            f"{self.sides} sides, seen by nobody else. They bid in turn: BID 2 3 says that among all dice at least 2 "
            f"show 3; a {self.sides} is wild and counts as every number. The next bid must name more dice, or as many "
            "of a higher number. LIAR ends it: if the last bid is true its bidder wins, else who said LIAR."
        )

    def word(self, action: int) -> str:
        """Return the act's text for this OpenSpiel action: a bid, or LIAR."""
        return self._words[action]

    def private(self, seat: str) -> dict[str, Any]:
        """Return the seat's own `dice`, sorted."""
        return {"dice": self._read_dice(seat)}

    def public(self) -> dict[str, Any]:
        """Return all `bids` and doubts so far, in order; the last bid stands."""
        return {"bids": [self._words[act] for act in self.state.history()[2 * self.dice :]]}

    def verdict(self) -> tuple[str, str]:
        """Return the reason of the end, "win", and an announcement of the winner and all dice."""
        reason, announcement = super().verdict()
        dice = "; ".join(f"{seat} {' '.join(map(str, self._read_dice(seat)))}" for seat in self.seats)
        return reason, f"{announcement} The dice: {dice}."

    def twin_deals(self, seat: str, rng: np.random.Generator) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return options of two deals with the same dice for this seat and different dice for the other."""
        own, one = rng.integers(self.sides, size=(2, self.dice)).tolist()
        two = [*one[:-1], (one[-1] + int(rng.integers(1, self.sides))) % self.sides]
        deals = [own + other if seat == "first" else other + own for other in (one, two)]
        return {"chance": deals[0]}, {"chance": deals[1]}

    def _read_dice(self, seat: str) -> list[int]:
        start = self.seats.index(seat) * self.dice
        return sorted(side + 1 for side in self.state.history()[start : start + self.dice])
