"""Exact posterior of the diseases given the doctor's observations, and the information gain of acts.

The hypotheses are pairs of persona and disease. Given a pair, symptoms and findings are independent, and so are the
patient's statements about them, so naive Bayes is exact. Let p be the probability of the symptom, f of forgetting it, v
of mentioning it unasked (0 for secrets) and e of a wrong answer. Then the probabilities for each symptom are

- mentioned unasked: p (1-f) v
- not mentioned: 1 - p (1-f) v
- not mentioned, then asked: yes (1-f) [p (1-v) (1-e) + (1-p) e], no (1-f) [p (1-v) e + (1-p) (1-e)], unsure f

The last three sum to 1 - p (1-f) v. Whether the patient has left also excludes personas (`strain_limit`).
"""

from __future__ import annotations

import functools
import math

import numpy as np

from simulators.clinic.chart import Chart
from simulators.clinic.sources import Key, load_table
from simulators.clinic.table import Floats, Table
from simulators.extractor import Stance
from simulators.person import PERSONAS

STANCES: tuple[Stance, ...] = ("inform", "deny", "unknown")


def strain_limit(persona: str, budget: int) -> float:
    """Return the strain (`Chart.strain`) at which a persona leaves, given the budget; infinite if it never does."""
    patience = PERSONAS[persona].patience
    return math.inf if patience >= 1 else max(1, math.ceil(patience * budget))


class Inference:
    """Exact Bayesian inference of the disease from a doctor's chart.

    Assumes a table, equally likely personas, and a cooperative patient's rate of wrong answers (`slip`).
    """

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
            self.log_mentioned, self.log_unmentioned = np.log(unasked), np.log1p(-unasked)
            self.log_findings = np.log(np.stack([1 - table.findings, table.findings]))
            self.log_answers = np.log(np.stack([yes, no, np.broadcast_to(forgets, yes.shape)])) - self.log_unmentioned
            """[stances, personas, diseases, symptoms]: log-probability of an answer about an unmentioned symptom."""
        self.log_initial = np.log(table.prior)[None] - math.log(len(personas)) + self.log_unmentioned.sum(axis=2)
        """Log-weights of all hypotheses if nothing was mentioned unasked."""

    def weights(self, chart: Chart, budget: int) -> Floats:
        """Return the joint posterior of persona and disease, [personas, diseases], given the chart.

        Returns the prior for a chart that contradicts every record, which a free patient can cause.
        """
        logs = self.log_initial.copy()
        for sign in chart.complaint:
            logs += self.log_mentioned[:, :, sign] - self.log_unmentioned[:, :, sign]
        for sign, stance in chart.answers.items():
            logs += self.log_answers[STANCES.index(stance), :, :, sign]
        for finding, is_present in chart.findings.items():
            logs += self.log_findings[int(is_present), :, finding][None]
        for row, persona in enumerate(self.personas):
            if (chart.strain >= strain_limit(persona, budget)) != chart.has_left:
                logs[row] = -np.inf
        if np.isneginf(logs).all():  # see the docstring
            logs = np.log(np.broadcast_to(self.table.prior, logs.shape))
        scaled = np.exp(logs - logs.max())
        weights: Floats = scaled / scaled.sum()
        return weights

    def posterior(self, chart: Chart, budget: int) -> Floats:
        """Return the posterior probability of each disease, [diseases], given the chart and the budget."""
        diseases: Floats = self.weights(chart, budget).sum(axis=0)
        return diseases

    def compute_question_gains(self, weights: Floats) -> Floats:
        """Return the expected information gain about the disease from asking each symptom, [symptoms], in bits."""
        joint = np.einsum("spdi,pd->sid", np.exp(self.log_answers), weights)
        return _mutual_information(joint)

    def compute_test_gains(self, weights: Floats) -> dict[str, float]:
        """Return the expected information gain about the disease from all findings of each test, by name, in bits."""
        diseases, gains = weights.sum(axis=0), {}
        for test, name in enumerate(self.table.tests):
            joint, (first, names) = diseases[None], self.table.locate_findings(test)
            for finding in range(first, first + len(names)):
                joint = (joint[:, None] * np.exp(self.log_findings[:, :, finding])[None]).reshape(-1, len(diseases))
            gains[name] = float(_mutual_information(joint[:, None])[0])
        return gains


@functools.cache
def load_inference(key: Key, personas: tuple[str, ...], slip: float) -> Inference:
    """Return the inference for these options, cached for all matches of the process."""
    return Inference(load_table(key), personas, slip)


def entropy(chances: Floats) -> float:
    """Return the entropy in bits of a probability distribution."""
    positive = chances[chances > 0]
    return float(-(positive * np.log2(positive)).sum())


def _mutual_information(joint: Floats) -> Floats:
    """Return each item's mutual information with the disease in bits, from joint [outcomes, items, diseases]."""
    outcome, disease = joint.sum(axis=2, keepdims=True), joint.sum(axis=0, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(joint > 0, joint * np.log2(joint / (outcome * disease)), 0.0)
    gains: Floats = terms.sum(axis=(0, 2))
    return gains
