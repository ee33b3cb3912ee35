"""Exact match and F1 of an answer, as in SQuAD's script (Rajpurkar et al. 2016)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

ARTICLES = re.compile(r"\b(a|an|the)\b")
MAX_CHARACTERS = 1_000
"""Maximum number of characters compared of an answer."""


def normalise(text: str) -> str:
    """Return the text's first 1,000 characters in lower case, without punctuation, articles and repeated blanks."""
    letters = "".join(char if char.isalnum() or char.isspace() else "" for char in text[:MAX_CHARACTERS].lower())
    return " ".join(ARTICLES.sub(" ", letters).split())


def is_exact(answer: str, right: Iterable[str]) -> bool:
    """Return True if the normalised answer is not empty and equals a normalised right answer."""
    normalised = normalise(answer)
    return bool(normalised) and any(normalised == normalise(each) for each in right)


def compute_f1(answer: str, right: Iterable[str]) -> float:
    """Return the F1 score between the words of the answer and of the closest right answer, normalised, in [0, 1]."""
    return max((_compute_f1(normalise(answer).split(), normalise(each).split()) for each in right), default=0.0)


def _compute_f1(words: list[str], right_words: list[str]) -> float:
    common = sum((Counter(words) & Counter(right_words)).values())
    return 2 * common / (len(words) + len(right_words)) if common else 0.0
