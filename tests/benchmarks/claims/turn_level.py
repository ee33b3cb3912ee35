"""Turn-level against trajectory-level advantages, in a game of six decisions one of which can lose everything.

Every turn draws a card. At five turns one of four answers to it is right and earns 1. At one turn, the last or the
first, nothing can be won, and one of four answers is a blunder: with `costs` it is fined, with `forfeits` (last turn
only) it takes all that was earned. The best policy earns 5 and never blunders.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from claim import Claim, Ends, Setting, Verdict
from world import Arm, Floats, Matches, World

from arena.experiment import CreditSpec, LearnSpec

TURNS, CARDS, ANSWERS, FINE, ENOUGH = 6, 6, 4, 10.0, 3
MARKED = np.random.default_rng(2).integers(ANSWERS, size=(TURNS, CARDS))
"""[turn, card] the right answer; at the turn of the blunder, the blunder."""


@dataclass
class Blunder(World):
    """Six decisions, five that earn and one that can lose."""

    when: Literal["late", "early"] = "late"
    loss: Literal["costs", "forfeits"] = "costs"
    name = "blunder"

    @property
    def turn(self) -> int:
        """That of the blunder."""
        return TURNS - 1 if self.when == "late" else 0

    def tables(self) -> dict[str, Floats]:
        return {"shared": np.zeros((TURNS * CARDS, ANSWERS))}

    def play(self, matches: Matches) -> None:
        earned, lost = np.zeros(matches.count), np.zeros(matches.count, bool)
        for turn in range(TURNS):
            cards = matches.rng.integers(CARDS, size=matches.count)
            hit = matches.act("player", turn * CARDS + cards) == MARKED[turn, cards]
            if turn == self.turn:
                lost = hit
                matches.reward("player", "lost", hit * -(FINE if self.loss == "costs" else earned))
            else:
                earned += hit
                matches.reward("player", "earned", hit)
        matches.reward("player", "won", ~lost & (earned >= ENOUGH))

    def evaluate(self, tables: Mapping[str, Floats]) -> dict[str, float]:
        """Exact: the score, 0 for answers at random and 1 for the best; right answers; the chance of a blunder."""
        probs = tables["shared"].reshape(TURNS, CARDS, ANSWERS)
        hit = np.take_along_axis(probs, MARKED[..., None], -1)[..., 0].mean(1)
        right, lost = float(np.delete(hit, self.turn).mean()), float(hit[self.turn])
        return {"score": self._score(right, lost), "right": right, "blunder": lost}

    def _score(self, right: float, lost: float) -> float:
        def worth(right: float, lost: float) -> float:
            earned = (TURNS - 1) * right
            return earned - FINE * lost if self.loss == "costs" else earned * (1.0 - lost)

        least, best = worth(1 / ANSWERS, 1 / ANSWERS), worth(1.0, 0.0)
        return (worth(right, lost) - least) / (best - least)
