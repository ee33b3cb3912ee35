"""Ultimatum game: one seat proposes a split, the other accepts it or leaves both with nothing (Güth et al. 1982)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from games.base import MAX_LISTED, TALK, IllegalAct, TextGame, whole_number

OFFER = re.compile(r"\s*OFFER\s+(\d{1,9})\s*", re.ASCII | re.IGNORECASE)


class Ultimatum(TextGame):
    """Ultimatum game. Acts: OFFER n (the responder's part), then ACCEPT or REJECT. Option: pie >= 1, coins to split.

    Reward part "deal" pays each seat its part if the offer is accepted. There are two pure subgame-perfect outcomes
    (`theory`, at the default pie): an offer of 0, accepted, and an offer of 1 to a responder that would reject 0.
    """

    name = "ultimatum"
    seats: tuple[str, ...] = ("proposer", "responder")
    metadata: ClassVar[dict[str, Any]] = {"name": "ultimatum_v0", "render_modes": ["ansi"]}
    reward_parts: Mapping[str, str] = {"deal": "the seat's share of the pie"}
    theory: ClassVar[Mapping[str, float]] = {
        "least_equilibrium_offer": 0, "most_equilibrium_offer": 1,
        "least_proposer_payoff": 9, "most_proposer_payoff": 10,
    }  # fmt: skip
    perfect_information = True

    def __init__(self, *, pie: int = 10, **options: Any) -> None:
        super().__init__(**options)
        self.pie = whole_number("pie", pie, least=1, most=MAX_LISTED)

    def set_up(self, rng: np.random.Generator, options: Mapping[str, Any]) -> None:
        """Start without an offer. Nothing is drawn."""
        self.offer: int | None = None

    def rules(self) -> str:
        """Return the rules for the players, as one paragraph of text."""
        talk = TALK if self.talk else ""
        return (
            f"Ultimatum: the proposer splits {self.pie} coins. OFFER n gives n to the responder and keeps the rest. "
            f"The responder answers ACCEPT, or REJECT: then both get nothing.{talk}"
        )

    def public(self) -> dict[str, Any]:
        """Return the size of the `pie`, and the responder's part of it as `offer`, None before the offer."""
        return {"pie": self.pie, "offer": self.offer}

    def legal(self, seat: str) -> list[str]:
        """Return every offer, or ACCEPT and REJECT after the offer."""
        return [f"OFFER {n}" for n in range(self.pie + 1)] if self.offer is None else ["ACCEPT", "REJECT"]

    def play(self, seat: str, act: str) -> str:
        """Record the offer, or pay according to the answer and end the match. Returns the act's text.

        Raises IllegalAct for other texts.
        """
        if self.offer is None:
            if not (match := OFFER.fullmatch(act)) or int(match[1]) > self.pie:
                raise IllegalAct(f"write OFFER and a whole number from 0 to {self.pie}")
            self.offer = int(match[1])
            return f"OFFER {self.offer}"
        answer = act.strip().upper()
        if answer not in ("ACCEPT", "REJECT") or not act.isascii():
            raise IllegalAct("write ACCEPT or REJECT")
        if answer == "ACCEPT":
            self.pay("proposer", "deal", self.pie - self.offer)
            self.pay("responder", "deal", self.offer)
            self.end("deal", "There is a deal.")
        else:
            self.end("rejected", "The offer was rejected.")
        return answer

    def figures(self) -> dict[str, float | bool | str]:
        """Return `deal`, whether the offer was accepted, and `offered`, its share of the pie, if one was made."""
        share = {} if self.offer is None else {"offered": self.offer / self.pie}
        return {"deal": self.ended == "deal", **share}
