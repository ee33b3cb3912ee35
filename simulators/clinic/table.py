"""Table of a clinic: its diseases, the signs and tests it talks about, and how often each disease has which of them."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simulators.clinic.signs import Sign
from simulators.extractor import Vocabulary, vocabulary

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Table:
    """Diseases by row. Given the disease all signs are independent, so naive Bayes is exact for every patient."""

    world: str
    """Name of what this simulates, for the rules."""
    names: tuple[str, ...]
    prior: Floats
    """Prior probability of each disease; sums to 1."""
    signs: tuple[Sign, ...]
    """The symptoms that may be asked about."""
    symptoms: Floats
    """(diseases, signs): the chance of each symptom."""
    tests: Mapping[str, tuple[str, ...]]
    """Findings that each test shows, exactly. The patient knows nothing of these."""
    findings: Floats
    """(diseases, findings of all tests): the chance that a test shows it."""

    @functools.cached_property
    def asked(self) -> tuple[str, ...]:
        """The names of all symptoms."""
        return tuple(sign.name for sign in self.signs)

    @functools.cached_property
    def ordered(self) -> tuple[str, ...]:
        """The names of all tests."""
        return tuple(self.tests)

    @functools.cached_property
    def all_findings(self) -> tuple[str, ...]:
        """The findings of all tests, in their order."""
        return tuple(finding for shown in self.tests.values() for finding in shown)

    @functools.cached_property
    def words(self) -> Vocabulary:
        """Return the vocabulary that is understood: the symptoms, and the diseases, which no patient should name."""
        spoken = {sign.name: (sign.name, sign.it, *sign.synonyms) for sign in self.signs}
        return vocabulary(spoken | {name: (name,) for name in self.names})

    def bounds(self, test: int) -> tuple[int, tuple[str, ...]]:
        """The index of the first finding that a test shows, and the names of all that it shows."""
        shown = list(self.tests.values())
        return sum(map(len, shown[:test])), shown[test]

    def __deepcopy__(self, memo: object) -> Table:
        """Itself: a copied match shares its table."""
        return self
