"""Simulated persons: a script chooses typed speech acts, and a template or a model only words them.

If the person's seat words an act, its text is parsed again (`simulators.extractor`). If the text does not say exactly
what the act says, or says anything that cannot be checked, the seat is asked once more; then the template replaces it.
So the truth never depends on a language model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np

from simulators.extractor import Reading

Speech = Literal["script", "render", "free", "played"]
"""Source of a person's words: a template; the seat, checked against the act; the seat, unchecked; or the seat, which
also decides what to say (`simulators.played`)."""
SPEECHES: tuple[Speech, ...] = ("script", "render", "free", "played")
Kind = Literal["inform", "deny", "unknown", "confirm", "instruct", "end"]
Manner = Literal["plain", "terse", "vague", "hurried"]


class Act(NamedTuple):
    """A person's speech act, such as ("deny", "fever"): its kind, and its topic or ""."""

    kind: Kind
    topic: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.topic}".rstrip()


@dataclass(frozen=True)
class Persona:
    """Behaviour of a simulated person: manner of speech, patience, and probabilities.

    Whether the person volunteers, forgets or misstates a fact of the record is drawn once per fact.
    """

    manner: Manner = "plain"
    volunteers: float = 0.3
    """Share of known, true, non-secret facts that the person states unasked."""
    forgets: float = 0.05
    """Share of facts that the person does not remember."""
    slips: float = 1.0
    """Error rate on facts, as a multiple of the simulator's own rate."""
    patience: float = 1.0
    """Share of the question limit after which the person loses patience; 1 for never."""


PERSONAS: Mapping[str, Persona] = {
    "cooperative": Persona(),
    "terse": Persona("terse", volunteers=0.1),
    "forgetful": Persona("vague", volunteers=0.2, forgets=0.3),
    "mistaken": Persona(slips=3.0),
    "impatient": Persona("hurried", patience=0.5),
}

WORDINGS: Mapping[Manner, Mapping[Kind, tuple[str, ...]]] = {
    "plain": {
        "inform": ("Yes, I have {it}.", "Yes. I do have {it}.", "I have had {it}, yes.", "There is {it}, doctor."),
        "deny": ("No, I don't have {it}.", "No. I have not noticed {it}.", "No sign of {it}.", "I haven't had {it}."),
        "unknown": ("I'm not sure about {it}.", "I can't tell whether I have {it}.", "Hard to say if it is {it}."),
    },
    "terse": {
        "inform": ("Yes.", "Yeah.", "I do."),
        "deny": ("No.", "Nope.", "I don't."),
        "unknown": ("Not sure.", "No idea.", "Can't tell."),
    },
    "vague": {
        "inform": ("Let me think... yes, I have {it}.", "Oh. Now that you say it, I have {it}."),
        "deny": ("Well, no, I don't have {it}.", "Hmm. I have not had {it} of late."),
        "unknown": ("I don't remember {it}.", "Sorry, I really can't recall whether I had {it}."),
    },
    "hurried": {
        "inform": ("Yes, {it}. Go on.", "Yes yes, I have {it}. What else?"),
        "deny": ("No, I don't have {it}. Next.", "No, not {it}. Will this take long?"),
        "unknown": ("I can't tell if I have {it}. Next.", "No idea about {it}. Are we done?"),
    },
}
"""Templates of each act about `it`, by manner. The extractor reads each back exactly (tested)."""


def word_act(act: Act, it: str, manner: Manner, rng: np.random.Generator) -> str:
    """Word an act by a random template of this manner; `it` is the topic in the form that follows "I have"."""
    wordings = WORDINGS[manner][act.kind]
    return wordings[rng.integers(len(wordings))].format(it=it)


def join_words(things: Sequence[str]) -> str:
    """Join words as English does: `a`, `a and b`, or `a, b and c`."""
    return " and ".join([", ".join(things[:-1]), things[-1]] if len(things) > 1 else things)


def may_leave(*, goal: bool, patience: float, pending: bool) -> bool:
    """Return True if a person may end the talk: its `goal` is reached or no `patience` is left (<= 0).

    The person may not leave while a change of records is `pending`.
    """
    return (goal or patience <= 0) and not pending


@dataclass
class Renderings:
    """Checker of a seat's wordings of prescribed speech acts; its fields count texts and their deviations."""

    texts: int = 0
    wrong: int = 0
    """Texts with a wrong stance on a topic that was due."""
    extra: int = 0
    """Texts about a topic that was not due, whether true or not."""
    withheld: int = 0
    """Texts without something that was due."""
    unclear: int = 0
    """Texts with uncheckable parts: unknown words, contradictions, questions about a topic."""
    replaced: int = 0
    """Acts worded by the template instead."""
    is_retry: bool = field(default=False, repr=False)
    """Whether the current act's wording was already requested a second time."""

    def accepts(self, actual: Reading, expected: Reading) -> bool:
        """Compare a text's facts (`actual`) with those of the prescribed act (`expected`), and count the result.

        Returns True if both have the same topics and stances and the text has no further unclear parts.
        """
        self.texts += 1
        wrong = any(actual.facts[topic] != stance for topic, stance in expected.facts.items() if topic in actual.facts)
        extra = bool(actual.facts.keys() - expected.facts.keys())
        withheld = bool(expected.facts.keys() - actual.facts.keys())
        unclear = not actual.unclear <= expected.unclear
        self.wrong, self.extra, self.withheld = self.wrong + wrong, self.extra + extra, self.withheld + withheld
        self.unclear += unclear
        return not (wrong or extra or withheld or unclear)

    def choose_text(self, text: str, template: str, read: Callable[[str], Reading]) -> str | None:
        """Return the seat's text if it states the template's facts, None to request another text, or the template.

        The first failure for an act returns None, the second the template, which counts as `replaced`. `read` extracts
        a text's facts.
        """
        if self.accepts(read(text), read(template)):
            self.is_retry = False
            return text
        self.is_retry = not self.is_retry
        if self.is_retry:
            return None
        self.replaced += 1
        return template

    def figures(self) -> dict[str, float | bool | str]:
        """Return the counts for the match's report, as `render_texts`, `render_wrong`, `render_extra` and so on."""
        names = ("texts", "wrong", "extra", "withheld", "unclear", "replaced")
        return {f"render_{name}": getattr(self, name) for name in names}
