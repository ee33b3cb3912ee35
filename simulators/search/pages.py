"""Write pages, which state the facts about a thing in template sentences, and parse facts from any text.

Sentences that match no template are ignored, so pages may contain other text.
"""

from __future__ import annotations

import functools
import re
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field

from simulators.search.relations import BY_CODE, KINDS, NUMBERS, RELATIONS
from simulators.search.world import World

IS = "{s} is a {o}."
TERSE = re.compile(r"(\w+) /([a-z])((?: [A-Z]\w+)*)")
INITIALS = {kind[0]: kind for kind in KINDS}


def render(world: World, name: str) -> str:
    """Return the page about a thing: its kind, then its facts, in sentences or, in a terse world, in codes.

    The thing's name determines the wording of the sentences.
    """
    facts, kind = world.facts(name), world.kind(name)
    if world.terse:
        return " ".join([name, f"/{kind[0]}", *(RELATIONS[relation].code + value for relation, value in facts.items())])
    sentences = [IS.format(s=name, o=kind)]
    for relation, value in facts.items():
        wordings = RELATIONS[relation].sentences
        sentences.append(wordings[zlib.crc32(f"{name} {relation}".encode()) % len(wordings)].format(s=name, o=value))
    return " ".join(sentences)


def highlight(page: str, query: str) -> str:
    """Return a terse page with only the facts whose letters the query contains, such as M in `gc M`.

    Without such letters, returns the whole page.
    """
    codes = {word for word in query.split() if word in BY_CODE}
    name, kind, *facts = page.split()
    return " ".join([name, kind, *(fact for fact in facts if fact[0] in codes)]) if codes else page


@dataclass
class Notes:
    """Facts read on pages, on which programs are evaluated."""

    facts: dict[str, dict[str, str]] = field(default_factory=dict)
    """Values by thing, then by relation or "kind"."""

    @classmethod
    def of(cls, texts: Iterable[str]) -> Notes:
        """Collect the facts that these texts state. Of two contradicting facts, the first counts."""
        notes = cls()
        for text in texts:
            for name, relation, value in read_facts(text):
                notes.facts.setdefault(name, {}).setdefault(relation, value)
        return notes

    def kind(self, name: str) -> str:
        """Return a thing's kind, as stated or as implied by a relation to the thing; "" if unknown."""
        stated = self.facts.get(name, {}).get("kind", "")
        pairs = ((relation, value) for facts in self.facts.values() for relation, value in facts.items())
        return stated or next(
            (RELATIONS[relation].target for relation, value in pairs if value == name and relation != "kind"), ""
        )

    def value(self, name: str, relation: str) -> str:
        """Return a thing's value for a relation (a name, or a number as text); "" if no page states it."""
        return self.facts.get(name, {}).get(relation, "")

    def subjects(self, name: str, relation: str) -> frozenset[str]:
        """Return the names of the things whose value for `relation` is `name`."""
        return frozenset(other for other, facts in self.facts.items() if facts.get(relation) == name)


@functools.lru_cache(maxsize=4096)
def read_facts(text: str) -> tuple[tuple[str, str, str], ...]:
    """Parse the facts in a text as (thing, relation or "kind", value) tuples, in order. Ignores all other text."""
    facts: list[tuple[str, str, str]] = []
    for line in text.splitlines():
        if terse := TERSE.fullmatch(line.strip()):
            name, initial, rest = terse.groups()
            facts += [(name, "kind", INITIALS.get(initial, ""))]
            facts += [(name, BY_CODE[word[0]], word[1:]) for word in rest.split() if word[0] in BY_CODE]
            continue
        for sentence in re.findall(r"[^.]+\.", line):
            facts += _read_sentence(sentence.strip())
    return tuple(facts)


def _read_sentence(sentence: str) -> list[tuple[str, str, str]]:
    for relation, pattern in _compile_patterns():
        found = pattern.fullmatch(sentence)
        if found and (relation != "kind" or found["o"] in KINDS):
            return [(found["s"], relation, found["o"])]
    return []


@functools.cache
def _compile_patterns() -> tuple[tuple[str, re.Pattern[str]], ...]:
    """Compile each sentence template to (relation, pattern), with the groups `s` (thing) and `o` (value).

    Relations with numbers come first, so that "was born in the year 1800" is not parsed as a birthplace.
    """
    wordings = [("kind", IS)] + [(name, words) for name, each in RELATIONS.items() for words in each.sentences]
    wordings.sort(key=lambda one: one[0] not in NUMBERS)
    number, name = r"\\d+", r"[A-Z]\\w*(?: (?:of )?[A-Z]\\w*)*"

    def pattern(relation: str, words: str) -> re.Pattern[str]:
        # Replace the placeholders {o} and {s} in the escaped template.
        value = number if relation in NUMBERS else r"\\w+" if relation == "kind" else name
        filled = re.sub(r"\\\{o\\\}", f"(?P<o>{value})", re.escape(words))
        return re.compile(re.sub(r"\\\{s\\\}", f"(?P<s>{name})", filled))

    return tuple((relation, pattern(relation, words)) for relation, words in wordings)
