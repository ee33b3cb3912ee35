"""Extract facts from a person's text, with a closed vocabulary, synonyms, negation and doubt.

The rules follow NegEx (Chapman et al. 2001), which detects negation in clinical notes by trigger words and their scope.
Ambiguous text counts as doubt. Statements about others ("my brother coughs"), irony, and words outside the vocabulary
are not understood; a `Reading` lists such words for callers that must be sure.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from games.families.book import fold

Stance = Literal["inform", "deny", "unknown"]
"""Stance on a topic: it holds, it does not hold, or the person cannot tell."""
MAX_CHARACTERS = 4000
"""Maximum number of characters read of a text."""

# The patterns match words separated by single blanks, with a blank at either end of the text.
TOKEN = re.compile(r"[^\W_]+|[.,!?;]")
ANSWER = re.compile(r"(?:^|(?<=[.,!?;])) (yes|yeah|no|nope|nah) (?=(?:i|im|ive|it|there|my) )")
"""Answer that is not followed by a comma."""
CLAUSE = re.compile(r"(?<= )([.!?;]|but|however|though|although|except|yet)(?= )")
AFFIRMED = r"(?:i have|i do have|i do|i feel|i ve|ive|i am|im|there is|my|it is)"
TAKEN_BACK = re.compile(
    rf"^ {AFFIRMED} |(?<= )(?:,|and|yes|yeah) {AFFIRMED} |(?<= )and (?:also|a|an|some) |(?<= )(?:just|only|yes|yeah) "
)
"""Ends the scope of an earlier denial within a clause."""
DENIAL = re.compile(
    r"(?<= )(?:no|not|never|none|neither|nor|without|nothing|nope|nah|deny|denied|free of|isnt|arent|wasnt|"
    r"dont|doesnt|didnt|havent|hasnt|hadnt|cannot|cant|couldnt|wouldnt|wont)(?= )"
)
IDLE = re.compile(r"(?:^|(?<=,)) (?:no|nope|nah) (?=,)| (?:no|without a|without) doubt ")
"""A `no` that does not deny the words after it, such as an answer to the question."""
AFTERWARDS = re.compile(r"^ ?(?:, )?(?:no|not|none|absent|denied)(?: at all| really)?(?: ,| $)")
DOUBT = re.compile(
    r"(?<= )(?:not (?:so |really |quite |too |very |entirely )?(?:sure|certain)|unsure|uncertain|perhaps|maybe|might|"
    r"possibly|no idea|no clue|hard to (?:say|tell)|wonder|guess|if|whether|"
    r"(?:do not|dont|did not|didnt|cannot|can not|cant|could not|couldnt) (?:really |quite |honestly )?"
    r"(?:know|say|tell|remember|recall|be sure))(?= )"
)
OPENERS = {"well", "hmm", "uh", "um", "oh", "ah", "hello", "hi", "doctor", "sorry", "i", "let", "me", "think"}
"""Words allowed before a bare answer."""
REMARKS = {
    "i", "it", "that", "is", "so", "at", "all", "do", "did", "have", "am", "was", "really", "doctor", "sir", "maam",
    "thank", "thanks", "you", "please", "think", "any", "about", "not", "im", "ive", "sorry", "sure", "afraid", "right",
    "correct", "true", "know", "of", "course", "noticed", "absolutely", "definitely", "certainly", "exactly",
}  # fmt: skip
"""Words allowed after a bare answer."""
EMPHATIC = "sure|indeed|definitely|certainly|absolutely|of course"
IT_IS = "(?:it|that|this|they) (?:is|was|does|did|are|do)"
YES = re.compile(
    rf"(?:yes|yeah|yea|yep|yup|aye|{EMPHATIC}|exactly|correct|right|true|for sure|do|have|did|had|am|was|{IT_IS}|"
    r"(?:thats|its) (?:so|right|correct|true)|(?:think|(?:im |am )?afraid) so) "
)
NO = re.compile(
    rf"(?:no|nope|nah|naw|never|none|negative|(?:(?:{EMPHATIC}|im|am|afraid) )*not|thats not|"
    rf"(?:do|have|did|had|was|{IT_IS}) (?:not|never)|(?:thats |that is )?(?:wrong|false|incorrect)|"
    r"(?:it |that )?(?:dont|havent|didnt|hadnt|wasnt|isnt|doesnt)) "
)
"""Answers to a question of fact, without leading openers; for proposals see `simulators.agreement`."""
SMALL_TALK = re.compile(
    r"(?<= )(?:go on|what else|will this take long|are we done|thank you|of late|let me (?:think|see)|where were we|"
    r"now that you (?:say|mention|ask) (?:it|that)|can not|do not|as i said)(?= )"
)
"""Phrases without meaning, although their single words may have one elsewhere."""
PLAIN_TALK = re.compile(
    r"(?:a|an|the|my|any|some|such|thing|i|im|ive|it|its|is|isnt|there|theres|was|wasnt|am|that|so|and|or|but|of|about|"
    r"at|all|in|to|for|with|now|currently|do|dont|did|didnt|have|havent|had|hadnt|having|been|feel|feeling|felt|got|"
    r"noticed|notice|experienced|experiencing|experience|sign|signs|yes|yeah|yep|yup|no|nope|nah|not|never|none|neither|"
    r"nor|without|really|quite|very|just|sure|certain|unsure|uncertain|know|tell|say|remember|recall|think|guess|if|"
    r"whether|hard|idea|clue|maybe|perhaps|might|possibly|couldnt|cannot|cant|well|hmm|uh|um|oh|ah|hello|hi|sorry|"
    r"doctor|sir|maam|please|thanks|lately|recently|next|definitely|certainly|absolutely|exactly|indeed|course|correct|right|true|"
    r"yea|aye|naw|afraid|either|[.,!?;])"
)
"""Words without a meaning beyond the rules of this module."""


@dataclass(frozen=True)
class Reading:
    """Facts understood from a text: stances by topic (`facts`), and the parts not understood (`unclear`)."""

    facts: Mapping[str, Stance]
    unclear: frozenset[str]
    """Unknown words, topics with contradictory statements, and topics that occur only in questions."""


@dataclass(frozen=True)
class Vocabulary:
    """Closed vocabulary that finds topics and stances in texts. Create one with `make_vocabulary`."""

    phrases: Mapping[str, str]
    """Topic of each folded phrase."""

    @functools.cached_property
    def pattern(self) -> re.Pattern[str]:
        """Compiled pattern that finds every phrase of the vocabulary as whole words, the longest first."""
        longest = sorted(self.phrases, key=len, reverse=True)
        return re.compile(rf"(?<= )(?:{'|'.join(map(re.escape, longest)) or '(?!)'})(?= )")

    def list_phrases(self, topic: str) -> tuple[str, ...]:
        """Return all phrases of this topic, folded to plain lower-case words; () for an unknown topic."""
        return tuple(phrase for phrase, its_topic in self.phrases.items() if its_topic == topic)

    def read(self, text: str, asked_topic: str = "") -> dict[str, Stance]:
        """Return the stance ("inform", "deny" or "unknown") on each topic that the text states. Never raises.

        A bare answer ("No.") is about the topic `asked_topic`. Contradictions count as "unknown"; topics of unanswered
        questions are left out.
        """
        return dict(self.understand(text, asked_topic).facts)

    def understand(self, text: str, asked_topic: str = "") -> Reading:
        """Return the stances that `read` returns, and the parts of the text not understood, as a Reading."""
        answers: defaultdict[str, set[Stance]] = defaultdict(set)
        claimed_stances: defaultdict[str, set[Stance]] = defaultdict(set)
        question_topics: list[str] = []
        """Topics of a question that the person answers itself: `Fever? No.`"""
        open_topics: set[str] = set()
        plain = normalise_text(text)
        pieces = [*CLAUSE.split(plain), ""]
        for clause, end in zip(pieces[::2], pieces[1::2], strict=True):
            claims = self._find_claims(clause)
            if end == "?":
                question_topics = [topic for topic, _ in claims]
                open_topics.update(question_topics)
                continue
            for topic in question_topics or ([asked_topic] if asked_topic else []):
                answers[topic] |= _read_bare_answers(clause, alone=not claims)
            question_topics = []
            for topic, stances in claims:
                claimed_stances[topic] |= stances
        by_topic = {topic: answers[topic] | claimed_stances[topic] for topic in {**answers, **claimed_stances}}
        # "No" may precede a doubt ("No, I can't tell") but contradicts another claim.
        contradicted = {
            topic for topic, stances in by_topic.items() if len(claimed_stances[topic]) > 1 or stances > {"inform"}
        }
        facts = {
            topic: "unknown" if len(stances) > 1 else min(stances) for topic, stances in by_topic.items() if stances
        }
        rest = SMALL_TALK.sub("", self.pattern.sub("", plain))
        unknown = {word for word in rest.split() if not PLAIN_TALK.fullmatch(word)}
        return Reading(facts, frozenset(unknown | contradicted | (open_topics - facts.keys())))

    def _find_claims(self, clause: str) -> list[tuple[str, set[Stance]]]:
        """Return a clause's mentions of topics, in order, as (topic, stances) pairs; two stances are a contradiction.

        Doubt covers the whole clause; denial covers the words after it, until it is taken back. A double denial of a
        topic is ambiguous.
        """
        claims: list[tuple[str, set[Stance]]] = []
        masked = self.pattern.sub(lambda match: "#" * len(match[0]), clause)  # a phrase may contain a `not`
        without_idle = IDLE.sub(lambda match: " " + "#" * (len(match[0]) - 2) + " ", masked)
        is_doubted, last = DOUBT.search(masked) is not None, 0
        for match in self.pattern.finditer(clause):
            before = without_idle[: match.start()]
            scope = max((end.end() - 1 for end in TAKEN_BACK.finditer(before)), default=0)
            stances: set[Stance] = {"inform"}
            if is_doubted:
                stances = {"unknown"}
            elif len(DENIAL.findall(before[max(scope, last) :])) > 1:
                stances = {"inform", "deny"}
            elif DENIAL.search(before[scope:]) or AFTERWARDS.match(masked[match.end() :]):
                stances = {"deny"}
            claims.append((self.phrases[match[0]], stances))
            last = match.end()
        return claims


def make_vocabulary(words: Mapping[str, Iterable[str]]) -> Vocabulary:
    """Create a vocabulary from spellings by topic. Raises ValueError if two topics share a folded spelling."""
    phrases: dict[str, str] = {}
    for topic, spellings in words.items():
        for phrase in filter(None, map(fold, spellings)):
            if phrases.setdefault(phrase, topic) != topic:
                raise ValueError(f"'{phrase}' means both {phrases[phrase]} and {topic}")
    return Vocabulary(phrases)


def normalise_text(text: str) -> str:
    """Normalise a text to lower-case words and punctuation, separated and enclosed by single blanks.

    Accents and apostrophes are dropped, line breaks become full stops, and a comma follows an answer such as "yes I
    do". Only the first 4,000 characters are read.
    """
    punctuated = re.sub(r"[\n\r]+", " . ", re.sub(r"['’‘`]", "", text[:MAX_CHARACTERS]))
    punctuated = re.sub(r"[:()\u2013\u2014]|\.\.\.|…| - ", " , ", punctuated)
    letters = unicodedata.normalize("NFKD", punctuated).casefold()
    plain = f" {' '.join(TOKEN.findall(''.join(c for c in letters if not unicodedata.combining(c))))} "
    return ANSWER.sub(r" \1 , ", plain)


def _read_bare_answers(clause: str, alone: bool) -> set[Stance]:
    """Return the stances of bare answers in a clause, such as {"deny"} for "well, no, thanks".

    Leading openers ("well", "oh") are skipped. Only the first part between commas counts, unless `alone` says that the
    clause names no topic: then every part counts, and any doubt is about the question ("No, I'm not sure of that").
    """
    parts = [part.split() for part in clause.split(",")]
    while len(parts) > 1 and OPENERS.issuperset(parts[0]):
        parts.pop(0)
    answers = map(_read_bare_answer, parts if alone else parts[:1])
    doubt: set[Stance] = {"unknown"} if alone and DOUBT.search(clause) else set()
    return doubt | {answer for answer in answers if answer}


def _read_bare_answer(words: list[str]) -> Stance | None:
    """Return the stance if these words are a bare answer such as "no, thanks", else None."""
    while words and words[0] in OPENERS and words[:2] != ["think", "so"]:
        words = words[1:]
    sentence = f" {' '.join(words)} "
    if DOUBT.search(sentence) and REMARKS.issuperset(DOUBT.sub("", sentence).split()):
        return "unknown"
    answer = NO.match(sentence, 1) or YES.match(sentence, 1)
    if not answer or not REMARKS.issuperset(sentence[answer.end() :].split()):
        return None
    if answer.re is NO:
        return "deny"
    return None if "not" in sentence.split() else "inform"
