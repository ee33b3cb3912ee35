"""RAE against no baseline in self-play of Kuhn poker, where one role earns more than the other.

A table of twelve information states plays Kuhn poker with itself. A toll, paid by the seat `first` to the seat
`second` in every match, makes the roles' returns as different as one likes and leaves equilibria as they are, so that
NashConv is exact whatever the toll.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyspiel
from claim import Claim, Ends, Setting, Verdict
from world import Arm, Floats, Ints, Matches, World

from arena.experiment import CreditSpec, LearnSpec

FIRST, SECOND = ("", "pb"), ("p", "b")
STATES = [f"{card}{heard}" for heard in FIRST + SECOND for card in range(3)]
"""OpenSpiel's information states: the own card, 0 to 2, and the acts so far; p passes, b bets."""
PASS, BET = 0, 1
DEALS = np.array([(a, b) for a in range(3) for b in range(3) if a != b])
KUHN = pyspiel.load_game("kuhn_poker")


@dataclass
class Kuhn(World):
    """Kuhn poker with a toll."""

    toll: float = 0.0
    sums: Floats = field(default_factory=lambda: np.full((len(STATES), 2), 1e-12))
    """Of the policies so far, each information state's weighted by its own seat's part in reaching it."""
    name = "kuhn"
    seats = {"first": ("first", "shared"), "second": ("second", "shared")}
    deals = len(DEALS)

    def tables(self) -> dict[str, Floats]:
        return {"shared": np.zeros((len(STATES), 2))}

    def play(self, matches: Matches) -> None:
        first, second = DEALS[matches.deals].T
        opened = matches.act("first", state(first, "")) == BET
        heard = np.where(opened, state(second, "b"), state(second, "p"))
        answered = matches.act("second", heard) == BET
        again = np.flatnonzero(~opened & answered)
        called = opened & answered
        called[again] = matches.act("first", state(first, "pb")[again], again) == BET
        folded = opened & ~answered
        gave_up = ~opened & answered & ~called
        shown = np.where(first > second, 1.0, -1.0) * (1.0 + called)
        chips = np.where(folded, 1.0, np.where(gave_up, -1.0, shown))
        matches.reward("first", "chips", chips - self.toll)
        matches.reward("second", "chips", self.toll - chips)
        matches.figure("first_return", chips - self.toll)

    def evaluate(self, tables: Mapping[str, Floats]) -> dict[str, float]:
        """Exact: NashConv of the policy and of the mean of all so far, and how far its value is from -1/18."""
        probs = tables["shared"]
        reach = np.ones((len(STATES), 1))
        reach[3:6, 0] = probs[0:3, PASS]
        self.sums += reach * probs
        mean = self.sums / self.sums.sum(1, keepdims=True)
        value = pyspiel.expected_returns(KUHN.new_initial_state(), spoken(probs), -1, False)[0]
        return {
            "nash_conv": pyspiel.nash_conv(KUHN, spoken(probs), True),
            "mean_nash_conv": pyspiel.nash_conv(KUHN, spoken(mean), True),
            "value_error": abs(value + 1 / 18),
        }


def state(cards: Ints, heard: str) -> Ints:
    """The rows of these cards."""
    return cards + STATES.index(f"0{heard}")


def spoken(probs: Floats) -> pyspiel.TabularPolicy:
    """A table as OpenSpiel has it."""
    return pyspiel.TabularPolicy({name: list(enumerate(row)) for name, row in zip(STATES, probs.tolist(), strict=True)})
