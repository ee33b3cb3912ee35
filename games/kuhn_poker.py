"""Kuhn poker: three cards and one bet, the smallest game in which bluffing pays (Kuhn 1950). Rules by OpenSpiel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from games.families.openspiel import OpenSpielGame

CARDS = ("J", "Q", "K")
WORDS = ("PASS", "BET")


class KuhnPoker(OpenSpielGame):
    """Kuhn poker. Acts: PASS (check or fold), BET (bet or call). Payoffs in chips, zero-sum: 1 or 2 won or lost.

    Equilibria, one for each a from 0 to 1/3: first bets J with probability a, K with 3a, never Q, and calls with Q
    with a + 1/3; second bets J after PASS with 1/3, never Q, and calls with Q with 1/3; J never calls; K always calls,
    and bets after PASS. reset(options={"chance": [0, 2]}) deals J to first and K to second.
    """

    name = "kuhn_poker"
    seats: tuple[str, ...] = ("first", "second")
    metadata: ClassVar[dict[str, Any]] = {"name": "kuhn_poker_v0", "render_modes": ["ansi"]}
    theory: ClassVar[Mapping[str, float]] = {"value": -1 / 18}

    def __init__(self, **options: Any) -> None:
        super().__init__("kuhn_poker", **options)

    def rules(self) -> str:
        """Return the rules for the players, as one paragraph of text."""
        return (
            "Kuhn poker: each side gets one of the cards J, Q, K (K is highest) and puts 1 chip into the pot. "
            "PASS or BET 1 chip; after a BET the other side may PASS (fold) or BET (call). "
            "If nobody folds the higher card takes the pot."
        )

    def word(self, action: int) -> str:
        """Return the act's text for this OpenSpiel action: PASS or BET."""
        return WORDS[action]

    def private(self, seat: str) -> dict[str, Any]:
        """Return the seat's own `card`: J, Q or K."""
        return {"card": CARDS[self.state.history()[self.seats.index(seat)]]}

    def public(self) -> dict[str, Any]:
        """Return the `acts` so far, in order, and the chips in the `pot`."""
        acts = self.state.history()[2:]
        return {"acts": [WORDS[act] for act in acts], "pot": 2 + sum(acts)}

    def twin_deals(self, seat: str, rng: np.random.Generator) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return options of two deals with the same card for this seat and the two other cards for the other seat."""
        own, one, two = rng.permutation(3).tolist()
        deals = [[own, other] if seat == "first" else [other, own] for other in (one, two)]
        return {"chance": deals[0]}, {"chance": deals[1]}
