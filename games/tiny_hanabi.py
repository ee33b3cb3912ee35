"""Tiny Hanabi: each seat has a card and acts once; the first act is also a signal (Foerster et al. 2019).

Rules by OpenSpiel.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from games.families.openspiel import OpenSpielGame

CARDS, ACTS = "12", "ABC"
WORDS = tuple(f"PLAY {act}" for act in ACTS)


@functools.cache
def describe_payoffs(payoffs: str) -> str:
    """Return OpenSpiel's payoffs in words for the rules, by both cards, first's act and second's act. Cached."""
    values = np.reshape(payoffs.split(";"), (len(CARDS), len(CARDS), len(ACTS), len(ACTS)))
    parts = []
    for own, other in np.ndindex(len(CARDS), len(CARDS)):
        rows = [f"{act} {' '.join(row)}" for act, row in zip(ACTS, values[own, other], strict=True)]
        parts.append(f"cards {CARDS[own]} and {CARDS[other]}: {', '.join(rows)}")
    return "; ".join(parts)


class TinyHanabi(OpenSpielGame):
    """Signalling with two cards. Acts: PLAY A, PLAY B, PLAY C. Both seats get the same payoff, 0 to 10.

    reset(options={"chance": [0, 1]}) deals card 1 to first and card 2 to second.
    """

    name = "tiny_hanabi"
    seats: tuple[str, ...] = ("first", "second")
    metadata: ClassVar[dict[str, Any]] = {"name": "tiny_hanabi_v0", "render_modes": ["ansi"]}
    theory: ClassVar[Mapping[str, float]] = {"best": 10.0, "best_without_signal": 8.0}

    def __init__(self, *, talk: bool = False, **options: Any) -> None:
        super().__init__("tiny_hanabi", talk=talk, **options)

    def rules(self) -> str:
        """Return the rules as one paragraph, with the table of payoffs."""
        return (
            "Tiny Hanabi, a team game: first and second each have a private card, 1 or 2. First plays A, B or C; then "
            "second, having heard it; both are paid the same. The payoffs by first's and second's card, by first's act "
            f"and, in order, second's act A B C: {describe_payoffs(self.spiel.get_parameters()['payoff'])}."
        )

    def word(self, action: int) -> str:
        """Return the act's text for this OpenSpiel action: PLAY and the letter."""
        return WORDS[action]

    def private(self, seat: str) -> dict[str, Any]:
        """Return the seat's own `card`, "1" or "2"."""
        return {"card": CARDS[self.state.history()[self.seats.index(seat)]]}

    def public(self) -> dict[str, Any]:
        """Return the `acts` so far, in order."""
        return {"acts": [WORDS[act] for act in self.state.history()[2:]]}

    def verdict(self) -> tuple[str, str]:
        """Return the reason of the end, always "over", and an announcement of the common payoff."""
        return "over", f"The match is over: both get {self.returns()[0]:g}."

    def twin_deals(self, seat: str, rng: np.random.Generator) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return options of two deals with the same card for this seat and different cards for the other seat."""
        own = int(rng.integers(len(CARDS)))
        deals = [[own, other] if seat == "first" else [other, own] for other in range(len(CARDS))]
        return {"chance": deals[0]}, {"chance": deals[1]}
