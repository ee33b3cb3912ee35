"""Leduc poker: two betting rounds with a public card between them (Southey et al. 2005). Rules by OpenSpiel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from games.families.openspiel import OpenSpielGame

RANKS = "JJQQKK"  # of OpenSpiel's cards 0 to 5
FOLD, CALL, RAISE = range(3)
WORDS = ("FOLD", "CALL", "RAISE")
ANTE, RAISES = 1, (2, 4)  # chips; a raise in the first and in the second round


class LeducPoker(OpenSpielGame):
    """Leduc poker. Acts: FOLD, CALL (a check if there is no raise), RAISE. Payoffs in chips, zero-sum, 13 at most.

    reset(options={"chance": [first's card, second's card, public card]}) fixes the deal: 0 to 5 are J J Q Q K K.
    """

    name = "leduc_poker"
    seats: tuple[str, ...] = ("first", "second")
    metadata: ClassVar[dict[str, Any]] = {"name": "leduc_poker_v0", "render_modes": ["ansi"]}
    theory: ClassVar[Mapping[str, float]] = {"value": -0.0856}

    def __init__(self, **options: Any) -> None:
        super().__init__("leduc_poker", **options)

    def rules(self) -> str:
        """Return the rules for the players, as one paragraph of text."""
        return (
            "Leduc poker: six cards, two each of J, Q, K. Each side puts 1 chip into the pot and gets a private card. "
            "Then bets; then one public card; then bets again, first always beginning. FOLD gives up the pot, CALL "
            "meets the other's raise (or checks), RAISE meets it and adds 2 chips, 4 after the public card; two raises "
            "a round at most. A card equal to the public one wins, else the higher one (K is highest); equal cards "
            "share the pot."
        )

    def word(self, action: int) -> str:
        """Return the act's text for this OpenSpiel action: FOLD, CALL or RAISE."""
        return WORDS[action]

    def chance_word(self, outcome: int) -> str:
        """Return the announcement of the public card, or "" for a private card."""
        return f"The public card is {RANKS[outcome]}." if len(self.state.history()) > 1 else ""

    def private(self, seat: str) -> dict[str, Any]:
        """Return the seat's own `card`: J, Q or K."""
        return {"card": RANKS[self.state.history()[self.seats.index(seat)]]}

    def public(self) -> dict[str, Any]:
        """Return the chips in the `pot`, the acts of `round_1` and `round_2`, and the `public_card` if it is dealt."""
        rounds: list[list[int]] = [[]]
        table: dict[str, Any] = {}
        for move in self.state.full_history()[2:]:
            if move.player >= 0:
                rounds[-1].append(move.action)
            else:
                table["public_card"] = RANKS[move.action]
                rounds.append([])
        acts = {f"round_{n}": [WORDS[act] for act in actions] for n, actions in enumerate(rounds, 1)}
        return {"pot": count_pot(rounds), **acts, **table}

    def twin_deals(self, seat: str, rng: np.random.Generator) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return options of two deals that differ only in the other seat's card, which has another rank."""
        while True:
            own, one, two, shared = rng.permutation(6)[:4].tolist()
            if RANKS[one] != RANKS[two]:
                deals = [[own, other] if seat == "first" else [other, own] for other in (one, two)]
                return {"chance": [*deals[0], shared]}, {"chance": [*deals[1], shared]}


def count_pot(rounds: list[list[int]]) -> int:
    """Return the number of chips in the pot after these acts, given as OpenSpiel actions by round."""
    chips = 2 * ANTE
    for acts, more in zip(rounds, RAISES, strict=False):
        to_call = 0
        for act in acts:
            if act == CALL:
                chips, to_call = chips + to_call, 0
            elif act == RAISE:
                chips, to_call = chips + to_call + more, more
    return chips
