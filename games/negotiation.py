"""Division of items with private values: OpenSpiel's `bargaining` as text, on instances of Lewis et al. (2017)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np

from games.base import TALK, IllegalAct, choice, number, to_one_line, whole_number
from games.families import bargaining
from games.families.bargaining_game import BargainingGame, parse_act
from games.families.pools import WORTH, Triple, draw_twins, instances, offers, remainder, worth


class Negotiation(BargainingGame):
    """Division of items. Acts: OFFER a b c (I take these), ACCEPT (the other's standing offer), WALK (no deal).

    Options besides TextGame's:

    - items: three different names of kinds
    - max_turns: legal acts in a match, >= 1
    - breakdown: probability, from 0 to below 1, that a counteroffer ends the talks with nothing for anybody
    - values: "private", or "public" if each seat sees the other's
    - splits: "hidden", or "shown" if each seat sees the Pareto-optimal splits and their worth; needs public values
    - opens: "opener", or "random" if the first mover is drawn; then the seats are player_0 and player_1

    reset(options={"instance": one of games.families.pools.instances(), "breaks_at": turn}) plays that instance, in
    which an offer at that turn (from 1; 0: no turn) ends the talks.
    """

    name = "negotiation"
    seats: tuple[str, ...] = ("opener", "responder")
    metadata: ClassVar[dict[str, Any]] = {"name": "negotiation_v0", "render_modes": ["ansi"]}
    reward_parts: Mapping[str, str] = {"deal": "the share's value to the seat, paid to both when an offer is accepted"}
    # Best joint value: 20 - the sum of count * min(values) by kind; some kind is worth something to both. Means are
    # over all instances. With public values and no breakdown, subgame-perfect play amounts to an ultimatum.
    theory: ClassVar[Mapping[str, float]] = {
        "no_deal": 0.0, "max_payoff": 10.0, "min_best_joint_value": 10.0, "max_best_joint_value": 19.0,
        "mean_best_joint_value": 87264 / 5793, "mean_nash_joint_value": 86946 / 5793,
        "mean_ultimatum_joint_value": 74022 / 5793,
    }  # fmt: skip

    def __init__(
        self, *, items: Sequence[str] = ("books", "hats", "balls"), max_turns: int = 10, breakdown: float = 0.0,
        values: Literal["private", "public"] = "private", splits: Literal["hidden", "shown"] = "hidden",
        opens: Literal["opener", "random"] = "opener", **options: Any
    ) -> None:  # fmt: skip
        names = [item for item in items if isinstance(item, str) and item and item == to_one_line(item)]
        if isinstance(items, str) or not len(items) == len(set(names)) == 3:
            raise ValueError(f"items must be three different one-line names, not {items!r}")
        self.items, self.max_turns = tuple(items), whole_number("max_turns", max_turns, least=1)
        self.breakdown = number("breakdown", breakdown, below=1)
        self.has_public_values = choice("values", values, "private", "public") == "public"
        self.shows_splits = choice("splits", splits, "hidden", "shown") == "shown"
        if self.shows_splits and not self.has_public_values:
            raise ValueError("splits: shown reveals what splits are worth to the other side: values must be public")
        self.draws_first_mover = choice("opens", opens, "opener", "random") == "random"
        if self.draws_first_mover:
            self.seats = "player_0", "player_1"
        # No seat sees when talks will break down.
        self.perfect_information = self.has_public_values and not self.breakdown
        self.players = bargaining.PLAYERS if self.has_public_values else {}
        super().__init__(**options)

    def set_up(self, rng: np.random.Generator, options: Mapping[str, Any]) -> None:
        """Draw an instance, the first mover and the turn of breakdown; options set instance and breakdown instead."""
        instance = options.get("instance") or instances()[rng.integers(len(instances()))]
        if options.get("instance") and instance not in instances():
            raise ValueError(f"instance must be one of games.families.pools.instances(), not {instance!r}")
        self.pool, self.values = instance[0], dict(zip(self.seats, instance[1], strict=True))
        self.offer: Triple | None = None  # the share that the seat that moved last asks for
        self.agent_selection = self.seats[rng.integers(2)] if self.draws_first_mover else self.seats[0]
        self.movers = self.agent_selection, self.next_seat(self.agent_selection)
        # Every offer from turn 1 on is a counteroffer, so the turn of the one that ends the talks is geometric.
        breaks_at = int(rng.geometric(self.breakdown)) if self.breakdown else 0
        self.breaks_at = whole_number("breaks_at", options.get("breaks_at", breaks_at), least=0)

    def rules(self) -> str:
        """Return the rules as one paragraph: the aim, the acts and the limits."""
        (a, b, c), talk = self.items, TALK if self.talk else ""
        secret = "known to both" if self.has_public_values else "private"
        p = self.breakdown
        risk = f" An offer that answers an offer ends the talks with chance {p:g}." if p else ""
        first = " Who moves first is drawn." if self.draws_first_mover else ""
        return (
            f"Two sides divide {a}, {b} and {c}; an item's worth is {secret}, all together {WORTH} to each. "
            f"One act per turn: OFFER x y z (you take x {a}, y {b}, z {c}; the other side the rest), ACCEPT "
            f"(their last offer) or WALK (no deal).{talk} {self.max_turns} turns in all; no deal pays 0.{risk}{first}"
        )

    def public(self) -> dict[str, Any]:
        """Return pool, item names, standing offer (its author's share), turns, and breakdown and values if public."""
        breakdown = {"breakdown": self.breakdown} if self.breakdown else {}
        values = {"values": {seat: [*own] for seat, own in self.values.items()}} if self.has_public_values else {}
        return {
            "pool": [*self.pool],
            "items": [*self.items],
            "offer": None if self.offer is None else "{} {} {}".format(*self.offer),
            "turn": self.turns, "turns_left": self.max_turns - self.turns, **breakdown, **values,
        }  # fmt: skip

    def private(self, seat: str) -> dict[str, Any]:
        """Return this seat's `values` of an item of each kind, and `offered`, the worth of accepting (None: no offer).

        If splits are shown, also the efficient `splits`, best first: [own share, worth to this seat, worth to the
        other].
        """
        own, other = self.values[seat], self.values[self.next_seat(seat)]
        splits = {"splits": bargaining.list_efficient_splits(self.pool, own, other)} if self.shows_splits else {}
        offered = None if self.offer is None else worth(own, remainder(self.pool, self.offer))
        return {"values": [*own], "offered": offered, **splits}

    def legal(self, seat: str) -> list[str]:
        """Return every offer of the pool, ACCEPT if there is an offer to accept, and WALK, as acts."""
        return [*offers(self.pool), *(("WALK",) if self.offer is None else ("ACCEPT", "WALK"))]

    def play(self, seat: str, act: str) -> str:
        """Play an act and return its text. An offer replaces the last one; ACCEPT pays both by the standing offer."""
        share = parse_act(act)
        if share == "WALK":
            self.end("walk", f"{seat} walked away, there is no deal.")
            return "WALK"
        if share == "ACCEPT":
            if self.offer is None:
                raise IllegalAct("there is no offer to accept yet")
            for taker, share_taken in (seat, remainder(self.pool, self.offer)), (self.next_seat(seat), self.offer):
                self.pay(taker, "deal", worth(self.values[taker], share_taken))
            self.end("deal", "There is a deal.")
            return "ACCEPT"
        if min(remainder(self.pool, share)) < 0:
            pool_text = ", ".join(f"{count} {item}" for count, item in zip(self.pool, self.items, strict=True))
            raise IllegalAct(f"the pool has {pool_text}")
        self.offer = share
        if self.turns + 1 == self.max_turns:
            self.end("turns", "No turns are left, there is no deal.")
        elif 0 < self.turns == self.breaks_at:
            self.end("breakdown", "The talks broke down, there is no deal.")
        return "OFFER {} {} {}".format(*share)

    def twin_deals(self, seat: str, rng: np.random.Generator) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """Return options of deals that differ in the other side's private values or the turn of breakdown, or None."""
        if self.perfect_information:
            return None
        one, two = draw_twins(rng, self.seats.index(seat))
        if not self.breakdown:
            return {"instance": one}, {"instance": two}
        breaks = rng.permutation(self.max_turns + 1)[:2].tolist()
        two = one if self.has_public_values else two
        return {"instance": one, "breaks_at": breaks[0]}, {"instance": two, "breaks_at": breaks[1]}
