"""A buyer and a seller haggle over the price of one good, with a private cost and a private value."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import numpy as np

from games.base import MAX_LISTED, TALK, IllegalAct, TextGame, choice, whole_number

ACT = re.compile(r"\s*(?:PRICE\s+(\d{1,9})|(ACCEPT)|(WALK))\s*", re.ASCII | re.IGNORECASE)


class Haggle(TextGame):
    """Bargaining over one good's price. Acts: PRICE n, ACCEPT (the other's last price), WALK (no deal).

    Cost and value are independent and uniform from 1 to max_price, as in Chatterjee and Samuelson (1983), so in more
    than half of all matches no deal gains anything. Options besides TextGame's: max_price >= 2; max_turns >= 2, legal
    acts in a match; opens, "seller" or "buyer". reset(options={"cost": c, "value": v}) sets both amounts.
    Reward part "deal": value - price to the buyer, price - cost to the seller. A deal at a loss is legal.
    """

    name = "haggle"
    seats: tuple[str, ...] = ("seller", "buyer")
    metadata: ClassVar[dict[str, Any]] = {"name": "haggle_v0", "render_modes": ["ansi"]}
    reward_parts: Mapping[str, str] = {"deal": "the price less the cost, or the value less the price"}
    # At the defaults, n = 10: the mean best joint value is (n^2 - 1) / 6n, and (n - 1) / 2n of all matches can gain.
    theory: ClassVar[Mapping[str, float]] = {"no_deal": 0.0, "mean_best_joint_value": 1.65, "gainful": 0.45}

    def __init__(
        self, *, max_price: int = 10, max_turns: int = 8, opens: Literal["seller", "buyer"] = "seller", **options: Any
    ) -> None:
        self.max_price = whole_number("max_price", max_price, least=2, most=MAX_LISTED)
        self.max_turns = whole_number("max_turns", max_turns, least=2)
        self.opens, self.stakes = choice("opens", opens, *self.seats), float(self.max_price - 1)
        super().__init__(**options)

    def set_up(self, rng: np.random.Generator, options: Mapping[str, Any]) -> None:
        """Draw cost and value uniformly, or use those of the options. Raises ValueError if they are invalid."""
        cost, value = rng.integers(1, self.max_price + 1, size=2).tolist()
        self.cost = whole_number("cost", options.get("cost", cost), least=1, most=self.max_price)
        self.value = whole_number("value", options.get("value", value), least=1, most=self.max_price)
        self.price: int | None = None  # the last proposal
        self.agent_selection = self.opens

    def rules(self) -> str:
        """Return the rules as one paragraph: the aim, the acts and the limits."""
        talk = TALK if self.talk else ""
        return (
            "A seller and a buyer haggle over one good. A deal pays the seller the price less its cost, the buyer its "
            f"value less the price; both are private. One act per turn: PRICE n (1 to {self.max_price}), ACCEPT "
            f"(their last price) or WALK (no deal).{talk} {self.max_turns} turns in all; no deal pays 0."
        )

    def public(self) -> dict[str, Any]:
        """Return the `max_price`, the last proposed `price` (or None), and the turns played (`turn`) and left."""
        turns = {"turn": self.turns, "turns_left": self.max_turns - self.turns}
        return {"max_price": self.max_price, "price": self.price, **turns}

    def private(self, seat: str) -> dict[str, Any]:
        """Return the seller's `cost` to the seller, or the buyer's `value` to the buyer."""
        return {"cost": self.cost} if seat == "seller" else {"value": self.value}

    def legal(self, seat: str) -> list[str]:
        """Return every price, ACCEPT if there is a price to accept, and WALK, as acts."""
        prices = [f"PRICE {n}" for n in range(1, self.max_price + 1)]
        return [*prices, "WALK"] if self.price is None else [*prices, "ACCEPT", "WALK"]

    def play(self, seat: str, act: str) -> str:
        """Play an act and return its text. A price replaces the previous one; ACCEPT pays both by that price."""
        if not (match := ACT.fullmatch(act)):
            raise IllegalAct("write PRICE and a number, or ACCEPT, or WALK")
        if match[3]:
            self.end("walk", f"{seat} walked away, there is no deal.")
            return "WALK"
        if match[2]:
            if self.price is None:
                raise IllegalAct("there is no price to accept yet")
            self.pay("seller", "deal", self.price - self.cost)
            self.pay("buyer", "deal", self.value - self.price)
            self.end("deal", "There is a deal.")
            return "ACCEPT"
        if not 1 <= int(match[1]) <= self.max_price:
            raise IllegalAct(f"a price is from 1 to {self.max_price}")
        self.price = int(match[1])
        if self.turns + 1 == self.max_turns:
            self.end("turns", "No turns are left, there is no deal.")
        return f"PRICE {self.price}"

    def figures(self) -> dict[str, float | bool | str]:
        """Return `deal`, `gainful` (if a deal could gain), joint values, `efficiency` and, after a gain, `buyer_share`.

        joint_value is the deal's value - cost (0 without a deal), best_joint_value the best possible one. efficiency is
        their ratio; if no deal could gain, it is 1 for a joint value of 0, else 0. buyer_share is the buyer's share of
        the gain.
        """
        deal, gain = self.ended == "deal", self.value - self.cost
        joint, best = float(gain if deal else 0), float(max(gain, 0))
        share = {"buyer_share": self.payoffs()["buyer"] / gain} if deal and gain > 0 else {}
        efficiency = joint / best if best else float(joint == 0)
        return {
            "deal": deal, "gainful": gain > 0, "joint_value": joint, "best_joint_value": best,
            "efficiency": efficiency, **share,
        }  # fmt: skip

    def twin_deals(self, seat: str, rng: np.random.Generator) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return options of two deals with the same amount for this seat and different amounts for the other."""
        own = int(rng.integers(1, self.max_price + 1))
        own_key, other_key = ("cost", "value") if seat == "seller" else ("value", "cost")
        one, two = (rng.permutation(self.max_price)[:2] + 1).tolist()
        return {own_key: own, other_key: one}, {own_key: own, other_key: two}
