"""First-price and second-price sealed-bid auctions of one good with private values (Vickrey 1961)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from games.base import MAX_LISTED, TALK, whole_number
from games.families.simultaneous import SimultaneousGame, read_number


class SealedBidAuction(SimultaneousGame):
    """Base class of sealed-bid auctions, in which the highest bid wins. Ties are broken at random.

    Acts: BID n, hidden until all have bid. Options in addition to TextGame's: players, 2 to 6; max_value >= 2. Values
    are independent and uniform from 1 to max_value; bids are from 0 to max_value. reset(options={"values": [...]}) sets
    the values in the order of seats. Reward part "won": the winner's value minus the price. Other seats get nothing.
    """

    price_rule: ClassVar[str]
    reward_parts: Mapping[str, str] = {"won": "the value less the price"}

    def __init__(self, *, players: int = 2, max_value: int = 10, **options: Any) -> None:
        self.seats = tuple(f"player_{i}" for i in range(whole_number("players", players, least=2, most=6)))
        self.max_value = whole_number("max_value", max_value, least=2, most=MAX_LISTED)
        self.stakes = float(self.max_value - 1)
        super().__init__(rounds=1, **options)

    def price(self, bids: list[int]) -> int:
        """Return the winner's price, given all bids in descending order."""
        raise NotImplementedError

    def set_up(self, rng: np.random.Generator, options: Mapping[str, Any]) -> None:
        """Draw each seat's value, or take the values from the reset options. Raises ValueError for invalid values."""
        super().set_up(rng, options)
        drawn_values = rng.integers(1, self.max_value + 1, size=len(self.seats)).tolist()
        values = options.get("values", drawn_values)
        if len(values) != len(self.seats):
            raise ValueError(f"values must be {len(self.seats)} numbers, not {values!r}")
        checked = [whole_number("values", value, least=1, most=self.max_value) for value in values]
        self.values = dict(zip(self.seats, checked, strict=True))
        self.winner = ""

    def rules(self) -> str:
        """Return the rules as one paragraph: the aim, the act, the price."""
        talk = TALK if self.talk else ""
        return (
            f"Auction of one good among {len(self.seats)} bidders. What it is worth to each is private, from 1 to "
            f"{self.max_value}. Each writes BID n once, n from 0 to {self.max_value}, unseen by the others. The "
            f"highest bid wins the good and pays {self.price_rule}; the others pay nothing.{talk}"
        )

    def public(self) -> dict[str, Any]:
        """Return the number of bidders (`players`) and the highest possible value (`max_value`)."""
        return {"players": len(self.seats), "max_value": self.max_value}

    def private(self, seat: str) -> dict[str, Any]:
        """Return the good's value to this seat (`value`)."""
        return {"value": self.values[seat]}

    def legal(self, seat: str) -> list[str]:
        """Return every bid, from BID 0 to BID max_value."""
        return [f"BID {n}" for n in range(self.max_value + 1)]

    def read(self, seat: str, act: str) -> int:
        """Parse the act BID n and return n. Raises IllegalAct unless n is from 0 to max_value."""
        return read_number("BID", self.max_value, act)

    def settle(self, choices: list[int]) -> None:
        """Pay the winner its value minus the price, and announce all bids."""
        descending = sorted(choices, reverse=True)
        highest = [seat for seat, bid in zip(self.seats, choices, strict=True) if bid == descending[0]]
        self.winner, self.payment = highest[self._rng.integers(len(highest))], self.price(descending)
        self.pay(self.winner, "won", self.values[self.winner] - self.payment)
        bids = ", ".join(f"{seat} {bid}" for seat, bid in zip(self.seats, choices, strict=True))
        self.tell(f"Bids: {bids}. {self.winner} wins and pays {self.payment}.")

    def figures(self) -> dict[str, float | bool | str]:
        """Return `revenue`, the price, and `efficiency`, the winner's value / the highest; both 0 without a sale."""
        if not self.winner:
            return {"revenue": 0.0, "efficiency": 0.0}
        best = max(self.values.values())
        return {"revenue": float(self.payment), "efficiency": self.values[self.winner] / best}

    def twin_deals(self, seat: str, rng: np.random.Generator) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return options of two deals with the same value for this seat and different values for every other seat."""
        one = rng.integers(1, self.max_value + 1, size=len(self.seats))
        two = (one - 1 + rng.integers(1, self.max_value, size=len(self.seats))) % self.max_value + 1
        index = self.seats.index(seat)
        two[index] = one[index]
        return {"values": one.tolist()}, {"values": two.tolist()}


class FirstPriceAuction(SealedBidAuction):
    """First-price auction: the winner pays its own bid.

    With continuous values, each equilibrium bid is (players - 1) / players of the value. `theory` is for two players:
    this factor, and the mean revenue at the default options if both bid half their value, rounded up. In whole numbers
    that is an exact equilibrium for every even max_value.
    """

    name = "first_price_auction"
    metadata: ClassVar[dict[str, Any]] = {"name": "first_price_auction_v0", "render_modes": ["ansi"]}
    theory: ClassVar[Mapping[str, float]] = {"equilibrium_shading": 1 / 2, "equilibrium_revenue": 3.8}
    price_rule = "its bid"

    def price(self, bids: list[int]) -> int:
        """Return the highest bid."""
        return bids[0]


class SecondPriceAuction(SealedBidAuction):
    """Second-price auction: the winner pays the second highest bid, so bidding one's own value is weakly dominant.

    `theory` is the mean revenue if all bid their value, at the default options.
    """

    name = "second_price_auction"
    metadata: ClassVar[dict[str, Any]] = {"name": "second_price_auction_v0", "render_modes": ["ansi"]}
    theory: ClassVar[Mapping[str, float]] = {"truthful_revenue": 3.85}
    price_rule = "the second highest bid"

    def price(self, bids: list[int]) -> int:
        """Return the second highest bid."""
        return bids[1]
