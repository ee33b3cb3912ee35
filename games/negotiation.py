"""Two seats share a pool of items that each values privately: OpenSpiel's `bargaining`, played in text.

Rules of "Deal or No Deal" (Lewis et al. 2017): 5 to 7 items of 3 kinds, at least one of each; the whole pool
is worth exactly 10 to either seat; every kind is worth something to somebody, and some kind to both.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from games.base import IllegalAct, TextGame, one_line, whole_number
from games.families.pools import WORTH, Triple, bounds, instances, partners, rest, splits, worth

ACT = re.compile(r"\s*(?:OFFER\s+(\d+)\s+(\d+)\s+(\d+)|(ACCEPT)|(WALK))\s*", re.ASCII | re.IGNORECASE)


@functools.lru_cache(maxsize=64)
def offers(pool: Triple) -> tuple[str, ...]:
    """Every offer of the pool, as an act: written once for all turns and matches with that pool."""
    return tuple(f"OFFER {a} {b} {c}" for a, b, c in splits(pool))


class Negotiation(TextGame):
    """Acts: OFFER a b c (I take these, you the rest), ACCEPT (the other's standing offer), WALK (no deal).

    Options besides TextGame's: items, three different names of kinds; max_turns >= 1, legal acts in a match.
    reset(options={"instance": one of games.families.pools.instances()}) plays that instance.
    Reward part "deal": to both seats at the accepting act, the own value (0 to 10) of the own share.
    """

    name = "negotiation"
    seats: tuple[str, ...] = ("opener", "responder")
    metadata: ClassVar[dict[str, Any]] = {"name": "negotiation_v0", "render_modes": ["ansi"]}
    # Best joint value: 20 less the sum of count * min(values) by kind; some kind is worth something to both.
    theory: ClassVar[Mapping[str, float]] = {
        "no_deal": 0.0, "max_payoff": 10.0, "min_best_joint_value": 10.0, "max_best_joint_value": 19.0,
    }  # fmt: skip

    def __init__(
        self, *, items: Sequence[str] = ("books", "hats", "balls"), max_turns: int = 10, **options: Any
    ) -> None:
        super().__init__(**options)
        names = [item for item in items if isinstance(item, str) and item and item == one_line(item)]
        if isinstance(items, str) or not len(items) == len(set(names)) == 3:
            raise ValueError(f"items must be three different one-line names, not {items!r}")
        self.items, self.max_turns = tuple(items), whole_number("max_turns", max_turns, least=1)

    def set_up(self, rng: np.random.Generator, options: Mapping[str, Any]) -> None:
        """Draws one of all instances uniformly, or takes the given one."""
        instance = options.get("instance") or instances()[rng.integers(len(instances()))]
        if options.get("instance") and instance not in instances():
            raise ValueError(f"instance must be one of games.families.pools.instances(), not {instance!r}")
        self.pool, self.values = instance[0], dict(zip(self.seats, instance[1], strict=True))
        self.offer: Triple | None = None  # what the seat that moved last would take

    def rules(self) -> str:
        """One paragraph: the aim, the acts and the limits."""
        (a, b, c), talk = self.items, " Talk may follow after |." if self.talk else ""
        return (
            f"Two sides divide {a}, {b} and {c}; an item's worth is private, all together {WORTH} to each. "
            f"One act per turn: OFFER x y z (you take x {a}, y {b}, z {c}; the other side the rest), ACCEPT "
            f"(their last offer) or WALK (no deal).{talk} {self.max_turns} turns in all; no deal pays 0."
        )

    def public(self) -> dict[str, Any]:
        """The pool, its kinds, the standing offer (what its author would take), turns played and left."""
        return {
            "pool": [*self.pool],
            "items": [*self.items],
            "offer": None if self.offer is None else "{} {} {}".format(*self.offer),
            "turn": self.turns,
            "turns_left": self.max_turns - self.turns,
        }

    def private(self, seat: str) -> dict[str, Any]:
        """What one item of each kind is worth to this seat."""
        return {"values": [*self.values[seat]]}

    def legal(self, seat: str) -> list[str]:
        """Every offer of the pool, ACCEPT when an offer stands, WALK."""
        return [*offers(self.pool), *(("WALK",) if self.offer is None else ("ACCEPT", "WALK"))]

    def play(self, seat: str, act: str) -> str:
        """An offer replaces the one before it; accepting transfers exactly the standing offer."""
        if not (match := ACT.fullmatch(act)):
            raise IllegalAct("write OFFER and three numbers, or ACCEPT, or WALK")
        if match[5]:
            self.end("walk", f"{seat} walked away, there is no deal.")
            return "WALK"
        if match[4]:
            if self.offer is None:
                raise IllegalAct("there is no offer to accept yet")
            for taker, share in (seat, rest(self.pool, self.offer)), (self.next_seat(seat), self.offer):
                self.pay(taker, "deal", worth(self.values[taker], share))
            self.end("deal", "There is a deal.")
            return "ACCEPT"
        share = int(match[1]), int(match[2]), int(match[3])
        if min(rest(self.pool, share)) < 0:
            has = ", ".join(f"{count} {item}" for count, item in zip(self.pool, self.items, strict=True))
            raise IllegalAct(f"the pool has {has}")
        self.offer = share
        if self.turns + 1 == self.max_turns:
            self.end("turns", "No turns are left, there is no deal.")
        return "OFFER {} {} {}".format(*share)

    def figures(self) -> dict[str, float | bool | str]:
        """Joint value, Nash product, their best; pareto_distance: to the nearest optimum that is worse for nobody."""
        x, y = self.payoffs().values()
        frontier, joint, product = bounds(self.pool, *self.values.values())
        distance = min(math.dist((x, y), p) for p in frontier if p[0] >= x and p[1] >= y)
        joint_figures = {"joint_value": x + y, "best_joint_value": float(joint), "efficiency": (x + y) / joint}
        nash_figures = {"nash_product": x * y / product, "nash_product_raw": x * y}
        return {"deal": self.ended == "deal", **joint_figures, **nash_figures, "pareto_distance": distance}

    def twin_deals(self, seat: str, rng: np.random.Generator) -> tuple[dict[str, Any], dict[str, Any]]:
        """The same pool and own values, the other side's once each of two."""
        others: tuple[Triple, ...] = ()
        while len(others) < 2:
            pool, (own, _) = instances()[rng.integers(len(instances()))]
            others = partners(pool, own)
        deals = [(own, others[n]) for n in rng.permutation(len(others))[:2]]
        one, two = deals if seat == self.seats[0] else [deal[::-1] for deal in deals]
        return {"instance": (pool, one)}, {"instance": (pool, two)}
