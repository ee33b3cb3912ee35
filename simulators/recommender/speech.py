"""A user's words: how it says what it wishes, and what is read from the words of whoever sits at its seat."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping

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
DEAR, DULL, NOTHING = "Some of that is too dear for me.", "That is not for me.", "Nothing."
NEVER = re.compile(
    r"\b(?:hate|dislike|avoid|skip|less|fewer|leave out|enough|tired of|sick of|can ?not stand|can'?t stand)\b", re.I
)
AT_MOST = re.compile(r"\b(?:nothing|not|no|never) (?:more than|over|above|beyond)\b", re.I)
FILLER = re.compile(
    r"\b(?:likes?|love|enjoy|prefer|want|would|could|more|most|best|mostly|pay|crowns|limit|max|maximum|up to|at most|"
    r"under|read|books?|show|me|stuff|can)\b",
    re.I,
)
MOST_CROWNS = 1000


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


@functools.lru_cache(maxsize=8)
def _vocabulary(genres: tuple[str, ...]) -> Vocabulary:
    """The genres in all spellings, and numbers."""
    numbers = {str(number): (str(number),) for number in range(1, MOST_CROWNS)}
    return vocabulary({**numbers, **{genre: spellings(genre) for genre in genres}})


def read(text: str, catalogue: Catalogue) -> Reading:
    """What a text says of genres (wanted or not) and of prices, and the words in it that are not understood."""
    plain = AT_MOST.sub(" ", text)
    return _vocabulary(catalogue.genres).understand(FILLER.sub(" ", NEVER.sub("no", plain)))


def wish_of(text: str, catalogue: Catalogue, cap: int) -> Wish | None:
    """What a text wishes for: a short code (`+a`, `-a`, `<`), or the first thing that it says of a genre or a price."""
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
