"""Scripted players of the clinic: noop, random, oracle, and askers that use the exact posterior.

At the patient's seat, `oracle` answers from the record, `noop` says nothing, and all others say yes, no or unsure at
random.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np

from games.contracts import View
from simulators.base import Script, silent
from simulators.clinic import acts
from simulators.clinic.advice import Advice
from simulators.clinic.chart import Chart
from simulators.clinic.patient import SHORT, Patient
from simulators.clinic.posterior import Inference
from simulators.clinic.table import Table

SURE = 0.98
"""Probability at which the asker names a disease without further questions."""
WORTHLESS = 1e-3
"""Information gain up to which the asker makes no further question or test, in bits."""


class Visit(Protocol):
    """Attributes of a clinic match that the scripted players use."""

    seats: tuple[str, ...]
    terse: bool
    table: Table
    symptoms: int
    advice: Advice
    patient: Patient
    chart: Chart
    budget: int
    tests_made: list[int]

    @property
    def solver(self) -> Inference:
        """Solver of the exact posterior of the diseases."""
        ...

    @property
    def remaining_acts(self) -> int:
        """Remaining questions and tests together."""
        ...


def at_random(game: Visit, seed: int) -> Script:
    """Return a player of random listed acts. If none are listed, it says yes, no or unsure at random."""
    rng = random.Random(seed)
    return lambda view: rng.choice(view.legal or list(SHORT.values()))


def oracle(game: Visit, seed: int) -> Script:
    """Return a player that knows the record. It names the disease at once; as the patient it says the template."""

    def answer(view: View) -> str:
        if view.seat != game.seats[0]:
            return str(view.private["template"])
        return _format_act(game, "d", game.patient.record.disease)

    return answer


def asker(game: Visit, seed: int) -> Script:
    """Return a player that makes the question or test with the most expected information, then names a disease.

    It names the likeliest disease at a probability of `SURE`, or once no act is worth more than `WORTHLESS` bits.
    """

    def choose() -> tuple[str, int] | None:
        weights = game.solver.weights(game.chart, game.budget)
        if weights.sum(axis=0).max() >= SURE:
            return None
        gains = game.solver.compute_question_gains(weights)
        gains[[symptom for symptom in range(game.symptoms) if game.chart.knows(symptom)]] = 0.0
        tests = [
            0.0 if n in game.tests_made else gain
            for n, gain in enumerate(game.solver.compute_test_gains(weights).values())
        ]
        best = ("t", int(np.argmax(tests))) if max(tests) > gains.max() else ("a", int(gains.argmax()))
        return best if max(*tests, float(gains.max())) > WORTHLESS else None

    return _diagnoser(game, seed, choose)


def random_asker(game: Visit, seed: int) -> Script:
    """Return a player that asks about random unknown symptoms up to the budget, then names the likeliest disease."""
    rng = random.Random(seed)

    def choose() -> tuple[str, int] | None:
        unknown = [symptom for symptom in range(game.symptoms) if not game.chart.knows(symptom)]
        return ("a", rng.choice(unknown)) if unknown else None

    return _diagnoser(game, seed, choose)


def _diagnoser(game: Visit, seed: int, choose: Callable[[], tuple[str, int] | None]) -> Script:
    """Return a player that plays the acts (kind, index) chosen by `choose`, then names the likeliest disease.

    It names the disease if `choose` returns None or the budget is spent. At the patient's seat it answers at random.
    """
    patient = at_random(game, seed)

    def answer(view: View) -> str:
        if view.seat != game.seats[0]:
            return patient(view)
        act = choose() if game.remaining_acts else None
        if act is None:
            act = "d", int(game.solver.posterior(game.chart, game.budget).argmax())
        return _format_act(game, *act)

    return answer


def _format_act(game: Visit, kind: str, index: int) -> str:
    """Return an act as text; a diagnosis includes the disease's recommendation."""
    end = game.advice.format_suffix(game.advice.right[index]) if kind == "d" else ""
    return acts.format_act(kind, index, game.table, game.terse) + end


PLAYERS: Mapping[str, Callable[[Visit, int], Script]] = {
    "noop": silent,
    "random": at_random,
    "oracle": oracle,
    "asker": asker,
    "random_asker": random_asker,
}
