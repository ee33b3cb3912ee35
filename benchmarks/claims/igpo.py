"""IGPO: does paying each turn for what it adds to the belief in the right answer help where success is rare?

A question has ten documents, one of which holds the answer. The first turn opens a document; the second copies what it
says or guesses, and only a copy from the right document is right. Copying is a weak skill at first, its logit -4 or
-2 against 0 for guessing. The belief in the answer after the first turn is the chance of copying it if the right
document lies open and next to nothing otherwise: what retrieval was worth is known without error, which is the best
case for the method. In the setting with a lure one wrong document is believed in more than the right one at first.
"""

from collections.abc import Mapping
from functools import partial

import numpy as np
from claim import Claim, Ends, Setting, Verdict
from world import NEVER, Arm, Floats, Matches, World

from arena.config.experiment import LearnSpec
from arena.credit.settings import CreditSpec

DOCUMENTS, COPY, GUESS = 10, 0, 1
QUESTION, RIGHT, WRONG = 0, 1, 2
UNLIKELY, LURED = 1e-4, 0.2
"""Belief in the right answer without its document, and with the lure open."""


class Reading(World):
    """Open one of ten documents, then copy its answer or guess."""

    name = "reading"

    def __init__(self, seed: int, copying: float, lure: bool = False) -> None:
        self.copying = copying
        drawn = np.random.default_rng([seed, 99]).permutation(DOCUMENTS)
        self.right, self.lure = int(drawn[0]), int(drawn[1]) if lure else -1

    def tables(self) -> dict[str, Floats]:
        """Documents alike; copying weak, whatever lies open."""
        logits = np.zeros((3, DOCUMENTS))
        logits[[RIGHT, WRONG], COPY] = self.copying
        logits[[RIGHT, WRONG], GUESS + 1 :] = NEVER
        return {"shared": logits}

    def play(self, matches: Matches) -> None:
        """Two turns, with the belief in the right answer before each."""
        matches.note("player", "gold", np.log(UNLIKELY))
        opened = matches.act("player", QUESTION)
        found = opened == self.right
        believed = np.where(opened == self.lure, LURED, UNLIKELY)
        matches.note("player", "gold", np.log(np.where(found, matches.probs["shared"][RIGHT, COPY], believed)))
        right = found & (matches.act("player", np.where(found, RIGHT, WRONG)) == COPY)
        matches.reward("player", "answer", right)

    def evaluate(self, tables: Mapping[str, Floats]) -> dict[str, float]:
        """The chance of a right answer."""
        table = tables["shared"]
        return {"success": table[QUESTION, self.right] * table[RIGHT, COPY]}


GAIN = {"information_gain": {"outcome": "answer"}}
LEARN = LearnSpec(lr=0.02, regularisers={})
ARMS = {
    "outcome only (GRPO)": Arm(CreditSpec.model_validate(dict(estimator="grpo")), LEARN),
    "gain shuffled": Arm(
        CreditSpec.model_validate(
            dict(stages=[GAIN, {"shuffle": {"part": "information_gain", "last": False}}], estimator="gae_turn")
        ),
        LEARN,
    ),
    "gain and outcome (IGPO)": Arm(CreditSpec.model_validate(dict(stages=[GAIN], estimator="gae_turn")), LEARN),
    "gain only": Arm(
        CreditSpec.model_validate(dict(stages=[GAIN], weights={"answer": 0.0}, estimator="gae_turn")), LEARN
    ),
}
OUTCOME, SHUFFLED, IGPO, _ = ARMS
SPARSE, EASY, LURE = "copying -4", "copying -2", "copying -4, a lure"


def judge(ends: Ends) -> Verdict:
    """The verdict by the rule of the claim."""
    won = [
        place
        for place in (SPARSE, EASY, LURE)
        if ends.above(place, IGPO, OUTCOME) and ends.above(place, IGPO, SHUFFLED)
    ]
    told = "; ".join(
        f"{place}: {ends.minus(place, IGPO, OUTCOME).estimate:+.2f} on outcome only, "
        f"{ends.minus(place, IGPO, SHUFFLED).estimate:+.2f} on shuffled"
        for place in (SPARSE, EASY, LURE)
    )
    if len(won) == 3:
        return Verdict("holds", told)
    return Verdict(f"holds only where: {'; '.join(won)}" if won else "does not hold here", told)


CLAIM = Claim(
    claim="Rewarding each turn's information gain besides the outcome teaches more than the outcome alone",
    source="IGPO, Wang et al. 2025",
    published="F1 at step 60, with gain / without: NQ .46/.39, HotpotQA .56/.49, 2Wiki .65/.53 (Qwen2.5-7B)",
    rule="A setting speaks for the claim when the 95 % intervals of IGPO - outcome only and of IGPO - shuffled gain, "
    "in success over the run, both lie above 0. `success over the run` is the mean of success over all turns played.",
    settings={
        place: Setting(partial(Reading, copying=copying, lure=lure), ARMS, 6400, matches=8, group=8)
        for place, copying, lure in ((SPARSE, -4.0, False), (EASY, -2.0, False), (LURE, -4.0, True))
    },
    figures=["success_over_the_run", "success", "zero_share"],
    panels=[(place, figure) for figure in ("success_over_the_run", "success") for place in (SPARSE, EASY, LURE)],
    verdict=judge,
    compare=[(IGPO, OUTCOME), (IGPO, SHUFFLED), (SHUFFLED, OUTCOME)],
    seeds=20,
    notes="The belief is exact (a perfect retrieval oracle) but for the lure. GAE over turns with values of 0 is the "
    "bare return-to-go that IGPO sums. The gain alone never pays the last turn, so copying is not learnt from it.",
)
