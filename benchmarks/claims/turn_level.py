"""Turn-level against trajectory-level advantages, in a game of six decisions one of which can lose everything.

Every turn draws a card. At five turns one of four answers to it is right and earns 1. At one turn, the last or the
first, nothing can be won, and one of four answers is a blunder: with `costs` it is fined, with `forfeits` (last turn
only) it takes all that was earned. The best policy earns 5 and never blunders. Without a blunder all six turns earn.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from claim import Claim, Ends, Setting, Verdict
from gradients import gradient_noise
from world import Arm, Floats, Matches, World

from arena.config.experiment import LearnSpec
from arena.credit.settings import CreditSpec

TURNS, CARDS, ANSWERS, FINE, ENOUGH = 6, 6, 4, 10.0, 3
MARKED = np.random.default_rng(2).integers(ANSWERS, size=(TURNS, CARDS))
"""[turn, card] the right answer; at the turn of the blunder, the blunder."""


@dataclass
class Blunder(World):
    """Six decisions, five that earn and one that can lose."""

    when: Literal["late", "early", "none"] = "late"
    loss: Literal["costs", "forfeits"] = "costs"
    name = "blunder"

    @property
    def turn(self) -> int:
        """The turn of the blunder; -1 is no turn."""
        return {"late": TURNS - 1, "early": 0, "none": -1}[self.when]

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
        right = float(hit[np.arange(TURNS) != self.turn].mean())
        lost = float(hit[self.turn]) if self.turn >= 0 else 0.0
        return {"score": self._score(right, lost), "right": right, "blunder": lost}

    def _score(self, right: float, lost: float) -> float:
        def worth(right: float, lost: float) -> float:
            earned = (TURNS - (self.turn >= 0)) * right
            return earned - FINE * lost if self.loss == "costs" else earned * (1.0 - lost)

        least, best = worth(1 / ANSWERS, (self.turn >= 0) / ANSWERS), worth(1.0, 0.0)
        return (worth(right, lost) - least) / (best - least)


AGENT: list[Any] = ["game", "role", "policy"]
OURS, TRAJECTORY, OUTCOME, SHUFFLED = "turn-level", "trajectory-level", "outcome only", "turn-level, shuffled"
APART, DISCOUNTED, RELEASED = "turn-level, turn by turn", "turn-level, γ = 0.5", "MARS as released"
SCALED, SCALED_TRAJECTORY = "turn-level, by deviation", "trajectory-level, by deviation"
REWARDS, ONLY_WON = {"won": 0.0}, {"earned": 0.0, "lost": 0.0}


def arm(estimator: Any, weights: dict[str, float] = REWARDS) -> Arm:
    """One estimator; all else alike."""
    return Arm(
        CreditSpec.model_validate(dict(estimator=estimator, weights=weights)),
        LearnSpec.model_validate(dict(lr=0.05, regularisers={})),
    )


ARMS = {
    OURS: arm("mars"),
    TRAJECTORY: arm({"dr_grpo": {"by": AGENT}}),
    OUTCOME: arm({"dr_grpo": {"by": AGENT}}, ONLY_WON),
    SHUFFLED: arm({"shuffled": {"of": "mars", "by": AGENT}}),
    APART: arm({"mars": {"by": [*AGENT, "turn"]}}),
    DISCOUNTED: arm({"mars": {"gamma": 0.5}}),
    RELEASED: arm("mars_released"),
    SCALED: arm({"mars": {"std": True}}),
    SCALED_TRAJECTORY: arm({"grpo": {"by": AGENT}}),
}


def setting(world: Blunder) -> Setting:
    """All arms in one game."""
    return Setting(lambda seed: world, ARMS, steps=12_000, matches=32, group=1)


SETTINGS = {
    "a late blunder costs 10": setting(Blunder("late")),
    "a late blunder forfeits all": setting(Blunder("late", "forfeits")),
    "an early blunder costs 10": setting(Blunder("early")),
    "no turn is a blunder": setting(Blunder("none")),
}
COSTS, FORFEITS, EARLY, NONE = SETTINGS


def verdict(ends: Ends) -> Verdict:
    """The verdict by the rule."""
    gains = {place: ends.minus(place, OURS, TRAJECTORY) for place in SETTINGS}
    told = "; ".join(f"{place} {g.estimate:+.3f} [{g.low:+.3f}, {g.high:+.3f}]" for place, g in gains.items())
    because = f"score, turn-level - trajectory-level: {told}"
    won = [place for place, gain in gains.items() if gain.low > 0 and ends.above(place, OURS, SHUFFLED)]
    if {COSTS, FORFEITS} <= set(won):
        return Verdict("holds", because)
    return Verdict(f"holds only where {' and '.join(won)}" if won else "does not hold here", because)


def also() -> dict[str, Any]:
    """Measure how noisy one batch's gradient is, before anything was learnt."""
    return {
        "gradient_noise": {
            place: gradient_noise(
                lambda item=item: item.world(0),  # type: ignore[misc]
                {name: arm for name, arm in item.arms.items() if name != SHUFFLED},
                item.matches,
                item.group,
            )
            for place, item in SETTINGS.items()
        }
    }


CLAIM = Claim(
    claim="Advantages by turn credit the turns before and after a late blunder better than one per trajectory",
    source="MARS / MARSHAL, ICLR 2026",
    published="Tic-tac-toe specialist, with / without turn-level advantages: Leduc 58.4 / 48.3 as first but 27.7 / "
    "41.3 as second, Simple Hanabi 29.8 / 19.1; no seeds or intervals",
    rule=(
        "Holds if the interval of the score turn-level - trajectory-level lies above 0 in both games with a late "
        "blunder, and turn-level above its own shuffled advantages there; else it holds only where it does so."
    ),
    settings=SETTINGS,
    figures=("score", "right", "blunder"),
    drawn=(OURS, TRAJECTORY, OUTCOME, SHUFFLED, DISCOUNTED),
    verdict=verdict,
    compare=[(OURS, TRAJECTORY), (OURS, OUTCOME), (OURS, SHUFFLED), (APART, OURS), (APART, TRAJECTORY),
             (DISCOUNTED, OURS), (RELEASED, OURS), (SCALED, OURS), (SCALED, SCALED_TRAJECTORY)],
    shown={place: (OURS, TRAJECTORY, OUTCOME, SHUFFLED) for place in SETTINGS},
    also=also,
    notes=(
        "Exact figures: score 0 for answers at random and 1 for the best, the share of right answers at the five "
        "turns that earn, the chance of a blunder. Turn-level and trajectory-level get the same rewards; outcome-only "
        f"hears at the end whether the match was won: no blunder and {ENOUGH} of 5 right. A return-to-go holds all "
        "that comes later, so a late blunder is in every turn before it; what it leaves out is what came earlier. "
        "Rule, learning rate and turns played were settled after trials on other seeds, "
        "which had shown the direction."
    ),
)  # fmt: skip
