"""Agent-specific against pooled normalisation, where the seats of a game earn differently.

Two seats take three turns each. Every turn draws a card, the seat names one of four answers, and each answer to each
card earns something between 0 and 1; what one seat does is nothing to the other, so the best policy is known and a
seat's skill is exact. On top the seat `first` is paid `offset`, whatever it did, when the match ends or in parts turn
by turn, and `second` pays as much; `stake` multiplies what `first` earns for its answers. One policy plays both seats.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from claim import Claim, Ends, Setting, Verdict
from gradients import gradient_noise
from world import Arm, Floats, Matches, World

from arena.config.experiment import LearnSpec
from arena.credit.settings import CreditSpec

SEATS, CARDS, ANSWERS, TURNS = ("first", "second"), 6, 4, 3
WORTH = np.random.default_rng(1).permuted(np.tile(np.linspace(0, 1, ANSWERS), (2, CARDS, 1)), axis=-1)
"""[seat, card, answer] what it earns: 0, 1/3, 2/3 or 1."""


@dataclass
class Stalls(World):
    """Two seats that answer cards in turn."""

    offset: float = 0.0
    each_turn: bool = False
    stake: float = 1.0
    shared: bool = False
    """Whether the seats read the same cards and the same answers are right for both, so that one table row serves
    both; otherwise a row belongs to a seat."""
    name = "stalls"
    seats: ClassVar[Mapping[str, tuple[str, str]]] = {seat: (seat, "shared") for seat in SEATS}

    def tables(self) -> dict[str, Floats]:
        return {"shared": np.zeros((CARDS if self.shared else 2 * CARDS, ANSWERS))}

    def play(self, matches: Matches) -> None:
        for turn in range(TURNS):
            for place, seat in enumerate(SEATS):
                cards = matches.rng.integers(CARDS, size=matches.count)
                answers = matches.act(seat, cards + CARDS * self._own(place))
                matches.reward(seat, "answer", WORTH[self._own(place), cards, answers] * (self.stake, 1.0)[place])
                paid = self.offset / TURNS if self.each_turn else self.offset * (turn == TURNS - 1)
                matches.reward(seat, "offset", (paid, -paid)[place])

    def evaluate(self, tables: Mapping[str, Floats]) -> dict[str, float]:
        """Exact skill of each seat, 0 for answers at random and 1 for the best, and their mean."""
        probs = np.broadcast_to(tables["shared"].reshape(-1, CARDS, ANSWERS), WORTH.shape)
        worth = WORTH[[self._own(0), self._own(1)]]
        skill = 2.0 * (probs * worth).sum(-1).mean(-1) - 1.0
        return {"skill": float(skill.mean()), "skill_first": float(skill[0]), "skill_second": float(skill[1])}

    def _own(self, place: int) -> int:
        return 0 if self.shared else place


AGENT: list[Any] = ["game", "role", "policy"]
LEARN = LearnSpec(lr=0.05, regularisers={})
REUSED = LearnSpec(lr=0.05, regularisers={}, epochs=2, minibatches=4)
OURS, POOLED, OUTCOME, SHUFFLED = "agent-specific", "pooled", "outcome only", "agent-specific, shuffled"
RELEASED, TURNS_APART = "MARS as released", "agent-specific, turn by turn"
ESTIMATORS: dict[str, Any] = {
    OURS: "mars",
    POOLED: {"mars": {"by": ["game"]}},
    OUTCOME: {"dr_grpo": {"by": AGENT}},
    SHUFFLED: {"shuffled": {"of": "mars", "by": AGENT}},
    RELEASED: "mars_released",
    TURNS_APART: {"mars": {"by": [*AGENT, "turn"]}},
}
WITH_DEVIATION: dict[str, Any] = ESTIMATORS | {
    OURS: {"mars": {"std": True}},
    POOLED: {"mars": {"by": ["game"], "std": True}},
    OUTCOME: {"grpo": {"by": AGENT}},
    TURNS_APART: {"mars": {"by": [*AGENT, "turn"], "std": True}},
}


def setting(world: Stalls, estimators: Mapping[str, Any] = ESTIMATORS, learn: LearnSpec = LEARN) -> Setting:
    """All arms in one world."""
    arms = {name: Arm(CreditSpec(estimator=estimator), learn) for name, estimator in estimators.items()}
    return Setting(lambda seed: world, arms, steps=10_000, matches=32, group=1)


OFFSETS = (0.0, 0.3, 1.0, 3.0, 10.0)
SWEEP = {f"offset {offset:g}": setting(Stalls(offset)) for offset in OFFSETS}
SETTINGS = SWEEP | {
    "offset 3, paid turn by turn": setting(Stalls(3.0, each_turn=True)),
    "offset 3, seats share rows": setting(Stalls(3.0, shared=True)),
    "offset 3, each batch used twice, in parts": setting(Stalls(3.0), learn=REUSED),
    "stake 10": setting(Stalls(stake=10.0)),
    "stake 10, with deviation": setting(Stalls(stake=10.0), WITH_DEVIATION),
}
RETURN_DEVIATION = float(np.sqrt(TURNS * WORTH.var()))
"""Deviation of a seat's return in a match, answers at random, without offset."""


def verdict(ends: Ends) -> Verdict:
    """The verdict by the rule."""
    gains = {place: ends.minus(place, OURS, POOLED) for place in SWEEP}
    better = [offset for offset, gain in zip(OFFSETS, gains.values(), strict=True) if gain.low > 0]
    told = "; ".join(f"{place} {g.estimate:+.3f} [{g.low:+.3f}, {g.high:+.3f}]" for place, g in gains.items())
    because = f"skill, agent-specific - pooled: {told}; a match's return deviates by {RETURN_DEVIATION:.2f}"
    if not better or not ends.above(f"offset {better[-1]:g}", OURS, SHUFFLED):
        return Verdict("does not hold here", because)
    if 0.0 in better:
        return Verdict("holds", because)
    return Verdict(f"holds only where seats earn at least {2 * min(better):g} apart", because)


def also() -> dict[str, Any]:
    """Measure how noisy one batch's gradient is, before anything was learnt."""
    found = {}
    for place, item in SETTINGS.items():
        arms = {name: item.arms[name] for name in (OURS, POOLED, RELEASED, TURNS_APART)}
        found[place] = gradient_noise(lambda item=item: item.world(0), arms, item.matches, item.group)  # type: ignore[misc]
    return {"return_deviation": RETURN_DEVIATION, "gradient_noise": found}


CLAIM = Claim(
    claim="Normalising advantages per agent, not over all seats together, makes learning in self-play better",
    source="MARS / MARSHAL, ICLR 2026",
    published="Tic-tac-toe specialist, per agent / pooled: Leduc 58.4 / 51.0 as first and 27.7 / 49.9 as second, "
    "Simple Hanabi 29.8 / 21.7; no seeds or intervals",
    rule=(
        "At each offset the interval of the skill agent-specific - pooled is looked at. Holds if it lies above 0 at "
        "every offset, 0 included; holds only where seats earn at least so much apart, if from some offset on; the "
        "best case must also lie above its own shuffled advantages."
    ),
    settings=SETTINGS,
    figures=("skill", "skill_first", "skill_second"),
    panels=[
        (place, "skill") for place in (*SWEEP, "offset 3, paid turn by turn", "offset 3, seats share rows", "stake 10")
    ],
    verdict=verdict,
    compare=[(OURS, POOLED), (OURS, OUTCOME), (OURS, SHUFFLED), (OURS, RELEASED), (TURNS_APART, OURS)],
    shown={place: (OURS, POOLED) for place in SWEEP} | {"offset 3": (OURS, POOLED, OUTCOME, SHUFFLED, RELEASED)},
    also=also,
    notes=(
        "Skill is exact: 0 for answers at random, 1 for the best. `offset` is paid to one seat and taken from the "
        "other, so seats earn twice as much apart; it makes no difference to what is best. In a game that is won or "
        "lost by 1 with 75, 90 or 97 % wins for one side, the mean return lies 0.6, 1.3 or 2.8 deviations from 0. "
        "In a table seats with rows of their own do not disturb each other but for the gradient clip: what pooling "
        "costs here is variance alone, since a constant within a seat is a baseline, if a bad one. "
        "Rule, learning rate and turns played were settled after trials on other seeds, "
        "which had shown the direction."
    ),
)
