"""Twenty questions about an animal, with the facts of Forsyth's Zoo data (UCI 1990)."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from importlib.resources import files
from typing import Any, ClassVar

from games.families.book import Book, make_book
from games.families.questions import Questions

SYNONYMS = {
    "fur": "hair", "hairy": "hair", "furry": "hair", "feather": "feathers", "egg": "eggs", "fly": "airborne",
    "water": "aquatic", "teeth": "toothed", "tooth": "toothed", "spine": "backbone", "breathe": "breathes",
    "venom": "venomous", "poisonous": "venomous", "fin": "fins", "two legs": "legs 2", "four legs": "legs 4",
    "five legs": "legs 5", "six legs": "legs 6", "eight legs": "legs 8", "pet": "domestic", "tame": "domestic",
    "hunt": "predator", "as big as a cat": "catsize", "big as a cat": "catsize",
    **{f"{count} legs": f"legs {count}" for count in (2, 4, 5, 6, 8)},
    **{name: f"type {name}" for name in ("mammal", "bird", "fish", "reptile", "amphibian", "insect")},
}  # fmt: skip


def load_zoo() -> Book:
    """Load the book of animals from games/data/zoo.csv: 101 animals, of which the questions distinguish 59."""
    rows: list[tuple[str, list[str], list[str]]] = []
    with files("games").joinpath("data/zoo.csv").open(encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            name, legs, kind = row.pop("name"), row.pop("legs"), row.pop("type")
            facts = [attribute for attribute, value in row.items() if value == "1"]
            rows.append((name, [], [*facts, f"legs {legs}", f"type {kind}"]))
    return make_book(rows, {words: f"ASK {question}" for words, question in SYNONYMS.items()})


class TwentyQuestions(Questions):
    """Guess an animal by yes/no questions. `Questions` describes acts, options and rewards."""

    name = "twenty_questions"
    metadata: ClassVar[dict[str, Any]] = {"name": "twenty_questions_v0", "render_modes": ["ansi"]}
    # n yes/no acts, the last of them the right guess, distinguish at most 2^(n-1) things.
    theory: ClassVar[Mapping[str, float]] = {"things": 59.0, "least_worst_case_turns": 7.0}
    book = load_zoo()
    noun = "animal"
    notes = " Catsize: as big as a cat or bigger; type other: molluscs, crustaceans, worms and the like."
