"""Rewards of a doctor's acts, for the outcome alone or as in DoctorAgent-RL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Reward = Literal["outcome", "doctoragent"]


@dataclass(frozen=True)
class Fees:
    """Rewards of the doctor's acts. Costs are negative; a part with 0 is not paid."""

    diagnosis: float
    """For the right diagnosis."""
    question: float
    """For any question, as part `cost`."""
    test: float
    """For any test, as part `cost`."""
    repeat: float
    """For a repeated question or test."""
    invalid: float
    """For an illegal act, unless the option `penalty` is set."""
    answered: float = 0.0
    """For a new question that the patient answers, as part `question`."""
    unsure: float = 0.0
    """For a new question to which the patient is unsure."""
    recommendation: float = 0.0
    """For the right recommendation, if the clinic asks for one."""
    overrun: float = 0.0
    """For a question or test beyond the budget, which ends the match. At 0 it is an illegal act instead."""

    def describe(self) -> str:
        """Return a sentence about the fees, for the rules of the game."""
        if self.answered:
            return (
                f"An answered question pays {self.answered:g}, an unanswered one {self.unsure:g}, a repeated one "
                f"{self.repeat:g}, one without budget {self.overrun:g}; a right diagnosis pays {self.diagnosis:g}."
            )
        return (
            f"A right diagnosis pays {self.diagnosis:g}; a question costs {-self.question:g}, a test {-self.test:g}, "
            f"asking or testing again {-self.repeat:g} more."
        )


OUTCOME = Fees(diagnosis=1.0, question=-0.01, test=-0.03, repeat=-0.1, invalid=-0.1)
"""Rewards for the right diagnosis only. Questions, tests, repeats and illegal acts cost."""
DOCTORAGENT = Fees(
    diagnosis=5.0, question=0.0, test=0.0, repeat=-2.0, invalid=-2.0, answered=1.0, unsure=-1.0, recommendation=5.0,
    overrun=-5.0,
)  # fmt: skip
"""Rewards of DoctorAgent-RL (judge variant) per turn. Nine filler questions pay more than a diagnosis.

The original grants 0 to 5 each by the textual similarity of diagnosis and recommendation; here each is right or wrong.
"""
FEES: Mapping[Reward, Fees] = {"outcome": OUTCOME, "doctoragent": DOCTORAGENT}
