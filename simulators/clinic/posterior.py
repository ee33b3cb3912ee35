"""The exact posterior of the diseases, given all that a doctor has seen, and what an act would add to it.

The hypotheses are pairs of persona and disease. Given one, symptoms and findings are independent, and so is what
becomes of each in the patient's mouth: naive Bayes is no approximation here. With chance p of the symptom, f of being
forgotten, v of being told unasked (0 for secrets) and slips with chance e, for each symptom
told unasked: p (1-f) v      not told: 1 - p (1-f) v
not told, then on asking   yes: (1-f) [p (1-v) (1-e) + (1-p) e]   no: (1-f) [p (1-v) e + (1-p) (1-e)]   unsure: f
which sum to 1 - p (1-f) v. Who loses patience after n questions tells so by going, and all others by staying.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from simulators.clinic.chart import Chart
from simulators.clinic.sources import Key, load
from simulators.clinic.table import Floats, Table
from simulators.extractor import Stance
from simulators.person import PERSONAS

STANCES: tuple[Stance, ...] = ("inform", "deny", "unknown")


def endurance(persona: str, budget: int) -> float:
    """The strain at which this persona leaves."""
    patience = PERSONAS[persona].patience
    return math.inf if patience >= 1 else max(1, math.ceil(patience * budget))


class Inference:
    """A clinic as its exact solver knows it: the table, who comes, and how often they are wrong."""

    def __init__(self, table: Table, personas: tuple[str, ...], slip: float) -> None:
        self.table, self.personas = table, personas
        kinds = [PERSONAS[persona] for persona in personas]
        chance = table.symptoms[None]
        forgets, volunteers, errors = (
            np.array(values)[:, None, None]
            for values in (
                [kind.forgets for kind in kinds],
                [kind.volunteers for kind in kinds],
                [min(1.0, slip * kind.slips) for kind in kinds],
            )
        )
        openly = volunteers * np.array([not sign.secret for sign in table.signs])
        unasked = chance * (1 - forgets) * openly
        withheld = chance * (1 - openly)
        yes = (1 - forgets) * (withheld * (1 - errors) + (1 - chance) * errors)
        no = (1 - forgets) * (withheld * errors + (1 - chance) * (1 - errors))
        with np.errstate(divide="ignore"):
            self.told, self.untold = np.log(unasked), np.log1p(-unasked)
            self.shown = np.log(np.stack([1 - table.findings, table.findings]))
            self.said = np.log(np.stack([yes, no, np.broadcast_to(forgets, yes.shape)])) - self.untold
            """(stances, personas, diseases, symptoms): log-chance of an answer, once it was not told unasked."""
        self.nothing = np.log(table.prior)[None] - math.log(len(personas)) + self.untold.sum(axis=2)
        """Log-weights of all hypotheses where nothing was told unasked."""

    def weights(self, chart: Chart, budget: int) -> Floats:
        """The posterior of all hypotheses, (personas, diseases)."""
        logs = self.nothing.copy()
        for sign in chart.complaint:
            logs += self.told[:, :, sign] - self.untold[:, :, sign]
        for sign, stance in chart.answers.items():
            logs += self.said[STANCES.index(stance), :, :, sign]
        for finding, there in chart.findings.items():
            logs += self.shown[int(there), :, finding][None]
        for row, persona in enumerate(self.personas):
            if (chart.strain >= endurance(persona, budget)) != chart.gone:
                logs[row] = -np.inf
        if np.isneginf(logs).all():  # a freely played patient may say what no record allows
            logs = np.log(np.broadcast_to(self.table.prior, logs.shape))
        scaled = np.exp(logs - logs.max())
        weights: Floats = scaled / scaled.sum()
        return weights

    def posterior(self, chart: Chart, budget: int) -> Floats:
        """The chance of each disease."""
        diseases: Floats = self.weights(chart, budget).sum(axis=0)
        return diseases

    def question_gains(self, weights: Floats) -> Floats:
        """For each symptom the bits that an answer about it adds on average to what is known of the disease."""
        joint = np.einsum("spdi,pd->sid", np.exp(self.said), weights)
        return _gains(joint)

    def test_gains(self, weights: Floats) -> dict[str, float]:
        """The same for each test, over all that it may show."""
        diseases, gains = weights.sum(axis=0), {}
        for test, name in enumerate(self.table.tests):
            joint, (first, shown) = diseases[None], self.table.bounds(test)
            for finding in range(first, first + len(shown)):
                joint = (joint[:, None] * np.exp(self.shown[:, :, finding])[None]).reshape(-1, len(diseases))
            gains[name] = float(_gains(joint[:, None])[0])
        return gains


@functools.cache
def inference(key: Key, personas: tuple[str, ...], slip: float) -> Inference:
    """The solver of a clinic with these options."""
    return Inference(load(key), personas, slip)


def entropy(chances: Floats) -> float:
    """The entropy in bits."""
    some = chances[chances > 0]
    return float(-(some * np.log2(some)).sum())


def _gains(joint: Floats) -> Floats:
    """The bits that each item tells of the disease, from joint chances (outcomes, items, diseases)."""
    outcome, disease = joint.sum(axis=2, keepdims=True), joint.sum(axis=0, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(joint > 0, joint * np.log2(joint / (outcome * disease)), 0.0)
    gains: Floats = terms.sum(axis=(0, 2))
    return gains
