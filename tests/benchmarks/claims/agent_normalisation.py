"""Agent-specific against pooled normalisation, where the seats of a game earn differently.

Two seats take three turns each. Every turn draws a card, the seat names one of four answers, and each answer to each
card earns something between 0 and 1; what one seat does is nothing to the other, so the best policy is known and a
seat's skill is exact. On top the seat `first` is paid `offset` when the match ends, whatever it did, and `second` pays
as much; `stake` multiplies what `first` earns for its answers. Both seats are played by one policy.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from claim import Claim, Ends, Setting, Verdict
from world import Arm, Floats, Matches, World

from arena.experiment import CreditSpec, LearnSpec

SEATS, CARDS, ANSWERS, TURNS = ("first", "second"), 6, 4, 3
WORTH = np.random.default_rng(1).permuted(np.tile(np.linspace(0, 1, ANSWERS), (2, CARDS, 1)), axis=-1)
"""[seat, card, answer] what it earns: 0, 1/3, 2/3 or 1."""


@dataclass
class Stalls(World):
    """Two seats that answer cards in turn."""

    offset: float = 0.0
    stake: float = 1.0
    shared: bool = False
    """Whether the seats read the same cards and the same answers are right for both, so that one table row serves
    both; otherwise a row belongs to a seat."""
    name = "stalls"
    seats = {seat: (seat, "shared") for seat in SEATS}

    def tables(self) -> dict[str, Floats]:
        return {"shared": np.zeros((CARDS if self.shared else 2 * CARDS, ANSWERS))}

    def play(self, matches: Matches) -> None:
        for _ in range(TURNS):
            for place, seat in enumerate(SEATS):
                cards = matches.rng.integers(CARDS, size=matches.count)
                answers = matches.act(seat, cards + CARDS * self._own(place))
                matches.reward(seat, "answer", WORTH[self._own(place), cards, answers] * (1.0, self.stake)[place == 0])
        for seat, sign in zip(SEATS, (1.0, -1.0), strict=True):
            matches.reward(seat, "offset", sign * self.offset)

    def evaluate(self, tables: Mapping[str, Floats]) -> dict[str, float]:
        """Exact skill of each seat, 0 for answers at random and 1 for the best, and their mean."""
        probs = np.broadcast_to(tables["shared"].reshape(-1, CARDS, ANSWERS), WORTH.shape)
        worth = WORTH[[self._own(0), self._own(1)]]
        skill = 2.0 * (probs * worth).sum(-1).mean(-1) - 1.0
        return {"skill": float(skill.mean()), "skill_first": float(skill[0]), "skill_second": float(skill[1])}

    def _own(self, place: int) -> int:
        return 0 if self.shared else place
