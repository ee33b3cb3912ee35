"""Parse the agent's instructions to a customer about its phone: the typed acts `LOOK` and `SET`, and plain text.

Plain text is parsed clause by clause with a closed vocabulary. Clauses about the agent's own acts ("I will turn on
roaming") and negated clauses ("do not turn it off") are no instructions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from games.base import IllegalAct
from games.families.book import fold
from simulators.desk.device.settings import SERVICE, SETTINGS

MAX_STEPS = 6
"""Maximum number of steps that a customer follows in one message."""
NAMES = (*SETTINGS, SERVICE)


class Step(NamedTuple):
    """Instruction about a phone: set `name` to `value`, or look at it (`value` ""), or try the service (`SERVICE`)."""

    name: str
    value: str = ""


WORDS = {word: name for name, setting in SETTINGS.items() for word in setting.words}
NAMED = re.compile(rf"(?<= )(?:{'|'.join(sorted(WORDS, key=len, reverse=True))})(?= )")
CLAUSE = re.compile(r"[,;:]|\b(?:and|then|but|or)\b", re.IGNORECASE)
CHANGING = re.compile(
    r" (?:turn|switch|set|put|enable|disable|activate|deactivate|insert|reinsert|reseat|push|take|unlock|enter|type|"
    r"reset|change|choose|select|make sure|ensure) "
)
LOOKING = re.compile(r" (?:check|look|see|tell|what|which|is|are|does|whether|if|show|shows|read) ")
TRYING = re.compile(r" (?:try|test|works?|working) ")
NEGATED = re.compile(r" (?:not|dont|never|without|instead of|cannot|cant|no need) ")
OWN_ACT = re.compile(r" (?:i|we|ill|well|ive|weve|im) (?!need you |want you |would like you )")
ON = re.compile(r" (?:on|enable|activate) ")
OFF = re.compile(r" (?:off|disable|deactivate) ")
IT = re.compile(r" (?:it|that) ")


def read_step(verb: str, rest: str) -> Step:
    """Parse the words after `LOOK` or `SET` (`verb`). Raises IllegalAct, with the correct form, if they are invalid."""
    name, _, value = rest.lower().partition(" ")
    if verb == "LOOK":
        if name not in NAMES or value:
            raise IllegalAct(f"LOOK needs one of {', '.join(NAMES)}")
        return Step(name)
    if name not in SETTINGS or value.strip() not in SETTINGS[name].values:
        raise IllegalAct(f"SET needs one of {', '.join(SETTINGS)} and a value of it")
    return Step(name, value.strip())


def read_steps(sentences: Sequence[str]) -> tuple[Step, ...]:
    """Parse the instructions to a customer in plain sentences: at most `MAX_STEPS` different steps, in order."""
    steps = [step for sentence in sentences for step in _read_sentence(sentence)]
    return tuple(dict.fromkeys(steps))[:MAX_STEPS]


def _read_sentence(sentence: str) -> Iterator[Step]:
    """Yield a sentence's instructions. A clause without a verb takes the verb of the previous clause."""
    asked, changes, previous = sentence.rstrip().endswith("?"), "", ""
    looks = False
    for clause in CLAUSE.split(sentence):
        words = f" {fold(clause)} "
        names = [WORDS[found] for found in NAMED.findall(words)]
        if NEGATED.search(words) or OWN_ACT.search(words):
            changes, looks = "", False
            continue
        if CHANGING.search(words):
            changes, looks = NAMED.sub("", words), False
            names = names or [previous] * bool(previous and IT.search(words))
        elif LOOKING.search(words) or asked:
            changes, looks = "", True
        if TRYING.search(words) and not changes:
            yield Step(SERVICE)
            continue
        for name in names:
            previous = name
            value = _read_value(name, changes) or _read_value(name, words) if changes else ""
            if value or looks:
                yield Step(name, value)


def _read_value(name: str, words: str) -> str:
    """Return the value of the setting `name` that these words ask for; "" unless it is exactly one."""
    setting = SETTINGS[name]
    values = {value for value in setting.values if f" {value} " in words}
    values |= {setting.good} if any(f" {word} " in words for word in setting.good_words) else set()
    for value, pattern in (("on", ON), ("off", OFF)):
        values |= {value} if value in setting.values and pattern.search(words) else set()
    return values.pop() if len(values) == 1 else ""
