"""Schema of the world's facts: kinds of things, relations between them, and numbers.

Relations and numbers are functional: a thing has at most one mentor. Backwards (`^mentor`) there may be several.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol


class Kind(NamedTuple):
    """A kind of thing: its share of all pages, and its plural for questions."""

    share: float
    plural: str


class Relation(NamedTuple):
    """Relation from things of kind `source` to things of kind `target`, or to numbers if `target` is ""."""

    source: str
    target: str
    noun: str
    """Noun in questions: the NOUN of X."""
    code: str
    """One-letter name in terse pages and programs."""
    sentences: tuple[str, ...]
    """Templates on pages: `s` is the thing, `o` the value."""


KINDS: Mapping[str, Kind] = {
    "person": Kind(0.5, "people"),
    "company": Kind(0.14, "companies"),
    "book": Kind(0.2, "books"),
    "town": Kind(0.13, "towns"),
    "region": Kind(0.03, "regions"),
}
RELATIONS: Mapping[str, Relation] = {
    "mentor": Relation("person", "person", "mentor", "M", ("{s} was taught by {o}.", "The mentor of {s} was {o}.")),
    "birthplace": Relation("person", "town", "birthplace", "B", ("{s} was born in {o}.", "{s} came from {o}.")),
    "employer": Relation("person", "company", "employer", "E", ("{s} works for {o}.", "{s} is employed by {o}.")),
    "born": Relation("person", "", "year of birth", "O", ("{s} was born in the year {o}.",)),
    "seat": Relation("company", "town", "seat", "S", ("{s} has its seat in {o}.", "{s} is run from {o}.")),
    "founder": Relation("company", "person", "founder", "F", ("{s} was founded by {o}.", "{o} set up {s}.")),
    "founded": Relation("company", "", "founding year", "U", ("{s} was founded in the year {o}.",)),
    "author": Relation("book", "person", "author", "A", ("{s} was written by {o}.", "{o} wrote {s}.")),
    "setting": Relation("book", "town", "setting", "T", ("{s} is set in {o}.", "{s} takes place in {o}.")),
    "published": Relation("book", "", "year of publication", "P", ("{s} came out in the year {o}.",)),
    "region": Relation("town", "region", "region", "R", ("{s} lies in the region of {o}.", "{s} belongs to {o}.")),
    "mayor": Relation("town", "person", "mayor", "Y", ("{s} has {o} as its mayor.", "{o} is mayor of {s}.")),
    "people": Relation("town", "", "population", "N", ("{s} has {o} inhabitants.",)),
    "capital": Relation(
        "region", "town", "capital", "C", ("{s} has {o} as its capital.", "The capital of {s} is {o}.")
    ),
}
NUMBERS: Mapping[str, tuple[int, int]] = {
    "born": (1700, 1980), "founded": (1700, 1990), "published": (1750, 2000), "people": (200, 90_000),
}  # fmt: skip
"""Lowest and highest value of each number."""
DIGITS = 1, 9
"""Lowest and highest value of all numbers in a terse world."""
BY_CODE: Mapping[str, str] = {relation.code: name for name, relation in RELATIONS.items()}
MISSING = 0.08
"""Share of facts that no page states; questions about them are unanswerable."""


class Facts(Protocol):
    """Interface to facts that programs are evaluated on: the full world, or the notes read on pages."""

    def kind(self, name: str) -> str:
        """Return the kind of a thing; "" if unknown."""

    def value(self, name: str, relation: str) -> str:
        """Return the value of a thing's relation or number, as text; "" if unknown."""

    def subjects(self, name: str, relation: str) -> frozenset[str]:
        """Return the names of the things whose `relation` has the value `name`."""
