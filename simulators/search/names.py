"""Invented names: no model has read them. No name is part of another, and of a kind's words no other kind has any."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterator

import numpy as np

from simulators.search.relations import KINDS, RELATIONS

ONSETS = [*"bdfghklmnprstvwz", "br", "dr", "gr", "kl", "pl", "sk", "st", "tr"]
VOWELS = [*"aeiou", "ae", "ei", "ou"]
CODAS = ["", "", "l", "m", "n", "r", "s", "th", "x"]
TRADES = ("Works", "Bank", "Mills", "Press", "Lines", "House")
GENRES = ("Song", "History", "Garden", "Letters", "Winter", "Silence", "Return", "Trial")
CONSONANTS = "bcdfghjklmnpqrstvwxz"
SPARE = 4
"""Pairs of a first and a last name that there are for each person: people share either."""


@functools.cache
def _taken() -> frozenset[str]:
    """Words that sentences and questions are made of."""
    said = [sentence for relation in RELATIONS.values() for sentence in (*relation.sentences, relation.noun)]
    return frozenset(re.findall("[a-z]+", " ".join([*said, *KINDS, *(kind.plural for kind in KINDS.values())]).lower()))


def _words(rng: np.random.Generator) -> Iterator[str]:
    """Distinct invented words of two or three syllables, without end."""
    seen = set(_taken())
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


def invent(counts: dict[str, int], rng: np.random.Generator) -> dict[str, list[str]]:
    """So many names of each kind, all different."""
    words = _words(rng)
    heads = {"company": TRADES, "book": GENRES}
    names: dict[str, list[str]] = {}
    for kind, count in counts.items():
        if kind == "person":
            pool = math.isqrt(SPARE * count) + 1
            first, last = ([next(words) for _ in range(pool)] for _ in range(2))
            pairs = rng.permutation(pool * pool)[:count].tolist()
            names[kind] = [f"{first[pair // pool]} {last[pair % pool]}" for pair in pairs]
            continue
        own = [next(words) for _ in range(count)]
        if kind in heads:
            drawn = rng.integers(len(heads[kind]), size=count).tolist()
            picked = [heads[kind][one] for one in drawn]
            shape = "{word} {head}" if kind == "company" else "The {head} of {word}"
            own = [shape.format(word=word, head=head) for word, head in zip(own, picked, strict=True)]
        names[kind] = own
    return names


def invent_terse(counts: dict[str, int], rng: np.random.Generator) -> dict[str, list[str]]:
    """As `invent`, in consonants alone: one for 20 names, two for up to 400, else more."""
    total, length = sum(counts.values()), 1
    while len(CONSONANTS) ** length < total:
        length += 1
    drawn = rng.permutation(len(CONSONANTS) ** length)[:total].tolist()
    names = iter("".join(CONSONANTS[n // 20**place % 20] for place in range(length)) for n in drawn)
    return {kind: [next(names) for _ in range(count)] for kind, count in counts.items()}
