"""From what a person said to the facts in it: a closed vocabulary, its synonyms, and who denies or doubts what.

A few rules in the manner of NegEx (Chapman et al. 2001), which finds negation in clinical notes by trigger words and
their scope. What is ambiguous is read as doubt. Not understood: what is said of others ("my brother coughs"), irony,
and whatever is no word of the vocabulary.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from games.book import fold

Stance = Literal["inform", "deny", "unknown"]
"""What is said of a topic: that it is so, that it is not, or that the person cannot tell."""
LONGEST = 4000
"""Characters of a text that are read."""

# All patterns look at words between single blanks, with a blank at either end.
TOKEN = re.compile(r"[a-z0-9]+|[.,!?;]")
CLAUSE = re.compile(r"(?<= )([.!?;]|but|however|though|although|except|yet)(?= )")
AFFIRMED = r"(?:i have|i do have|i do|i feel|i ve|ive|i am|im|there is|my|it is)"
TAKEN_BACK = re.compile(
    rf"^ {AFFIRMED} |(?<= )(?:,|and|yes|yeah) {AFFIRMED} |(?<= )and (?:also|a|an|some) |(?<= )(?:just|only|yes|yeah) "
)
"""Ends what was denied before, within a clause."""
DENIAL = re.compile(
    r"(?<= )(?:no|not|never|none|neither|nor|without|nothing|nope|nah|deny|denied|free of|isnt|arent|wasnt|"
    r"dont|doesnt|didnt|havent|hasnt|hadnt|cannot|cant|couldnt|wouldnt|wont)(?= )"
)
IDLE = re.compile(r"(?:^|(?<=,)) (?:no|nope|nah) (?=,)| (?:no|without a|without) doubt ")
"""Denies nothing that follows, such as a `no` that answers the question."""
AFTERWARDS = re.compile(r"^ ?(?:, )?(?:no|not|none|absent|denied)(?: at all| really)?(?: ,| $)")
DOUBT = re.compile(
    r"(?<= )(?:not (?:so |really |quite |too |very |entirely )?(?:sure|certain)|unsure|uncertain|perhaps|maybe|might|"
    r"possibly|no idea|no clue|hard to (?:say|tell)|wonder|guess|if|whether|"
    r"(?:do not|dont|did not|didnt|cannot|can not|cant|could not|couldnt) (?:really |quite |honestly )?"
    r"(?:know|say|tell|remember|recall|be sure))(?= )"
)
OPENERS = {"well", "hmm", "uh", "um", "oh", "ah", "hello", "hi", "doctor", "sorry", "i", "let", "me", "think"}
REMARKS = {
    "i",
    "it",
    "that",
    "is",
    "so",
    "at",
    "all",
    "do",
    "did",
    "have",
    "am",
    "was",
    "really",
    "doctor",
    "thank",
    "you",
}
REMARKS |= {"think", "any", "about", "not", "sir"}
YES = {"yes", "yeah", "yep", "yup", "aye", "sure", "indeed", "definitely", "certainly", "do", "have"}
NO = {"no", "nope", "nah", "not", "never", "none", "dont", "havent", "didnt"}


@dataclass(frozen=True)
class Vocabulary:
    """All words for all topics; `vocabulary` makes one."""

    phrases: Mapping[str, str]
    """From a folded phrase to its topic."""

    @functools.cached_property
    def mention(self) -> re.Pattern[str]:
        """Finds phrases as whole words, the longest first."""
        longest = sorted(self.phrases, key=len, reverse=True)
        return re.compile(rf"(?<= )(?:{'|'.join(map(re.escape, longest)) or '(?!)'})(?= )")

    def words(self, topic: str) -> tuple[str, ...]:
        """All phrases for this topic."""
        return tuple(phrase for phrase, meant in self.phrases.items() if meant == topic)

    def read(self, text: str, asked: str = "") -> dict[str, Stance]:
        """What the text says of which topics; an answer that names none is about `asked`. Never raises."""
        facts: dict[str, Stance] = {}
        questioned: list[str] = []
        """Topics of a question that the person answers itself: `Fever? No.`"""
        pieces = [*CLAUSE.split(_plain(text)), ""]
        for clause, end in zip(pieces[::2], pieces[1::2], strict=True):
            found, bare = self._claims(clause), _bare(clause)
            if end == "?":
                questioned = list(found)
                continue
            if bare:
                unanswered = [asked] if asked and asked not in facts else []
                for topic in questioned or unanswered:
                    _note(facts, topic, bare)
            questioned = []
            for topic, stance in found.items():
                _note(facts, topic, stance)
        return facts

    def _claims(self, clause: str) -> dict[str, Stance]:
        """What a clause says: doubt is of all in it, denial of what follows, up to where it is taken back."""
        facts: dict[str, Stance] = {}
        found = list(self.mention.finditer(clause))
        masked = self.mention.sub(lambda match: "#" * len(match[0]), clause)  # a phrase may hold a `not` of its own
        earnest = IDLE.sub(lambda match: " " + "#" * (len(match[0]) - 2) + " ", masked)
        doubted, last = DOUBT.search(masked) is not None, 0
        for match in found:
            before = earnest[: match.start()]
            back = max((end.end() - 1 for end in TAKEN_BACK.finditer(before)), default=0)
            stance: Stance = "inform"
            if doubted or len(DENIAL.findall(before[max(back, last) :])) > 1:
                stance = "unknown"
            elif DENIAL.search(before[back:]) or AFTERWARDS.match(masked[match.end() :]):
                stance = "deny"
            _note(facts, self.phrases[match[0]], stance)
            last = match.end()
        return facts


def vocabulary(words: Mapping[str, Iterable[str]]) -> Vocabulary:
    """The vocabulary of these topics and their words, in any spelling; ValueError where a phrase has two meanings."""
    phrases: dict[str, str] = {}
    for topic, spellings in words.items():
        for phrase in filter(None, map(fold, spellings)):
            if phrases.setdefault(phrase, topic) != topic:
                raise ValueError(f"'{phrase}' means both {phrases[phrase]} and {topic}")
    return Vocabulary(phrases)


def _plain(text: str) -> str:
    """The text as words and marks between single blanks: no case, no accents, no apostrophes."""
    marked = re.sub(r"[\n\r]+", " . ", re.sub(r"['’‘`]", "", text[:LONGEST]))
    marked = re.sub(r"[:()\u2013\u2014]|\.\.\.|…| - ", " , ", marked)
    letters = unicodedata.normalize("NFKD", marked).casefold()
    return f" {' '.join(TOKEN.findall(''.join(c for c in letters if not unicodedata.combining(c))))} "


def _bare(clause: str) -> Stance | None:
    """What a clause answers that begins with an answer and names nothing in it; None if it does not."""
    words = [*clause.split(), ","]
    while words[0] in OPENERS or (words[0] == "," and len(words) > 1):
        words.pop(0)
    first = words[: words.index(",")]
    said = f" {' '.join(first)} "
    if DOUBT.search(said) and REMARKS.issuperset(DOUBT.sub("", said).split()):
        return "unknown"
    if not first or not REMARKS.issuperset(first[1:]):
        return None
    if first[0] in NO or first[:2] == ["do", "not"] or first[:2] == ["have", "not"]:
        return "deny"
    return "inform" if first[0] in YES else None


def _note(facts: dict[str, Stance], topic: str, stance: Stance) -> None:
    """Adds what was said of a topic; who says two things of it has said that it cannot tell."""
    facts[topic] = stance if facts.get(topic, stance) == stance else "unknown"
