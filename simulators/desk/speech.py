"""Parse the agent's messages to a customer into acts, from typed acts or plain text.

Plain text is parsed sentence by sentence with a closed vocabulary. Irony, statements about others, and words outside
the vocabulary are not understood.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from games.base import IllegalAct, to_one_line
from games.calls import read_calls
from games.families.book import fold
from simulators.desk.device.steps import Step, read_step, read_steps
from simulators.desk.goals import Write
from simulators.desk.policy import Fact, Rule
from simulators.desk.world import World

MAX_CHARACTERS = 1000
"""Maximum number of characters of a message that a customer reads."""
VERBS = ("ASK", "CONFIRM", "TELL", "DENY", "ELSE", "SAY", "DONE")

SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
REQUEST = re.compile(r"\?|\b(?:please|need|provide|give|share|require|ask)\b", re.IGNORECASE)
IDENTITY_QUESTION = re.compile(
    r"\b(?:e-?mail|postcode|post code|postal code|zip|identity|verify you|who you are|your (?:full )?name)\b", re.I
)
NUMBER_QUESTION = re.compile(
    r"\b(?:which|what)\b.*\b(?:order|booking)\b|\b(?:order|booking) (?:number|id|code)\b", re.IGNORECASE
)
AGREE = re.compile(
    r"\b(?:(?:shall|should) (?:i|we)|(?:can|may|could|might) (?:i|we) "
    r"(?!have|ask|get|know|see|help|assist|be|check|take)|"
    r"(?:do|would) you (?:want|like me|like to(?! know| hear| see| tell| give)|wish|agree|confirm|approve|mind)|"
    r"do you authori[sz]e|you want (?:me )?to|want me to|ready (?:for me )?to|let me know if i|go ahead|proceed|"
    r"(?:are you|if you are|if you're) (?:happy|ok|okay|fine|sure|certain|ready|willing)|"
    r"(?:is|are|was|would|does|do) (?:that|this|it|these|everything) (?:be |all |sound |look |seem )*"
    r"(?:ok|okay|right|alright|correct|fine|good|acceptable|work|what you)|"
    r"(?:is it|would it be) (?:ok|okay|fine|all ?right) (?:if|to|for)|yes or no|reply yes|"
    r"if you (?:agree|approve|confirm)|"
    r"(?:do i have|need|give me) your (?:ok|okay|yes|consent|approval|permission|agreement|confirmation)|"
    r"(?<!i )(?<!i can )(?<!i will )(?<!we )confirm)\b|"
    r"(?:^|[,:;-]) *(?:ok|okay|right|correct|yes|agreed|all ?right|alright) *\?",
    re.IGNORECASE,
)
OPEN_QUESTION = re.compile(r"^\W*(?:\w+, |so |and |or |but )?(?:what|which|how|where|when|who|why)\b", re.IGNORECASE)
"""Start of a question that cannot be answered with yes."""
FURTHER_QUESTION = re.compile(
    r"\b(?:anything|something|what) else\b|\bfurther\b.*\?|\bhow (?:can|may) i help", re.IGNORECASE
)
REFUSAL = re.compile(
    r"\b(?:can ?not|can't|cant|unable|not able|no longer possible|won't|impossible|forbidden|prohibited|may not|"
    r"(?:not|isn't|aren't|wasn't) (?:allowed|possible|permitted|eligible|accepted|authori[sz]ed)|"
    r"against (?:our|the|company) (?:policy|rules)|could(?: not|n't) do|"
    r"(?:do not|does not|don't|doesn't) (?:allow|permit|accept|have (?:the )?permission)|"
    r"(?:i|we|must|have to|need to) (?:deny|refuse|decline|reject)|"
    r"(?:is|was|been|be) (?:denied|refused|declined|rejected))\b",
    re.IGNORECASE,
)
AMOUNT = re.compile(r"(?<![\w-])[$€£]?\s?(\d+\.\d{1,2})(?![\w-])|[$€£]\s?(\d+)(?![\w-]|\.\d)|(?<![\w-])(\d+) dollars")
VALUES = {
    "code": re.compile(r"\bTR\d{8}\b", re.IGNORECASE),
    "date": re.compile(r"\b\d{4}-\d{2}-\d{2}\b"),
    "number": re.compile(r"(?<![\w.-])\d{1,2}(?![\w.-])"),
}
NUMBER = re.compile(r"(?<![\w.-])\d{5}(?![\w.])")
"""Number of an order, booking or line. An item's id starts with the number of its order."""


@dataclass(frozen=True)
class Proposal:
    """A write for which the agent asks consent: the exact call, or the tools and numbers named in plain text."""

    write: Write | None = None
    tools: frozenset[str] = frozenset()
    numbers: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Speech:
    """Parsed message of the agent to the customer. Plain text may combine several acts."""

    text: str
    identity: bool = False
    """Whether it asks for the customer's identity."""
    number: bool = False
    """Whether it asks for the number of the order, booking or line."""
    proposal: Proposal | None = None
    facts: Mapping[str, str | None] = field(default_factory=dict)
    """Told values in normal form, by name of the fact; None if several values are told."""
    denies: bool = False
    reasons: frozenset[str] = frozenset()
    more: bool = False
    """Whether it asks if there are further requests."""
    steps: tuple[Step, ...] = ()
    """Instructions to the customer about its phone; () if the domain has no phone."""


def read_speech(act: str, world: World, rules: Sequence[Rule]) -> Speech | None:
    """Parse an act other than a tool call; None for DONE. Raises IllegalAct, with the correct form, if invalid."""
    verb, _, rest = act.strip().partition(" ")
    rest = rest.strip()
    match verb.upper():
        case "DONE" if not rest:
            return None
        case "ELSE" if not rest:
            return Speech("ELSE", more=True)
        case "ASK" if rest.lower() in ("identity", "number"):
            return Speech(f"ASK {rest.lower()}", identity=rest.lower() == "identity", number=rest.lower() == "number")
        case "CONFIRM":
            return _read_confirm(rest)
        case "TELL":
            return _read_tell(rest, world.facts)
        case "DENY":
            reason = rest.lower()
            if reason not in {rule.name for rule in rules}:
                raise IllegalAct(f"DENY needs one of {', '.join(rule.name for rule in rules)}")
            return Speech(f"DENY {reason}", denies=True, reasons=frozenset({reason}))
        case "LOOK" | "SET" if world.handset:
            step = read_step(verb.upper(), to_one_line(rest, 60))
            return Speech(f"{verb.upper()} {step.name} {step.value}".rstrip(), steps=(step,))
        case "SAY" if to_one_line(rest):
            return read_text(to_one_line(rest, MAX_CHARACTERS), rest[:MAX_CHARACTERS], world, rules)
    raise IllegalAct(f"write a tool call, or {', '.join(VERBS[:-1])} or DONE as the rules say")


def canonical_fact(kind: str, value: str) -> str | None:
    """Return a value in the normal form of its `kind`, such as 12.50 for an amount; None if it is invalid."""
    value = value.strip().strip("$€£").strip()
    if kind == "amount":
        return f"{float(value):.2f}" if re.fullmatch(r"\d{1,7}(?:\.\d{1,2}0*)?", value, re.ASCII) else None
    if kind == "number":
        return str(int(value)) if re.fullmatch(r"\d{1,4}", value, re.ASCII) else None
    return value.lower() if kind == "word" else value.upper()


def read_text(shown: str, text: str, world: World, rules: Sequence[Rule]) -> Speech:
    """Parse the acts in plain text. `shown` is the text for the customer. A refusal is never a proposal."""
    text = text.replace("\u2019", "'")
    sentences = [sentence for sentence in SENTENCE.split(text) if sentence.strip()]
    asking = [sentence for sentence in sentences if REQUEST.search(sentence)]
    denies = any(REFUSAL.search(sentence) for sentence in sentences)
    words = f" {fold(text)} "
    reasons = (
        frozenset(r.name for r in rules if any(f" {phrase} " in words for phrase in r.phrases))
        if denies
        else frozenset()
    )
    tools = frozenset(tool for tool, verbs in world.verbs.items() if any(f" {verb} " in words for verb in verbs))
    steps = read_steps(sentences) if world.handset else ()
    agree = not denies and any(map(_asks_consent, sentences)) and bool(tools or not steps)
    more = any(FURTHER_QUESTION.search(sentence) for sentence in sentences)
    return Speech(
        shown,
        identity=not agree and any(IDENTITY_QUESTION.search(sentence) for sentence in asking),
        number=not agree and any(NUMBER_QUESTION.search(sentence) for sentence in asking),
        proposal=Proposal(None, tools, frozenset(NUMBER.findall(text))) if agree else None,
        facts=_read_facts(sentences, world.facts),
        denies=denies,
        reasons=reasons,
        more=more,
        steps=() if agree else steps,
    )


def _asks_consent(sentence: str) -> bool:
    """Return True if a sentence asks for consent to an action, rather than to confirm an email or a number."""
    found = AGREE.search(sentence)
    if not found or OPEN_QUESTION.match(sentence):
        return False
    return found[0].lower() != "confirm" or not (IDENTITY_QUESTION.search(sentence) or NUMBER_QUESTION.search(sentence))


def _read_confirm(rest: str) -> Speech:
    calls = read_calls(rest)
    if len(calls) != 1 or calls[0].problem or calls[0].positional:
        raise IllegalAct("CONFIRM needs one call of a write tool with named arguments")
    write = Write(calls[0].name, {name: str(value) for name, value in calls[0].arguments.items()})
    return Speech(f"CONFIRM {to_one_line(str(write), MAX_CHARACTERS)}", proposal=Proposal(write))


def _read_tell(rest: str, facts: Mapping[str, Fact]) -> Speech:
    name, _, value = rest.partition(" ")
    name = name.lower()
    if name not in facts:
        raise IllegalAct(f"TELL needs one of {', '.join(facts)} and its value")
    canonical = canonical_fact(facts[name].kind, to_one_line(value, 60))
    if not canonical:
        raise IllegalAct(f"TELL {name} needs its value")
    return Speech(f"TELL {name} {canonical}", facts={name: canonical})


def _read_facts(sentences: Sequence[str], kinds: Mapping[str, Fact]) -> dict[str, str | None]:
    """Return the values told by name of the fact, None if there are several. Questions tell nothing."""
    by_name: dict[str, set[str]] = {}
    for sentence in sentences:
        if sentence.rstrip().endswith("?"):
            continue
        words = f" {fold(sentence)} "
        for name, fact in kinds.items():
            if any(f" {word} " in words for word in fact.words):
                by_name.setdefault(name, set()).update(_read_values(sentence, words, fact))
    return {name: values.pop() if len(values) == 1 else None for name, values in by_name.items() if values}


def _read_values(sentence: str, words: str, fact: Fact) -> set[str]:
    if fact.kind == "word":
        return {value for value in fact.values if f" {value} " in words}
    texts = (
        ["".join(groups) for groups in AMOUNT.findall(sentence)]
        if fact.kind == "amount"
        else VALUES[fact.kind].findall(sentence)
    )
    return {value for text in texts if (value := canonical_fact(fact.kind, text))}
