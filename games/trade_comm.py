"""TradeComm: agree on a blind trade with one letter each (Sokota et al. 2021). Rules by OpenSpiel."""

from __future__ import annotations

import string
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from games.base import whole_number
from games.families.openspiel import OpenSpielGame

LETTERS = string.ascii_uppercase


class TradeComm(OpenSpielGame):
    """Blind trade. Acts: SAY letter, then TRADE give FOR get, unseen, once each; pays both 1 if the trades match.

    Option: num_items 2 to 26. Talk is off by default, because each seat may only say one letter.
    reset(options={"chance": [item of first * num_items + item of second]}) fixes the deal.
    """

    name, cooperative = "trade_comm", True
    seats: tuple[str, ...] = ("first", "second")
    metadata: ClassVar[dict[str, Any]] = {"name": "trade_comm_v0", "render_modes": ["ansi"]}
    # Without letters, fixed plans of both sides match at most num_items of the num_items^2 deals (here 4 of 16).
    theory: ClassVar[Mapping[str, float]] = {"best": 1.0, "best_silent": 0.25}

    def __init__(self, *, num_items: int = 4, talk: bool = False, **options: Any) -> None:
        self.num_items = whole_number("num_items", num_items, least=2, most=len(LETTERS))
        super().__init__(f"trade_comm(num_items={num_items})", talk=talk, **options)

    def rules(self) -> str:
        """Return the rules for the players, as one paragraph of text."""
        return (
            f"Two sides get one item each, from A to {LETTERS[self.num_items - 1]}, maybe the same; it is private. "
            "First each does SAY letter, which both hear. Then each does TRADE x FOR y (give x, get y), "
            "which the other reads only at the end. Both score 1 if each gives the item it has and "
            "gets the item the other gives; else both score 0."
        )

    def word(self, action: int) -> str:
        """Return the act's text for this OpenSpiel action, such as SAY A or TRADE A FOR B."""
        if action < self.num_items:
            return f"SAY {LETTERS[action]}"
        give, get = divmod(action - self.num_items, self.num_items)
        return f"TRADE {LETTERS[give]} FOR {LETTERS[get]}"

    def text_for_others(self, action: int, word: str) -> str:
        """Return the text of a said letter, or "" for a trade, which stays hidden until the end."""
        return word if action < self.num_items else ""

    def public(self) -> dict[str, Any]:
        """Return the letters said so far, by seat, as `said`."""
        utterances = self.state.history()[1:3]
        return {"said": {seat: LETTERS[action] for seat, action in zip(self.seats, utterances, strict=False)}}

    def private(self, seat: str) -> dict[str, Any]:
        """Return the letter of the seat's own item, as `item`."""
        return {"item": LETTERS[divmod(self.state.history()[0], self.num_items)[self.seats.index(seat)]]}

    def verdict(self) -> tuple[str, str]:
        """Return "trade" or "no_trade", and an announcement with both written trades."""
        one, two = (self.word(action) for action in self.state.history()[3:])
        outcome = "trade" if self.state.returns()[0] else "no_trade"
        verdict = "The trade is made" if outcome == "trade" else "There is no trade"
        return outcome, f"{verdict}: {self.seats[0]} wrote {one}, {self.seats[1]} wrote {two}."

    def figures(self) -> dict[str, float | bool | str]:
        """Return `trade`: whether the trades matched."""
        return {"trade": self.ended == "trade"}

    def twin_deals(self, seat: str, rng: np.random.Generator) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return options of two deals with the same item for this seat and different items for the other."""
        own = int(rng.integers(self.num_items))
        others = rng.choice(self.num_items, 2, replace=False).tolist()
        pairs = [(own, other) if seat == self.seats[0] else (other, own) for other in others]
        one, two = ({"chance": [first * self.num_items + second]} for first, second in pairs)
        return one, two
