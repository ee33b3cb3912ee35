"""Books of facts for guessing games: the yes/no questions about a set of things, and a parser of questions and guesses.

The parser accepts acts in the book's own words, and plain English questions with a single reading.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from games.base import to_one_line

LEAD = re.compile(r"(?:ask )?(?:is|does|can|has|could|would) (?:it|this|the animal|the city)\b")
GUESS = re.compile(r"guess (?:an? |the )?(.+)")
FILLER = frozenset({
    "a", "an", "the", "any", "have", "has", "in", "on", "of", "be", "lay", "give", "live", "produce", "kind", "located",
    "with", "and", "animal", "city",
})  # fmt: skip


def fold(text: str) -> str:
    """Normalise a text: its words in lower case, without accents and punctuation, separated by single blanks."""
    letters = unicodedata.normalize("NFKD", text.replace("'", "").replace("’", "")).casefold()
    if not letters.isascii():  # ASCII has no accents, and the check saves most of the time
        letters = "".join(c for c in letters if not unicodedata.combining(c))
    return " ".join(re.findall("[a-z0-9]+", letters))


@dataclass(frozen=True)
class Thing:
    """A thing to guess, or several with equal facts.

    `spellings` are accepted names, folded and without blanks. `facts` are the questions whose answer is yes.
    """

    names: tuple[str, ...]
    spellings: frozenset[str]
    facts: frozenset[str]


@dataclass(frozen=True)
class Book:
    """Facts of a guessing game: all questions in order, all things, and a vocabulary.

    `phrases` maps each folded phrase to the act that it means, `ASK …` or `GUESS …`.
    """

    questions: tuple[str, ...]
    things: tuple[Thing, ...]
    phrases: Mapping[str, str]

    @functools.cached_property
    def pattern(self) -> re.Pattern[str]:
        """Regular expression that matches any phrase as whole words, the longest first."""
        longest = sorted(self.phrases, key=len, reverse=True)
        return re.compile(rf"\b(?:{'|'.join(longest)})\b")

    @functools.cached_property
    def acts(self) -> tuple[str, ...]:
        """All acts that can be listed: `ASK question` for every question, then `GUESS name` for every name."""
        guesses = sorted(f"GUESS {name}" for thing in self.things for name in thing.names)
        return *(f"ASK {question}" for question in self.questions), *guesses

    def contents(self) -> dict[str, list[str]]:
        """Return, for every name, the questions whose answer is yes."""
        return {n: [q for q in self.questions if q in thing.facts] for thing in self.things for n in thing.names}

    def read(self, text: str) -> str:
        """Parse an act or a plain question to `ASK question` or `GUESS name`.

        Returns "" unless the text has exactly one reading. A guess of an unknown name is returned, cut to 40
        characters.
        """
        words = fold(text)
        if guess := GUESS.fullmatch(words):
            act = self.phrases.get(guess[1], "")
            return act if act.startswith("GUESS") else f"GUESS {to_one_line(guess[1], 40)}"
        if words.startswith("ask ") and (question := self.phrases.get(words[4:], "")).startswith("ASK"):
            return question
        lead = LEAD.match(words)
        readings = {self.phrases[phrase] for phrase in self.pattern.findall(words)}
        remaining = self.pattern.sub("", words[lead.end() :]).split() if lead else ["?"]
        return readings.pop() if len(readings) == 1 and FILLER.issuperset(remaining) else ""


def make_book(rows: Iterable[tuple[str, Iterable[str], Iterable[str]]], synonyms: Mapping[str, str]) -> Book:
    """Create a book from rows (name, other spellings, facts). Things with equal facts become one.

    A fact is a question whose answer is yes. `synonyms` maps further folded phrases to acts.
    """
    alike: dict[frozenset[str], tuple[list[str], set[str]]] = {}
    for name, spellings, facts in rows:
        names, spellings_seen = alike.setdefault(frozenset(facts), ([], set()))
        names.append(name)
        spellings_seen.update(fold(spelling).replace(" ", "") for spelling in [name, *spellings])
    things = tuple(
        Thing(tuple(names), frozenset(spellings_seen - {""}), facts) for facts, (names, spellings_seen) in alike.items()
    )
    questions = tuple(sorted({fact for facts in alike for fact in facts}, key=_sort_key))
    acts = {fold(name): f"GUESS {name}" for thing in things for name in thing.names}
    acts |= {fold(question): f"ASK {question}" for question in questions}
    return Book(questions, things, acts | dict(synonyms))


def _sort_key(question: str) -> tuple[bool, str]:
    return " " in question, question  # yes/no attributes before those with values
