"""Rewards of a doctor's acts: for the outcome alone, or as in DoctorAgent-RL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Reward = Literal["outcome", "doctoragent"]
REPEAT = 0.1


@dataclass(frozen=True)
class Fees:
    """Reward parts of one act each; 0 is not paid at all."""

    diagnosis: float
    """For the right one."""
    question: float
    """For any question, part `cost`."""
    test: float
    """For any test, part `cost`."""
    repeat: float
    """For what was asked or tested before, or told unasked."""
    invalid: float
    """Reward of an illegal act, unless the option `penalty` says otherwise."""
    answered: float = 0.0
    """For a new question that the patient can answer, part `question`."""
    unsure: float = 0.0
    """For a new question that it cannot answer."""
    overrun: float = 0.0
    """For asking or testing without budget, which ends the match then; at 0 that is an illegal act."""

    def in_words(self) -> str:
        """The fees in one sentence, for the rules."""
        if self.answered:
            return (
                f"An answered question pays {self.answered:g}, an unanswered one {self.unsure:g}, a repeated one "
                f"{self.repeat:g}, one without budget {self.overrun:g}; a right diagnosis pays {self.diagnosis:g}."
            )
        return (
            f"A right diagnosis pays {self.diagnosis:g}; a question costs {-self.question:g}, a test {-self.test:g}, "
            f"asking or testing again {-self.repeat:g} more."
        )


def outcome(question_cost: float, test_cost: float) -> Fees:
    """Only the right diagnosis pays."""
    return Fees(diagnosis=1.0, question=-question_cost, test=-test_cost, repeat=-REPEAT, invalid=-REPEAT)


DOCTORAGENT = Fees(
    diagnosis=5.0, question=0.0, test=0.0, repeat=-2.0, invalid=-2.0, answered=1.0, unsure=-1.0, overrun=-5.0
)
"""The numbers of DoctorAgent-RL (judge variant) per turn: nine filler questions pay more than a diagnosis.

Theirs also grants 0 to 5 for the recommendation, and up to 5 for a diagnosis in words; here a disease is right or not.
"""


def fees(reward: Reward, plain: Fees) -> Fees:
    """Those of the option `reward`, `plain` being what "outcome" means; ValueError for any other."""
    options = {"outcome": plain, "doctoragent": DOCTORAGENT}
    if reward not in options:
        raise ValueError(f'reward must be "outcome" or "doctoragent", not {reward!r}')
    return options[reward]
