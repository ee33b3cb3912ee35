"""Rewards of a doctor's acts: for the outcome alone, or as in DoctorAgent-RL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Reward = Literal["outcome", "doctoragent"]
REPEAT = 0.1


@dataclass(frozen=True)
class Fees:
    """Rewards of the doctor's acts; costs are negative. Parts with 0 are not paid."""

    diagnosis: float
    """For the right diagnosis."""
    question: float
    """For any question, as part `cost`."""
    test: float
    """For any test, as part `cost`."""
    repeat: float
    """For a question or test about something known."""
    invalid: float
    """For an illegal act, unless the option `penalty` is set."""
    answered: float = 0.0
    """For a new question with an answer, as part `question`."""
    unsure: float = 0.0
    """For a new question without an answer."""
    recommendation: float = 0.0
    """For the right recommendation, if the clinic asks for one."""
    overrun: float = 0.0
    """For a question or test beyond the budget, which ends the match. At 0 it is an illegal act instead."""

    def describe(self) -> str:
        """Return the fees in one sentence, for the rules."""
        if self.answered:
            return (
                f"An answered question pays {self.answered:g}, an unanswered one {self.unsure:g}, a repeated one "
                f"{self.repeat:g}, one without budget {self.overrun:g}; a right diagnosis pays {self.diagnosis:g}."
            )
        return (
            f"A right diagnosis pays {self.diagnosis:g}; a question costs {-self.question:g}, a test {-self.test:g}, "
            f"asking or testing again {-self.repeat:g} more."
        )


def outcome_fees(question_cost: float, test_cost: float) -> Fees:
    """Return fees that reward only the right diagnosis (1); questions, tests, repeats and illegal acts have costs."""
    return Fees(diagnosis=1.0, question=-question_cost, test=-test_cost, repeat=-REPEAT, invalid=-REPEAT)


DOCTORAGENT = Fees(
    diagnosis=5.0, question=0.0, test=0.0, repeat=-2.0, invalid=-2.0, answered=1.0, unsure=-1.0, recommendation=5.0,
    overrun=-5.0,
)  # fmt: skip
"""Rewards of DoctorAgent-RL (judge variant) per turn. Nine filler questions pay more than a diagnosis.

The original grants 0 to 5 each for how near diagnosis and recommendation come in words; here both are right or wrong.
"""


def choose_fees(reward: Reward, plain: Fees) -> Fees:
    """Return the fees of the option `reward`: `plain` for "outcome", or `DOCTORAGENT`. Raises ValueError if unknown."""
    options = {"outcome": plain, "doctoragent": DOCTORAGENT}
    if reward not in options:
        raise ValueError(f'reward must be "outcome" or "doctoragent", not {reward!r}')
    return options[reward]
