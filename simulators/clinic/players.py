"""The clinic's yardsticks: players that do nothing, guess, know the record, or ask as well as can be computed.

At the patient's seat, where there is one, `oracle` says what the record says, `noop` nothing and all others a bare yes,
no or not sure at random.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

import numpy as np

from games.contracts import View
from simulators.base import Answer
from simulators.clinic import acts
from simulators.clinic.patient import SHORT
from simulators.clinic.visit import Visit

SURE = 0.98
"""The chance at which a disease is named without asking on."""
WORTHLESS = 1e-3
"""Bits: what adds less is not asked."""


def noop(game: Visit, seed: int) -> Answer:
    """Says nothing, so that no disease is named."""
    return lambda view: ""


def at_random(game: Visit, seed: int) -> Answer:
    """Any listed act."""
    rng = random.Random(seed)
    return lambda view: rng.choice(view.legal or list(SHORT.values()))


def oracle(game: Visit, seed: int) -> Answer:
    """Knows the record: the doctor names the disease at once, the patient answers by the book."""

    def answer(view: View) -> str:
        if view.seat != game.seats[0]:
            return str(view.private["template"])
        return acts.written("d", game.patient.record.disease, game.table, game.terse)

    return answer


def asker(game: Visit, seed: int) -> Answer:
    """Asks or tests what tells most of the disease by the exact posterior, then names the likeliest."""

    def choose() -> tuple[str, int] | None:
        weights = game.solver.weights(game.chart, game.budget)
        if weights.sum(axis=0).max() >= SURE:
            return None
        gains = game.solver.question_gains(weights)
        gains[[symptom for symptom in range(game.symptoms) if game.chart.knows(symptom)]] = 0.0
        tests = [0.0 if n in game.tested else gain for n, gain in enumerate(game.solver.test_gains(weights).values())]
        best = ("t", int(np.argmax(tests))) if max(tests) > gains.max() else ("a", int(gains.argmax()))
        return best if max(*tests, float(gains.max())) > WORTHLESS else None

    return _solver(game, seed, choose)


def random_asker(game: Visit, seed: int) -> Answer:
    """Asks any symptoms that were not told yet until the budget is spent, then names the likeliest disease."""
    rng = random.Random(seed)

    def choose() -> tuple[str, int] | None:
        unknown = [symptom for symptom in range(game.symptoms) if not game.chart.knows(symptom)]
        return ("a", rng.choice(unknown)) if unknown else None

    return _solver(game, seed, choose)


def _solver(game: Visit, seed: int, choose: Callable[[], tuple[str, int] | None]) -> Answer:
    """Return a player that asks what `choose` gives, while it may and gets one, then names the likeliest disease."""
    patient = at_random(game, seed)

    def answer(view: View) -> str:
        if view.seat != game.seats[0]:
            return patient(view)
        chosen = choose() if game.left else None
        if chosen is None:
            chosen = "d", int(game.solver.posterior(game.chart, game.budget).argmax())
        return acts.written(*chosen, game.table, game.terse)

    return answer


PLAYERS: Mapping[str, Callable[[Visit, int], Answer]] = {
    "noop": noop,
    "random": at_random,
    "oracle": oracle,
    "asker": asker,
    "random_asker": random_asker,
}
