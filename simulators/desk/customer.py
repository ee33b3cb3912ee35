"""The customer: a script decides what is said, from what it wants, what it knows and its patience.

It asks for one thing at a time, proves who it is when asked, agrees to a write only if that is what it wants, and
leaves when everything was done or denied, or when its patience is gone; never while a write that it agreed to is due.
It takes what the agent says for true: whether the agent did well is not its business.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from simulators.agreement import LEXICON, read_agreement
from simulators.desk.goals import ACCOUNT, Goal
from simulators.desk.policy import Consent, Fact, Session
from simulators.desk.record import Outcome, Record
from simulators.desk.speech import Proposal, Speech
from simulators.extractor import Reading, Vocabulary, vocabulary
from simulators.person import PERSONAS, Act, Manner, listed, may_leave

AGREEMENT = "agreement"
"""Topic of a yes or no to a proposal."""
ENDURANCE = 8
"""Fruitless messages of the agent that a customer of patience just under 1 bears; a persona bears its share."""

OPENINGS: Mapping[Manner, str] = {
    "plain": "Hello. I would like to {ask}.",
    "terse": "I want to {ask}.",
    "vague": "Hello, well, let me think. I would like to {ask}, I think.",
    "hurried": "Hi, quickly please: I need to {ask}.",
}
NEXT: Mapping[Manner, str] = {
    "plain": "Thank you. I would also like to {ask}.",
    "terse": "Next: {ask}.",
    "vague": "Thanks. Oh, there was something more. I would like to {ask}.",
    "hurried": "Good. I also need to {ask}.",
}
STILL: Mapping[Manner, str] = {
    "plain": "As I said, I would like to {ask}.",
    "terse": "I want to {ask}.",
    "vague": "Sorry, where were we? I would like to {ask}.",
    "hurried": "I told you already: I need to {ask}.",
}
YES: Mapping[Manner, str] = {
    "plain": "Yes, please go ahead.", "terse": "Yes.", "vague": "Yes, I think that is right.", "hurried": "Yes, do it.",
}  # fmt: skip
NO = "No, that is not what I asked for."
WHY = "Why not?"
INSIST = "Are you sure? Please make an exception."
GOODBYE = "Thank you, that was all. Goodbye."
ENOUGH = "I have had enough of this. Goodbye."


@dataclass
class Customer:
    """A record, and the state of the talk."""

    record: Record
    session: Session
    facts: Mapping[str, Fact]
    subject: str
    """Kind of thing that numbers are of: order or booking."""
    verbs: Mapping[str, Sequence[str]]
    """Words that the customer has for each write."""
    at: int = 0
    """The goal that is being dealt with."""
    outcomes: list[Outcome] = field(default_factory=list)
    identity: dict[str, str] = field(default_factory=dict)
    """Facts that it has said of itself: email or name, and postcode."""
    fruitless: int = 0
    gone: str = ""
    """Reason why it left: `served` or `left`; "" while it is here."""
    insisted: bool = False
    acts: list[Act] = field(default_factory=list)
    """Acts that it said last, typed."""
    corrected: bool = False
    """Whether the number of the goal at hand was asked for."""
    said: str = ""
    """All that it said in words of its own, where its seat is freely played."""
    unclear: bool = False
    """Whether such words left open what it wants."""

    @property
    def goal(self) -> Goal:
        """Return the goal that it asks for now."""
        return self.record.goals[self.at]

    @property
    def manner(self) -> Manner:
        """Return its manner of speaking."""
        return PERSONAS[self.record.persona].manner

    @property
    def pending(self) -> bool:
        """Return whether a write that it has agreed to is not done yet."""
        return self.session.granted is not None

    @property
    def uttered(self) -> str:
        """All that it has said of its data."""
        requests = " ".join(f"{goal.subject} {goal.ask}" for goal in self.record.goals[: self.at + 1])
        return f"{requests} {' '.join(self.identity.values())}{self.said}"

    def vocabulary(self) -> Vocabulary:
        """Return the words that can be read from it: its data and its wishes."""
        person, words = self.record.person, dict[str, list[str]]()
        own = (person.name, person.email, person.postcode, person.address)
        for value in (*own, *self.identity.values(), *self.known().values()):
            words[value] = [_spaced(value)]
        for goal, wrong in zip(self.record.goals, self.record.wrong_numbers, strict=True):
            values = [value for write in goal.writes for value in write.arguments.values()]
            texts = (goal.subject, wrong, *goal.mentions, *goal.details, *values)
            words |= {text: [_spaced(text)] for text in texts if text and text != ACCOUNT}
        words |= {fact.asks: [fact.asks] for fact in self.facts.values()}
        words |= {tool: list(verbs) for tool, verbs in self.verbs.items()}
        return vocabulary(words)

    def read(self, text: str, proposed: bool) -> Reading:
        """Read a text of its own; whether it agrees is read only if something was proposed."""
        text = _spaced(text)
        reading = self.vocabulary().understand(text)
        stance = read_agreement(text) if proposed else None
        if stance is None:
            return reading
        return Reading({**reading.facts, AGREEMENT: stance}, reading.unclear - LEXICON)

    @property
    def number(self) -> str:
        """The number that it has given for the goal at hand, wrong or not; "" if none."""
        if self.goal.subject == ACCOUNT or self.record.forgets_numbers[self.at]:
            return ""
        return (not self.corrected and self.record.wrong_numbers[self.at]) or self.goal.subject

    def numbers(self) -> set[str]:
        """All numbers of orders or bookings that it has in mind, right or wrong."""
        pairs = zip(self.record.goals, self.record.forgets_numbers, strict=True)
        right = {goal.subject for goal, forgotten in pairs if not forgotten}
        return right | {*self.record.wrong_numbers}

    def known(self) -> dict[str, str]:
        """Return who it would say that it is: its email or name, and its postcode; a slip only once."""
        person, record = self.record.person, self.record
        wrong = record.wrong_postcode if not self.identity else ""
        contact = {"name": person.name} if record.forgets_email else {"email": person.email}
        return {**contact, "postcode": wrong or person.postcode}

    def shorts(self) -> dict[str, str]:
        """Short words for what it can say, and what they stand for."""
        return {
            "yes": YES[self.manner],
            "no": NO,
            "identity": " ".join(_identity_texts(self.known())),
            "number": self._numbered()[1],
            "request": STILL[self.manner].format(ask=self._wish()),
            "bye": GOODBYE,
        }

    def consent(self, proposal: Proposal) -> Consent | None:
        """Return what its yes to this permits; None where plain words named nothing that it wants."""
        if self._wants(proposal):
            return Consent(self.goal.tool, self.goal.subject, proposal.write)
        return Consent(proposal.write.tool, proposal.write.subject, proposal.write) if proposal.write else None

    def open(self) -> str:
        """Its first words."""
        self.outcomes = [Outcome()]
        said = self._ask(OPENINGS)
        return f"{said} {self._identify()}" if self.record.volunteers else said

    def wrote(self, tool: str, subject: str) -> None:
        """Note a write that was done, for any reason."""
        if (tool, subject) == (self.goal.tool, self.goal.subject):
            self.outcomes[self.at].written = True

    def hear(self, speech: Speech) -> str:
        """Take in what the agent says and return the answer; afterwards `gone` says whether the customer has left."""
        self.acts, said = [], list[str]()
        outcome, useful = self.outcomes[self.at], False
        facts = {name: value for name, value in speech.facts.items() if name in self.goal.facts}
        useful |= bool(facts.keys() - outcome.told.keys())
        outcome.told |= facts
        if speech.proposal is not None:
            said.append(self._agree(speech.proposal))
        elif speech.reasons and not outcome.written:
            useful = True
            said += self._denied(speech)
        outcome.closed |= self._dealt_with(outcome)
        if speech.identity:
            useful |= not self.session.verified
            said.append(self._identify())
        if speech.number and not outcome.closed:
            useful |= not self.corrected
            self.corrected = True
            said.append(self._number())
        if outcome.closed and not self.pending and not said:
            return self._go_on()
        self.fruitless += not (useful or self.pending)
        patience = PERSONAS[self.record.persona].patience
        left = 1 if patience == 1 else ENDURANCE * patience - self.fruitless
        if may_leave(goal=False, patience=left, pending=self.pending):
            return self._leave("left", ENOUGH)
        if not said:
            said = [self._say("instruct", "reason", WHY) if speech.denies else self._remind(outcome)]
        return " ".join(said)

    # What it says.

    def _say(self, kind: str, topic: str, text: str) -> str:
        self.acts.append(Act(kind, topic))  # type: ignore[arg-type]
        return text

    def _it(self) -> str:
        """Return its words for the order or booking."""
        if self.goal.subject == ACCOUNT:
            return "it"
        return f"{self.subject} {self.number}" if self.number else self.goal.hint

    def _wish(self) -> str:
        questions = [self.facts[name].asks for name in self.goal.facts]
        ask = self.goal.ask.format(it=self._it())
        return f"{ask}, and to know {listed(questions)}" if questions else ask

    def _ask(self, wordings: Mapping[Manner, str]) -> str:
        return self._say("instruct", self.goal.tool or "ask", wordings[self.manner].format(ask=self._wish()))

    def _identify(self) -> str:
        self.identity = self.known()
        texts = _identity_texts(self.identity)
        return " ".join(self._say("inform", name, text) for name, text in zip(self.identity, texts, strict=True))

    def _numbered(self) -> tuple[Act, str]:
        if self.goal.subject == ACCOUNT:
            return Act("inform", "account"), "It is about my account."
        if not self.number:
            return Act("unknown", "number"), f"I do not know the number. It is {self.goal.hint}."
        return Act("inform", "number"), f"It is {self._it()}."

    def _number(self) -> str:
        act, text = self._numbered()
        return self._say(*act, text)

    def _agree(self, proposal: Proposal) -> str:
        if self.outcomes[self.at].written or not self._wants(proposal):
            self.session.granted = None
            self.fruitless += 1
            return self._say("deny", "proposal", f"{NO} {self._remind(self.outcomes[self.at])}")
        self.session.granted = self.consent(proposal)
        return self._say("confirm", self.goal.tool, YES[self.manner])

    def _wants(self, proposal: Proposal) -> bool:
        """Return whether that is what it asked for. Plain text need not name everything, but nothing else."""
        goal = self.goal
        if proposal.write is None:
            return bool(goal.tool) and goal.tool in proposal.tools and proposal.numbers <= {goal.subject}
        return any(write.alike(proposal.write) for write in goal.writes)

    def _denied(self, speech: Speech) -> Sequence[str]:
        outcome = self.outcomes[self.at]
        outcome.denied, self.session.granted = speech.reasons, None
        if self.record.insists and not self.insisted:
            self.insisted = True
            return [self._say("instruct", "exception", INSIST)]
        outcome.closed = True
        return []

    def _remind(self, outcome: Outcome) -> str:
        """It says again what it still waits for."""
        missing = [self.facts[name].asks for name in self.goal.facts if name not in outcome.told]
        if missing and (outcome.written or not self.goal.tool):
            return self._say("instruct", "fact", f"I would like to know {listed(missing)}.")
        return self._ask(STILL)

    def _go_on(self) -> str:
        if self.at + 1 == len(self.record.goals):
            return self._leave("served", GOODBYE)
        self.at += 1
        self.outcomes.append(Outcome())
        self.insisted = self.corrected = False
        return self._ask(NEXT)

    def _leave(self, why: str, words: str) -> str:
        self.gone = why
        return self._say("end", why, words)

    def _dealt_with(self, outcome: Outcome) -> bool:
        """Done, as far as it can see, and told all that it asked; prying asks for nothing that can be had."""
        if not self.goal.writes and not self.goal.facts:
            return False
        return (outcome.written or not self.goal.tool) and outcome.told.keys() >= self.goal.facts.keys()


def _identity_texts(identity: Mapping[str, str]) -> list[str]:
    return [f"My {name} is {value}." for name, value in identity.items()]


def _spaced(text: str) -> str:
    """Return the text with blanks for dots inside words and numbers, so that an email is one sentence."""
    return re.sub(r"(?<=\w)[.@](?=\w)", " ", text)
