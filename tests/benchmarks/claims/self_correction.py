"""SCoRe: does holding the first attempt fixed for a while teach self-correction that carries over to new questions?

Questions have two answers. The first attempt answers (logits by question: training questions can be memorised); then
comes evidence, right 80 times in 100, that the attempt was right or wrong, and the second attempt keeps the answer,
turns it round, or answers afresh (logits of its own by question: memorisable as well). What to do about evidence is the
same for all questions, so this alone carries over to the held-out ones, of which 60 in 100 first attempts are right.
"""

from collections.abc import Mapping

import numpy as np
from world import NEVER, Floats, Matches, World

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
        """Of the second attempt, given the chances that first and fresh answers are right."""
        true, false = [np.array([TRUE, 1 - TRUE]), np.array([1 - TRUE, TRUE])]  # looks right, looks wrong
        right = true @ looks[:, KEEP] * first + false @ looks[:, TURN] * (1 - first)
        afresh = (true @ looks[:, AFRESH] * first + false @ looks[:, AFRESH] * (1 - first)) * fresh
        return float((right + afresh).mean())

