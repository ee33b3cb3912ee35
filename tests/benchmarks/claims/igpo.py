"""IGPO: does paying each turn for the information it gained help where success is rare?

A question has ten documents, one of which holds the answer. The first turn opens a document; the second copies what it
says or guesses, and only a copy from the right document is right. Copying is a weak skill at first, its logit -4 or
-2. The gold answer's probability after each turn is the probability of copying if the right document lies open, and
next to nothing otherwise: retrieval is measured without error, which is the best case for the method.
"""

from collections.abc import Mapping

import numpy as np
from world import Floats, Matches, World

DOCUMENTS, COPY, GUESS = 10, 0, 1
QUESTION, RIGHT, WRONG = 0, 1, 2
UNLIKELY = 1e-4
"""The gold answer's probability without the document."""


class Reading(World):
    """Open one of ten documents, then copy its answer or guess."""

    name = "reading"

    def __init__(self, seed: int, copying: float) -> None:
        self.copying = copying
        self.right = int(np.random.default_rng([seed, 99]).integers(DOCUMENTS))

    def tables(self) -> dict[str, Floats]:
        """Documents alike; copying weak, whatever lies open."""
        logits = np.zeros((3, DOCUMENTS))
        logits[[RIGHT, WRONG], COPY] = self.copying
        logits[[RIGHT, WRONG], GUESS + 1 :] = -1e4
        return {"shared": logits}

    def play(self, matches: Matches) -> None:
        """Two turns."""
        copy = matches.probs["shared"][RIGHT, COPY]
        matches.note("player", "gold", np.log(UNLIKELY))
        found = matches.act("player", QUESTION) == self.right
        matches.note("player", "gold", np.where(found, np.log(copy), np.log(UNLIKELY)))
        right = found & (matches.act("player", np.where(found, RIGHT, WRONG)) == COPY)
        matches.reward("player", "answer", right.astype(float))
        matches.figure("solved", right)

    def evaluate(self, tables: Mapping[str, Floats]) -> dict[str, float]:
        """The chance of a right answer."""
        table = tables["shared"]
        return {"success": table[QUESTION, self.right] * table[RIGHT, COPY]}
