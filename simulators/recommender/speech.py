"""A user's statements: templates for wishes, and extraction of wishes from text."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping

from games.families.book import fold
from simulators.extractor import Reading, Vocabulary, make_vocabulary
from simulators.person import Manner
from simulators.recommender.catalogue import Catalogue
from simulators.recommender.wishes import Kind, Wish
from simulators.recommender.words import LETTERS, list_spellings

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
"""Templates of each wish about `it`, by manner. The extractor parses each back exactly (tested)."""
UNSURE: Mapping[Manner, str] = {
    "plain": "I can't say.", "terse": "Not sure.", "vague": "Hmm, I really don't know.", "hurried": "No idea. Go on.",
}  # fmt: skip
TOO_EXPENSIVE, UNINTERESTING = "Some of that is too dear for me.", "That is not for me."
FACTS: Mapping[Kind, str] = {"more": "favourite {it}", "less": "dislikes {it}", "under": "cap {it}"}
"""Format of each wish in a list of facts."""
REPLACEMENTS = {
    r"(?:nothing|not|no|never) (?:more than|over|above|beyond)": " ",
    r"hate|dislike|avoid|skip|less|fewer|leave out|enough|tired of|sick of|can ?not stand|can'?t stand": "no",
    r"likes?|love|enjoy|prefer|want|would|could|more|most|best|mostly|pay|crowns|limit|max|maximum|up to|at most|"
    r"under|read|books?|show|me|stuff|can": " ",
}
"""Regular expressions and their replacements, applied in order before parsing, except inside a genre's name."""
NUMBER = re.compile(r"[1-9][0-9]{0,6}")
MAX_CROWNS = 1000
"""Numbers from this one on are read as prices only up to the users' highest price cap."""


def word_wish(wish: Wish | None, catalogue: Catalogue, manner: Manner, share: float) -> str:
    """Return a wish as a sentence of this manner; `share` in [0, 1) picks the template. None gives `UNSURE`."""
    if wish is None:
        return UNSURE[manner]
    wordings = WORDINGS[manner][wish.kind]
    return wordings[int(share * len(wordings))].format(it=name_topic(wish, catalogue))


def name_topic(wish: Wish, catalogue: Catalogue) -> str:
    """Return the genre's name, or the price, of a wish."""
    return str(wish.value) if wish.kind == "under" else catalogue.genres[wish.value]


def list_wordings(wish: Wish, catalogue: Catalogue) -> tuple[str, ...]:
    """Return a wish in all templates of all manners."""
    it = name_topic(wish, catalogue)
    return tuple(text.format(it=it) for by_kind in WORDINGS.values() for text in by_kind[wish.kind])


def as_fact(wish: Wish, catalogue: Catalogue) -> str:
    """Return a wish as it appears in a list of facts, such as `dislikes horror`."""
    return FACTS[wish.kind].format(it=name_topic(wish, catalogue))


def find_misread_text(catalogue: Catalogue) -> str:
    """Return the first template text that a genre's name makes the parser misread, or "" if there is none."""
    for genre in range(len(catalogue.genres)):
        for wish in (Wish("more", genre), Wish("less", genre)):
            for text in list_wordings(wish, catalogue):
                if read_wish(text, catalogue, cap=0) != wish or len(read(text, catalogue).facts) > 1:
                    return text
    return ""


@functools.lru_cache(maxsize=1024)
def _load_vocabulary(genres: tuple[str, ...], numbers: frozenset[str]) -> Vocabulary:
    """Return the extractor's vocabulary: these genres in all their spellings, and these numbers."""
    return make_vocabulary({**{number: (number,) for number in numbers}, **list_spellings(genres)})


@functools.lru_cache(maxsize=8)
def _compile_replacements(genres: tuple[str, ...]) -> tuple[tuple[re.Pattern[str], str], ...]:
    """Compile `REPLACEMENTS` to (pattern, replacement). Each pattern's first group protects genre names."""
    names = {fold(name) for spellings in list_spellings(genres).values() for name in spellings}
    phrases = sorted(names, key=len, reverse=True)
    protected = "|".join(phrases).replace(" ", "[^a-z0-9]+")
    return tuple(
        (re.compile(rf"\b(?:({protected})|{words})\b", re.I), replacement)
        for words, replacement in REPLACEMENTS.items()
    )


def _keep_genre(replacement: str, found: re.Match[str]) -> str:
    """Return a matched genre name unchanged, or the replacement of any other match."""
    return found[1] or replacement


def read(text: str, catalogue: Catalogue) -> Reading:
    """Parse a text to its stances on genres and prices, by topic as text, and its unclear words."""
    for pattern, replacement in _compile_replacements(catalogue.genres):
        text = pattern.sub(functools.partial(_keep_genre, replacement), text)
    limit = max(MAX_CROWNS, catalogue.caps[1] + 1)
    numbers = frozenset(word for word in fold(text).split() if NUMBER.fullmatch(word) and int(word) < limit)
    return _load_vocabulary(catalogue.genres, numbers).understand(text)


def read_wish(text: str, catalogue: Catalogue, cap: int) -> Wish | None:
    """Return the first wish in a text or code (`+a`, `-a`, `<`), or None. `cap` is the price that `<` stands for."""
    return next(iter(read_wishes(text, catalogue, cap)), None)


def read_wishes(text: str, catalogue: Catalogue, cap: int) -> list[Wish]:
    """Return all wishes in a text, or the wish of a code (see `read_wish`)."""
    code = text.strip()
    if code == "<":
        return [Wish("under", cap)]
    if len(code) == 2 and code[0] in "+-" and code[1] in LETTERS[: len(catalogue.genres)]:
        return [Wish("more" if code[0] == "+" else "less", LETTERS.index(code[1]))]
    wishes = []
    for topic, stance in read(text, catalogue).facts.items():
        if topic.isdigit() and stance == "inform":
            wishes.append(Wish("under", int(topic)))
        if not topic.isdigit() and stance != "unknown":
            wishes.append(Wish("more" if stance == "inform" else "less", catalogue.genres.index(topic)))
    return wishes


def encode_wish(wish: Wish | None) -> str:
    """Return the code of a wish: `+a` or `-a` (genre by letter), `<` (price cap), or `.` for None."""
    if wish is None:
        return "."
    return "<" if wish.kind == "under" else f"{'+' if wish.kind == 'more' else '-'}{LETTERS[wish.value]}"
