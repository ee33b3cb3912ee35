"""SCoRe: does holding the first attempt in place for a while teach self-correction that carries over to new questions?

Questions have two answers. The first attempt answers (logits by question, so training questions can be memorised).
Then comes evidence, right 80 times in 100, that the attempt was right or wrong. The second attempt keeps the answer or
turns it round, by logits that all questions share: only these carry over. In the second setting it may also answer
afresh, by logits of its own for each question, so that second attempts can be memorised as well.

Held-out questions are never played: 60 in 100 of their answers, first and fresh, are right, as at first in training.
"""

from collections.abc import Mapping
from functools import partial

import numpy as np
from claim import Claim, Ends, Setting, Verdict
from world import NEVER, Arm, Floats, Matches, World

from arena.config.experiment import LearnSpec
from arena.credit.settings import CreditSpec

QUESTIONS, TRUE = 40, 0.8
FIRST = np.log(0.6 / 0.4)
"""Logit of the right answer at first."""
KEEP, TURN, AFRESH = 0, 1, 2


class Questions(World):
    """Answer, see noisy evidence, answer again."""

    name = "questions"
    deals = QUESTIONS

    def __init__(self, seed: int, afresh: bool) -> None:
        self.afresh = afresh
        self.right = np.random.default_rng([seed, 99]).integers(2, size=QUESTIONS)

    def tables(self) -> dict[str, Floats]:
        """Rows: first attempts, fresh second answers, then `looks right` and `looks wrong`, where keeping is usual."""
        logits = np.full((2 * QUESTIONS + 2, 3), NEVER)
        logits[: 2 * QUESTIONS, :2] = 0.0
        questions = np.arange(QUESTIONS)
        logits[questions, self.right] = logits[QUESTIONS + questions, self.right] = FIRST
        logits[2 * QUESTIONS :] = [2.0, 0.0, 0.0 if self.afresh else NEVER]
        return {"shared": logits}

    def play(self, matches: Matches) -> None:
        """Two turns; the second is two tokens where it answers afresh."""
        right = self.right[matches.deals]
        first = matches.act("player", matches.deals)
        matches.reward("player", "correct", first == right)
        matches.reward("player", "first", first == right)
        looks_right = (first == right) == (matches.rng.random(matches.count) < TRUE)
        choice = matches.act("player", 2 * QUESTIONS + ~looks_right)
        second = np.where(choice == TURN, 1 - first, first)
        rows = np.flatnonzero(choice == AFRESH)
        second[rows] = matches.more("player", QUESTIONS + matches.deals[rows], rows)
        matches.reward("player", "correct", second == right)
        matches.reward("player", "second", second == right)
        matches.figure("train_first", first == right)
        matches.figure("train_second", second == right)

    def evaluate(self, tables: Mapping[str, Floats]) -> dict[str, float]:
        """Held-out accuracy of the second attempt minus the first's, exactly: answers are as good as at first."""
        table = tables["shared"]
        looks = table[2 * QUESTIONS :]
        held, training = self._accuracy(np.array([0.6]), np.array([0.6]), looks), np.arange(QUESTIONS)
        own = [table[start + training, self.right] for start in (0, QUESTIONS)]
        trained = self._accuracy(own[0], own[1], looks)
        return {"held_out_gain": held - 0.6, "train_gain": trained - own[0].mean()}

    def _accuracy(self, first: Floats, fresh: Floats, looks: Floats) -> float:
        """Return the accuracy of the second attempt, given the chances that first and fresh answers are right."""
        true, false = [np.array([TRUE, 1 - TRUE]), np.array([1 - TRUE, TRUE])]  # looks right, looks wrong
        right = true @ looks[:, KEEP] * first + false @ looks[:, TURN] * (1 - first)
        afresh = (true @ looks[:, AFRESH] * first + false @ looks[:, AFRESH] * (1 - first)) * fresh
        return float((right + afresh).mean())


ITERATIONS, MATCHES = 300, 32
BY_TURN = {"mars": {"by": ["seed", "turn"]}}
"""REINFORCE: return-to-go less the mean of the same question's same attempts."""


def then(first: float, second: float) -> dict[str, object]:
    """A value for stage one, the first half, and another for stage two."""
    return {"steps": {"values": [first, second], "every": ITERATIONS // 2}}


def arm(first: object, hold: object, bonus: object = 0.0, alpha: float = 0.5, estimator: object = BY_TURN) -> Arm:
    """Weights of the first attempt's reward (`first`), of its KL to the beginning (`hold`), of α's term (`bonus`)."""
    return Arm(
        CreditSpec.model_validate(
            dict(
                stages=[{"self_correction": {"part": "correct", "alpha": alpha, "credited": "both"}}],
                weights={"correct": 0.0, "first": first, "second": 1.0, "self_correction": bonus},
                estimator=estimator,
            )
        ),
        LearnSpec.model_validate(
            dict(lr=0.05, regularisers={"kl": {"weight": 0.0, "estimate": "k2", "turns": {0: hold}}})
        ),
    )


HELD, LOOSE = 1.0, 0.1
"""β2 and β1."""
ARMS = {
    "outcome only": arm(0.0, LOOSE),
    "naive": arm(1.0, LOOSE),
    "stage one alone": arm(0.0, HELD),
    "stage one, then naive": arm(then(0, 1), then(HELD, LOOSE)),
    "stage one, then bonus": arm(then(0, 1), then(HELD, LOOSE), then(0, 1)),
    "bonus alone": arm(1.0, LOOSE, 1.0),
    "stage one, then bonus of 10": arm(then(0, 1), then(HELD, LOOSE), then(0, 1), alpha=10.0),
    "bonus of 10 alone": arm(1.0, LOOSE, 1.0, alpha=10.0),
    "stage one, shuffled": arm(0.0, HELD, estimator={"shuffled": {"of": BY_TURN, "by": ["seed", "turn"]}}),
}
KEEP_OR_TURN, AFRESH_TOO = "keep or turn round", "or answer afresh"
STAGED, NAIVE, SHUFFLED = "stage one, then naive", "naive", "stage one, shuffled"


def judge(ends: Ends) -> Verdict:
    """The verdict by the rule of the claim."""
    won = [p for p in (KEEP_OR_TURN, AFRESH_TOO) if ends.above(p, STAGED, NAIVE) and ends.above(p, STAGED, SHUFFLED)]
    told = "; ".join(
        f"{p}: stage one, then naive {ends.minus(p, STAGED, NAIVE).estimate:+.2f} on naive, with the bonus "
        f"{ends.minus(p, 'stage one, then bonus', STAGED).estimate:+.2f} more"
        for p in (KEEP_OR_TURN, AFRESH_TOO)
    )
    if len(won) == 2:
        return Verdict("holds", told)
    return Verdict(f"holds only where: {'; '.join(won)}" if won else "does not hold here", told)


CLAIM = Claim(
    claim="Learning the second attempt first, with the first one held in place, teaches self-correction that carries "
    "over; naive multi-turn learning does not",
    source="SCoRe, Kumar et al. 2024",
    published="MATH, second minus first attempt: base -11.2, SCoRe +4.4, without stage one +2.2, without the bonus "
    "+2.6 points (Gemini 1.5 Flash)",
    rule="A setting speaks for the claim when the 95 % intervals of (stage one, then naive) - naive and of (stage one, "
    "then naive) - shuffled, in held-out accuracy of the second attempt minus the first, both lie above 0.",
    settings={
        place: Setting(partial(Questions, afresh=afresh), ARMS, 2 * MATCHES * ITERATIONS, MATCHES)
        for place, afresh in ((KEEP_OR_TURN, False), (AFRESH_TOO, True))
    },
    figures=["held_out_gain", "train_first", "train_second"],
    panels=[
        (place, figure)
        for place in (KEEP_OR_TURN, AFRESH_TOO)
        for figure in ("held_out_gain", "train_first", "train_second")
    ],
    drawn=("outcome only", NAIVE, "stage one alone", STAGED, "stage one, then bonus", "bonus of 10 alone", SHUFFLED),
    verdict=judge,
    compare=[
        (STAGED, NAIVE),
        ("stage one alone", NAIVE),
        ("stage one, then bonus", STAGED),
        ("bonus alone", NAIVE),
        (STAGED, SHUFFLED),
    ],
    seeds=10,
    notes="Stage one is the first half of the turns: second attempts alone are paid, β2 = 1 holds the first by an "
    "exact KL gradient (k2); then β1 = .1. Bonus α = .5, or 10 as published. Training accuracy of first attempts shows "
    "whether a bonus was earned by failing on purpose.",
)
