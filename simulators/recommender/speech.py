"""A user's words: how it says what it wishes, and what is read from the words of the player at its seat."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping

from games.families.book import fold
from simulators.extractor import Reading, Vocabulary, vocabulary
from simulators.person import Manner
from simulators.recommender.catalogue import Catalogue
from simulators.recommender.wishes import Kind, Wish
from simulators.recommender.words import LETTERS, spellings

WORDINGS: Mapping[Manner, Mapping[Kind, tuple[str, ...]]] = {
    "plain": {
        "more": ("More {it}, please.", "I would like {it} best.", "I enjoy {it} most."),
        "less": ("No {it}, please.", "I don't like {it}.", "Please leave out {it}, I never read that."),
        "under": ("I can pay {it} crowns at most.", "My limit is {it} crowns."),
    },
    "terse": {"more": ("More {it}.",), "less": ("No {it}.",), "under": ("At most {it}.",)},
    "vague": {
        "more": ("Hmm, I think I like {it} most.", "Oh, more {it} I think."),
        "less": ("Well, I don't really like {it}.",),
        "under": ("I think I can pay {it} crowns at most.",),
    },
    "hurried": {
        "more": ("More {it}. Go on.",), "less": ("Please, no {it}. Go on.",),
        "under": ("At most {it} crowns. Go on.",),
    },
}  # fmt: skip
"""Every way to say a wish about `it`, by manner; each is read back exactly, which tests hold."""
UNSURE: Mapping[Manner, str] = {
    "plain": "I can't say.", "terse": "Not sure.", "vague": "Hmm, I really don't know.", "hurried": "No idea. Go on.",
}  # fmt: skip
DEAR, DULL = "Some of that is too dear for me.", "That is not for me."
FACTS: Mapping[Kind, str] = {"more": "favourite {it}", "less": "dislikes {it}", "under": "cap {it}"}
"""Names of wishes where facts are listed."""
PLAINER = {
    r"(?:nothing|not|no|never) (?:more than|over|above|beyond)": " ",
    r"hate|dislike|avoid|skip|less|fewer|leave out|enough|tired of|sick of|can ?not stand|can'?t stand": "no",
    r"likes?|love|enjoy|prefer|want|would|could|more|most|best|mostly|pay|crowns|limit|max|maximum|up to|at most|"
    r"under|read|books?|show|me|stuff|can": " ",
}
"""Words that are replaced before a text is read, one after the other, unless they are of a genre's name."""
NUMBER = re.compile(r"[1-9][0-9]{0,6}")
MOST_CROWNS = 1000
"""Prices from here on are understood where a catalogue has such."""


def worded(wish: Wish | None, catalogue: Catalogue, manner: Manner, share: float) -> str:
    """A wish, or that there is none to tell, in one of its wordings, the share in [0, 1) saying which."""
    if wish is None:
        return UNSURE[manner]
    wordings = WORDINGS[manner][wish.kind]
    return wordings[int(share * len(wordings))].format(it=called(wish, catalogue))


def called(wish: Wish, catalogue: Catalogue) -> str:
    """The genre or the price that a wish is about."""
    return str(wish.what) if wish.kind == "under" else catalogue.genres[wish.what]


def all_wordings(wish: Wish, catalogue: Catalogue) -> tuple[str, ...]:
    """Every text that would tell a wish."""
    it = called(wish, catalogue)
    return tuple(text.format(it=it) for by_kind in WORDINGS.values() for text in by_kind[wish.kind])


def fact(wish: Wish, catalogue: Catalogue) -> str:
    """Return the words that would tell a wish among facts."""
    return FACTS[wish.kind].format(it=called(wish, catalogue))


def misread(catalogue: Catalogue) -> str:
    """A text that would not be read as the wish for a genre that it tells, as the genre is called like other words."""
    for genre in range(len(catalogue.genres)):
        for wish in (Wish("more", genre), Wish("less", genre)):
            for text in all_wordings(wish, catalogue):
                if wish_of(text, catalogue, cap=0) != wish or len(read(text, catalogue).facts) > 1:
                    return text
    return ""


@functools.lru_cache(maxsize=1024)
def _vocabulary(genres: tuple[str, ...], numbers: frozenset[str]) -> Vocabulary:
    """The genres in all spellings, and these numbers."""
    return vocabulary({**{number: (number,) for number in numbers}, **spellings(genres)})


@functools.lru_cache(maxsize=8)
def _plainer(genres: tuple[str, ...]) -> tuple[tuple[re.Pattern[str], str], ...]:
    """`PLAINER`, as patterns whose first group is a genre in any spelling, which is to be kept."""
    phrases = sorted({fold(phrase) for own in spellings(genres).values() for phrase in own}, key=len, reverse=True)
    kept = "|".join(phrases).replace(" ", "[^a-z0-9]+")
    return tuple((re.compile(rf"\b(?:({kept})|{words})\b", re.I), instead) for words, instead in PLAINER.items())


def _genre_or(instead: str, found: re.Match[str]) -> str:
    """Return the replacement for a match of a pattern of `_plainer`."""
    return found[1] or instead


def read(text: str, catalogue: Catalogue) -> Reading:
    """Read what a text says of genres (wanted or not) and of prices, and the words in it that are not understood."""
    for pattern, instead in _plainer(catalogue.genres):
        text = pattern.sub(functools.partial(_genre_or, instead), text)
    most = max(MOST_CROWNS, catalogue.caps[1] + 1)
    numbers = frozenset(word for word in fold(text).split() if NUMBER.fullmatch(word) and int(word) < most)
    return _vocabulary(catalogue.genres, numbers).understand(text)


def wish_of(text: str, catalogue: Catalogue, cap: int) -> Wish | None:
    """Return the wish of a text: a short code (`+a`, `-a`, `<`), or the first thing it says of a genre or a price."""
    code = text.strip()
    if code == "<":
        return Wish("under", cap)
    if len(code) == 2 and code[0] in "+-" and code[1] in LETTERS[: len(catalogue.genres)]:
        return Wish("more" if code[0] == "+" else "less", LETTERS.index(code[1]))
    for topic, stance in read(text, catalogue).facts.items():
        if topic.isdigit() and stance == "inform":
            return Wish("under", int(topic))
        if not topic.isdigit() and stance != "unknown":
            return Wish("more" if stance == "inform" else "less", catalogue.genres.index(topic))
    return None


def short(wish: Wish | None) -> str:
    """The code for a wish; `.` for none."""
    if wish is None:
        return "."
    return "<" if wish.kind == "under" else f"{'+' if wish.kind == 'more' else '-'}{LETTERS[wish.what]}"
