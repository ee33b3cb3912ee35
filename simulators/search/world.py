"""World of the search game: a graph of facts about invented things, determined by its size and seed.

Names are invented, so that no model knows them. No name contains another, and no word belongs to two kinds.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterator
from typing import Any

import networkx as nx
import numpy as np

from simulators.search.relations import DIGITS, KINDS, MISSING, NUMBERS, RELATIONS

MIN_THINGS, MAX_THINGS = 20, 100_000
ONSETS = [*"bdfghklmnprstvwz", "br", "dr", "gr", "kl", "pl", "sk", "st", "tr"]
VOWELS = [*"aeiou", "ae", "ei", "ou"]
CODAS = ["", "", "l", "m", "n", "r", "s", "th", "x"]
TRADES = ("Works", "Bank", "Mills", "Press", "Lines", "House")
GENRES = ("Song", "History", "Garden", "Letters", "Winter", "Silence", "Return", "Trial")
CONSONANTS = "bcdfghjklmnpqrstvwxz"
SPARE = 4
"""Ratio of possible (first, last) name pairs to persons, so that persons share first or last names."""


class World:
    """Graph of facts about `size` invented things, drawn from `seed`. Nodes are names, edge keys are relations.

    A thing's kind and numbers are attributes of its node. `of_kind` lists the names of each kind. In a terse world,
    names have few letters.
    """

    def __init__(self, size: int, seed: int, terse: bool = False) -> None:
        rng = np.random.default_rng([seed, size, terse])
        counts = {kind: max(2, round(size * each.share)) for kind, each in KINDS.items()}
        counts["person"] += size - sum(counts.values())
        self.terse = terse
        self.of_kind: dict[str, list[str]] = (invent_terse_names if terse else invent_names)(counts, rng)
        self.graph: Any = nx.MultiDiGraph()
        for kind, names in self.of_kind.items():
            self.graph.add_nodes_from(names, kind=kind)
        self.names: tuple[str, ...] = tuple(self.graph)
        for name, relation in RELATIONS.items():
            self._draw_values(name, self.of_kind[relation.source], relation.target, rng)

    def _draw_values(self, relation: str, sources: list[str], target: str, rng: np.random.Generator) -> None:
        """Draw a relation's or number's value for most things of a kind. A person's mentor is an earlier person."""
        missing = rng.random(len(sources)) < MISSING
        if not target:
            low, high = NUMBERS[relation] if not self.terse else DIGITS
            values = rng.integers(low, high + 1, size=len(sources)).tolist()
            for source, value, lacks in zip(sources, values, missing, strict=True):
                if not lacks:
                    self.graph.nodes[source][relation] = str(value)
            return
        targets = self.of_kind[target]
        chance = rng.random(len(sources))
        for index, (source, lacks) in enumerate(zip(sources, missing, strict=True)):
            last = index if relation == "mentor" else len(targets)
            if not lacks and last:
                self.graph.add_edge(source, targets[int(chance[index] * last)], key=relation)

    def kind(self, name: str) -> str:
        """Return the kind of a thing, such as "person" or "town", or "" for an unknown name."""
        return str(self.graph.nodes[name]["kind"]) if name in self.graph else ""

    def value(self, name: str, relation: str) -> str:
        """Return the value of a thing's relation or number, as text, or "" if no page states it."""
        if name not in self.graph:
            return ""
        if relation in NUMBERS:
            return str(self.graph.nodes[name].get(relation, ""))
        return next((other for other, keys in self.graph.adj[name].items() if relation in keys), "")

    def subjects(self, name: str, relation: str) -> frozenset[str]:
        """Return the names of all things whose `relation` has the value `name`."""
        if name not in self.graph:
            return frozenset()
        return frozenset(other for other, keys in self.graph.pred[name].items() if relation in keys)

    def facts(self, name: str) -> dict[str, str]:
        """Return the stated values of a thing, by relation or number, in the order of `RELATIONS`."""
        kind = self.kind(name)
        found = {key: self.value(name, key) for key, relation in RELATIONS.items() if relation.source == kind}
        return {relation: value for relation, value in found.items() if value}


@functools.cache
def _list_reserved_words() -> frozenset[str]:
    """Return the words of page and question templates in lower case, which no invented name may use."""
    templates = [sentence for relation in RELATIONS.values() for sentence in (*relation.sentences, relation.noun)]
    return frozenset(
        re.findall("[a-z]+", " ".join([*templates, *KINDS, *(kind.plural for kind in KINDS.values())]).lower())
    )


def _invent_words(rng: np.random.Generator) -> Iterator[str]:
    """Yield an endless sequence of distinct invented words of two or three syllables, capitalised."""
    seen = set(_list_reserved_words())
    while True:
        parts = [
            ONSETS[int(rng.integers(len(ONSETS)))]
            + VOWELS[int(rng.integers(len(VOWELS)))]
            + CODAS[int(rng.integers(len(CODAS)))]
            for _ in range(rng.integers(2, 4))
        ]
        word = "".join(parts)
        if len(word) > 4 and word not in seen:
            seen.add(word)
            yield word.capitalize()


def invent_names(counts: dict[str, int], rng: np.random.Generator) -> dict[str, list[str]]:
    """Draw distinct names, `counts[kind]` of each kind, and return them by kind."""
    words = _invent_words(rng)
    heads = {"company": TRADES, "book": GENRES}
    names: dict[str, list[str]] = {}
    for kind, count in counts.items():
        if kind == "person":
            pool = math.isqrt(SPARE * count) + 1
            first, last = ([next(words) for _ in range(pool)] for _ in range(2))
            pairs = rng.permutation(pool * pool)[:count].tolist()
            names[kind] = [f"{first[pair // pool]} {last[pair % pool]}" for pair in pairs]
            continue
        drawn_names = [next(words) for _ in range(count)]
        if kind in heads:
            indices = rng.integers(len(heads[kind]), size=count).tolist()
            chosen_heads = [heads[kind][index] for index in indices]
            shape = "{word} {head}" if kind == "company" else "The {head} of {word}"
            drawn_names = [
                shape.format(word=word, head=head) for word, head in zip(drawn_names, chosen_heads, strict=True)
            ]
        names[kind] = drawn_names
    return names


def invent_terse_names(counts: dict[str, int], rng: np.random.Generator) -> dict[str, list[str]]:
    """Draw distinct names by kind as `invent_names` does, but as short as possible: one letter for up to 20 names."""
    total, length = sum(counts.values()), 1
    while len(CONSONANTS) ** length < total:
        length += 1
    numbers = rng.permutation(len(CONSONANTS) ** length)[:total].tolist()
    names = iter("".join(CONSONANTS[n // 20**place % 20] for place in range(length)) for n in numbers)
    return {kind: [next(names) for _ in range(count)] for kind, count in counts.items()}
