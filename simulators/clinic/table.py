"""Table of a clinic: diseases, signs, tests, and the probability of each sign given each disease."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simulators.clinic.signs import Sign
from simulators.extractor import Vocabulary, make_vocabulary

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Table:
    """Diseases, and the probability of each sign given each disease. Signs are independent given the disease."""

    world: str
    """Name of the simulated world, for the rules."""
    names: tuple[str, ...]
    """Names of the diseases."""
    prior: Floats
    """Prior probability of each disease; sums to 1."""
    signs: tuple[Sign, ...]
    """Symptoms that the doctor can ask about."""
    symptoms: Floats
    """[diseases, signs]: probability of each symptom."""
    tests: Mapping[str, tuple[str, ...]]
    """Findings that each test shows without error. The patient does not know them."""
    findings: Floats
    """[diseases, findings of all tests]: probability of each finding."""

    @functools.cached_property
    def symptom_names(self) -> tuple[str, ...]:
        """Names of all symptoms, in the order of their indices."""
        return tuple(sign.name for sign in self.signs)

    @functools.cached_property
    def test_names(self) -> tuple[str, ...]:
        """Names of all tests, in the order of their indices."""
        return tuple(self.tests)

    @functools.cached_property
    def all_findings(self) -> tuple[str, ...]:
        """Names of the findings of all tests, in the order of their indices."""
        return tuple(finding for findings in self.tests.values() for finding in findings)

    @functools.cached_property
    def words(self) -> Vocabulary:
        """Vocabulary for parsing patients' texts: symptoms, and the diseases, which no patient should name."""
        spoken = {sign.name: (sign.name, sign.phrase, *sign.synonyms) for sign in self.signs}
        return make_vocabulary(spoken | {name: (name,) for name in self.names})

    def locate_findings(self, test: int) -> tuple[int, tuple[str, ...]]:
        """Return the index of a test's first finding and the names of its findings. Their indices are consecutive."""
        findings = list(self.tests.values())
        return sum(map(len, findings[:test])), findings[test]

    def __deepcopy__(self, memo: object) -> Table:
        """Return the same object: copied matches share the table."""
        return self
