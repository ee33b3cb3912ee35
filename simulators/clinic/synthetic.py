"""Tables invented from a seed, with the frequency classes of the Human Phenotype Ontology (HPO).

Each class of HPO and Orphanet (very frequent 80-99 %, frequent 30-79 %, occasional 5-29 %) is one probability, and all
other signs have a small background rate. Fully synthetic: simulation only, never advice.
"""

from __future__ import annotations

import numpy as np

from simulators.clinic.signs import FINDINGS, SYMPTOMS, TESTS, invent_disease_names
from simulators.clinic.table import Floats, Table

VERY_FREQUENT, FREQUENT, OCCASIONAL, BACKGROUND = 0.9, 0.55, 0.2, 0.03
SYMPTOM_CLASSES = (VERY_FREQUENT,) * 2 + (FREQUENT,) * 3 + (OCCASIONAL,) * 3
"""Frequency classes of a disease's own symptoms."""
FINDING_CLASSES = (FREQUENT, OCCASIONAL)
PREVALENCE = (4.0, 2.0, 1.0)
"""Prior weights of common, uncommon and rare diseases; a third of the diseases has each."""


def invent_table(seed: int, diseases: int, symptoms: int) -> Table:
    """Invent the table of this seed and size."""
    rng = np.random.default_rng([seed, diseases, symptoms])
    weights = np.resize(PREVALENCE, diseases)
    return Table(
        world="an invented world",
        names=invent_disease_names(diseases),
        prior=weights / weights.sum(),
        signs=SYMPTOMS[:symptoms],
        symptoms=_draw_frequencies(rng, diseases, symptoms, SYMPTOM_CLASSES),
        tests=TESTS,
        findings=_draw_frequencies(rng, diseases, len(FINDINGS), FINDING_CLASSES),
    )


def _draw_frequencies(rng: np.random.Generator, rows: int, columns: int, classes: tuple[float, ...]) -> Floats:
    chances = np.full((rows, columns), BACKGROUND)
    for row in chances:
        row[rng.permutation(columns)[: len(classes)]] = classes[:columns]
    chances.setflags(write=False)
    return chances
