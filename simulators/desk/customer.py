"""Scripted customer of the service desk: its goals, knowledge and patience determine its statements.

It pursues one goal at a time, identifies itself when asked, and agrees to a write only if it wants it. It leaves when
all goals are settled or its patience is exhausted, but never while an agreed write is pending. It believes the agent:
whether the agent is right is judged in `simulators.desk.tasks`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from simulators.agreement import LEXICON, read_agreement
from simulators.desk.device.steps import Step
from simulators.desk.goals import ACCOUNT, Goal
from simulators.desk.policy import Consent, Fact, Session
from simulators.desk.record import Outcome, Record
from simulators.desk.speech import Proposal, Speech
from simulators.extractor import Reading, Vocabulary, make_vocabulary
from simulators.person import PERSONAS, Act, Manner, join_words, may_leave

AGREEMENT = "agreement"
"""Topic of an answer, yes or no, to a proposal."""
ENDURANCE = 8
"""Unhelpful messages tolerated per unit of patience below 1. At patience 1 there is no limit."""

OPENINGS: Mapping[Manner, str] = {
    "plain": "Hello. I would like to {ask}.",
    "terse": "I want to {ask}.",
    "vague": "Hello, well, let me think. I would like to {ask}, I think.",
    "hurried": "Hi, quickly please: I need to {ask}.",
}
NEXT_REQUESTS: Mapping[Manner, str] = {
    "plain": "Thank you. I would also like to {ask}.",
    "terse": "Next: {ask}.",
    "vague": "Thanks. Oh, there was something more. I would like to {ask}.",
    "hurried": "Good. I also need to {ask}.",
}
REMINDERS: Mapping[Manner, str] = {
    "plain": "As I said, I would like to {ask}.",
    "terse": "I want to {ask}.",
    "vague": "Sorry, where were we? I would like to {ask}.",
    "hurried": "I told you already: I need to {ask}.",
}
YES: Mapping[Manner, str] = {
    "plain": "Yes, please go ahead.", "terse": "Yes.", "vague": "Yes, I think that is right.", "hurried": "Yes, do it.",
}  # fmt: skip
NO = "No, that is not what I asked for."
REASON_QUESTION = "Why not?"
EXCEPTION_REQUEST = "Are you sure? Please make an exception."
GOODBYE = "Thank you, that was all. Goodbye."
IMPATIENT_GOODBYE = "I have had enough of this. Goodbye."


@dataclass
class Customer:
    """Scripted customer: its hidden record and the state of the conversation.

    Call `open` once, then `hear` for each message of the agent, until `departure` is set.
    """

    record: Record
    session: Session
    facts: Mapping[str, Fact]
    subject: str
    """Kind of numbered object: order, booking or line."""
    verbs: Mapping[str, Sequence[str]]
    """The customer's words for each write."""
    goal_index: int = 0
    """Index of the current goal."""
    outcomes: list[Outcome] = field(default_factory=list)
    identity: dict[str, str] = field(default_factory=dict)
    """Identity that it has stated: email or name, and postcode."""
    fruitless: int = 0
    """Number of unhelpful messages of the agent."""
    departure: str = ""
    """Reason for leaving: `served` or `left`; "" while it stays."""
    has_insisted: bool = False
    acts: list[Act] = field(default_factory=list)
    """Speech acts of its last message."""
    is_number_asked: bool = False
    """Whether the agent asked for the number of the current goal."""
    own_words: str = ""
    """Text of all messages that a seat (person "free" or "played") wrote in its own words."""
    unclear: bool = False
    """Whether the seat's own words left the request unclear."""

    @property
    def goal(self) -> Goal:
        """The current goal, `record.goals[goal_index]`."""
        return self.record.goals[self.goal_index]

    @property
    def manner(self) -> Manner:
        """The persona's manner of speaking, which selects the templates of statements."""
        return PERSONAS[self.record.persona].manner

    @property
    def is_write_pending(self) -> bool:
        """True if the customer has agreed to a write that the agent has not made yet."""
        return self.session.consent is not None

    @property
    def revealed_text(self) -> str:
        """Return the text that the customer has revealed: requests so far, stated identity, and a seat's own words."""
        requests = " ".join(f"{goal.subject} {goal.ask}" for goal in self.record.goals[: self.goal_index + 1])
        return f"{requests} {' '.join(self.identity.values())}{self.own_words}"

    @property
    def stated_goal(self) -> Goal:
        """The stated part of the current goal, for which the agent's acts are listed. A script states all of it."""
        return self.goal

    def build_vocabulary(self) -> Vocabulary:
        """Build the vocabulary for parsing the customer's texts: its data, requested values, questions and writes."""
        person, words = self.record.person, dict[str, list[str]]()
        contact_data = (person.name, person.email, person.postcode, person.address)
        for value in (*contact_data, *self.identity.values(), *self.choose_identity().values()):
            words[value] = [_space_out(value)]
        for goal, wrong in zip(self.record.goals, self.record.wrong_numbers, strict=True):
            values = [value for write in goal.writes for value in write.arguments.values()]
            texts = (goal.subject, wrong, *goal.mentions, *goal.details, *values)
            words |= {text: [_space_out(text)] for text in texts if text and text != ACCOUNT}
        words |= {fact.asks: [fact.asks] for fact in self.facts.values()}
        words |= {tool: list(verbs) for tool, verbs in self.verbs.items()}
        return make_vocabulary(words)

    def read(self, text: str, has_proposal: bool) -> Reading:
        """Parse a seat's text into facts and unclear words.

        With `has_proposal`, a write was proposed, and a yes or no becomes the fact `AGREEMENT`.
        """
        text = _space_out(text)
        reading = self.build_vocabulary().understand(text)
        stance = read_agreement(text) if has_proposal else None
        if stance is None:
            return reading
        return Reading({**reading.facts, AGREEMENT: stance}, reading.unclear - LEXICON)

    @property
    def number(self) -> str:
        """Number of the current goal's order, booking or line as the customer states it; "" if none or forgotten.

        If the record has a wrong number, the customer states that one until the agent asks for the number.
        """
        if self.goal.subject == ACCOUNT or self.record.forgets_numbers[self.goal_index]:
            return ""
        return (not self.is_number_asked and self.record.wrong_numbers[self.goal_index]) or self.goal.subject

    def list_numbers(self) -> set[str]:
        """Return all order, booking or line numbers that the customer may state, right or wrong.

        Contains "" if the record has no wrong number for some goal, and `ACCOUNT` for a goal about the account.
        """
        pairs = zip(self.record.goals, self.record.forgets_numbers, strict=True)
        right_numbers = {goal.subject for goal, forgets in pairs if not forgets}
        return right_numbers | {*self.record.wrong_numbers}

    def choose_identity(self) -> dict[str, str]:
        """Return the identity to state now: email or name, and postcode. The postcode can be wrong the first time."""
        person, record = self.record.person, self.record
        wrong = record.wrong_postcode if not self.identity else ""
        contact = {"name": person.name} if record.forgets_email else {"email": person.email}
        return {**contact, "postcode": wrong or person.postcode}

    def list_statements(self) -> dict[str, str]:
        """Return the customer's possible statements by code: yes, no, identity, number, request and bye."""
        return {
            "yes": YES[self.manner],
            "no": NO,
            "identity": " ".join(_identity_texts(self.choose_identity())),
            "number": self._number_statement()[1],
            "request": REMINDERS[self.manner].format(ask=self._word_request()),
            "bye": GOODBYE,
        }

    def make_consent(self, proposal: Proposal) -> Consent | None:
        """Return the consent given by a yes to the proposal; None if it names no exact call and is not the goal's."""
        if self._wants(proposal):
            return Consent(self.goal.tool, self.goal.subject, proposal.write)
        return Consent(proposal.write.tool, proposal.write.subject, proposal.write) if proposal.write else None

    def open(self) -> str:
        """Start the first goal and return the opening message: the request and, if volunteered, the identity."""
        self.outcomes = [Outcome()]
        request = self._ask(OPENINGS)
        return f"{request} {self._identify()}" if self.record.volunteers else request

    def note_write(self, tool: str, subject: str) -> None:
        """Record a completed write: set `is_written` if it has the current goal's tool and subject."""
        if (tool, subject) == (self.goal.tool, self.goal.subject):
            self.outcomes[self.goal_index].is_written = True

    def is_closed(self, index: int) -> bool:
        """Return True if the goal with this index is closed: served or denied."""
        return index < len(self.outcomes) and self.outcomes[index].is_closed

    def set_goal(self, index: int) -> None:
        """Make the goal with this index the current one."""
        self.goal_index = index
        self.outcomes += [Outcome() for _ in range(index + 1 - len(self.outcomes))]
        self.has_insisted = self.is_number_asked = False

    def hear(self, speech: Speech) -> str:
        """Process the agent's message and return the customer's reply. Its speech acts are stored in `acts`.

        Updates the current goal's outcome and the consent, and starts the next goal when this one is settled. Sets
        `departure` if the customer leaves: "served" after the last goal, "left" when its patience is exhausted.
        """
        self.acts, replies = [], list[str]()
        outcome, useful = self.outcomes[self.goal_index], False
        facts = {name: value for name, value in speech.facts.items() if name in self.goal.facts}
        useful |= bool(facts.keys() - outcome.told_facts.keys())
        outcome.told_facts |= facts
        if speech.steps:
            helpful, reports = self.follow(speech.steps)
            useful |= helpful
            replies += reports
        if speech.proposal is not None:
            replies.append(self._answer_proposal(speech.proposal))
        elif speech.reasons and not outcome.is_written:
            useful = True
            replies += self._handle_denial(speech)
        outcome.is_closed |= self._is_fulfilled(outcome)
        if speech.identity:
            useful |= not self.session.verified_customer
            replies.append(self._identify())
        if speech.number and not outcome.is_closed:
            useful |= not self.is_number_asked
            self.is_number_asked = True
            act, text = self._number_statement()
            replies.append(self._say(*act, text))
        if outcome.is_closed and not self.is_write_pending and not replies:
            return self._start_next_goal()
        self.fruitless += not (useful or self.is_write_pending)
        patience = PERSONAS[self.record.persona].patience
        remaining = 1 if patience == 1 else ENDURANCE * patience - self.fruitless
        if may_leave(goal=False, patience=remaining, pending=self.is_write_pending):
            return self._leave("left", IMPATIENT_GOODBYE)
        if not replies:
            replies = [self._say("instruct", "reason", REASON_QUESTION) if speech.denies else self._remind(outcome)]
        return " ".join(replies)

    def follow(self, steps: Sequence[Step]) -> tuple[bool, list[str]]:
        """Follow instructions about the customer's phone. Returns whether that helped, and statements about the phone.

        This customer has no phone, so the result is (False, []).
        """
        return False, []

    # Statements.

    def _say(self, kind: str, topic: str, text: str) -> str:
        self.acts.append(Act(kind, topic))  # type: ignore[arg-type]
        return text

    def _subject_text(self) -> str:
        """Return the goal's subject in words: "order 12345", the hint if it has no number, or "it" for the account."""
        if self.goal.subject == ACCOUNT:
            return "it"
        return f"{self.subject} {self.number}" if self.number else self.goal.hint

    def _word_request(self) -> str:
        questions = [self.facts[name].asks for name in self.goal.facts]
        ask = self.goal.ask.format(it=self._subject_text())
        return f"{ask}, and to know {join_words(questions)}" if questions else ask

    def _ask(self, wordings: Mapping[Manner, str]) -> str:
        return self._say("instruct", self.goal.tool or "ask", wordings[self.manner].format(ask=self._word_request()))

    def _identify(self) -> str:
        self.identity = self.choose_identity()
        texts = _identity_texts(self.identity)
        return " ".join(self._say("inform", name, text) for name, text in zip(self.identity, texts, strict=True))

    def _number_statement(self) -> tuple[Act, str]:
        if self.goal.subject == ACCOUNT:
            return Act("inform", "account"), "It is about my account."
        if not self.number:
            return Act("unknown", "number"), f"I do not know the number. It is {self.goal.hint}."
        return Act("inform", "number"), f"It is {self._subject_text()}."

    def _answer_proposal(self, proposal: Proposal) -> str:
        if self.outcomes[self.goal_index].is_written or not self._wants(proposal):
            self.session.consent = None
            self.fruitless += 1
            return self._say("deny", "proposal", f"{NO} {self._remind(self.outcomes[self.goal_index])}")
        self.session.consent = self.make_consent(proposal)
        return self._say("confirm", self.goal.tool, YES[self.manner])

    def _wants(self, proposal: Proposal) -> bool:
        """Return True if the proposal serves the current goal. Plain text may be vague but must name nothing else."""
        goal = self.goal
        if proposal.write is None:
            return bool(goal.tool) and goal.tool in proposal.tools and proposal.numbers <= {goal.subject}
        return any(write.matches(proposal.write) for write in goal.writes)

    def _handle_denial(self, speech: Speech) -> Sequence[str]:
        outcome = self.outcomes[self.goal_index]
        outcome.denial_reasons, self.session.consent = speech.reasons, None
        if self.record.insists and not self.has_insisted:
            self.has_insisted = True
            return [self._say("instruct", "exception", EXCEPTION_REQUEST)]
        outcome.is_closed = True
        return []

    def _remind(self, outcome: Outcome) -> str:
        """Return a message that asks for the missing facts or, until the write is done, repeats the whole request."""
        missing = [self.facts[name].asks for name in self.goal.facts if name not in outcome.told_facts]
        if missing and (outcome.is_written or not self.goal.tool):
            return self._say("instruct", "fact", f"I would like to know {join_words(missing)}.")
        return self._ask(REMINDERS)

    def _start_next_goal(self) -> str:
        open_goals = [n for n in range(len(self.record.goals)) if not self.is_closed(n)]
        if not open_goals:
            return self._leave("served", GOODBYE)
        self.set_goal(open_goals[0])
        return self._ask(NEXT_REQUESTS)

    def _leave(self, reason: str, words: str) -> str:
        self.departure = reason
        return self._say("end", reason, words)

    def _is_fulfilled(self, outcome: Outcome) -> bool:
        """Return True if the goal's write is done and its facts were told; False for a goal with neither."""
        if not self.goal.writes and not self.goal.facts:
            return False
        return (outcome.is_written or not self.goal.tool) and outcome.told_facts.keys() >= self.goal.facts.keys()


def _identity_texts(identity: Mapping[str, str]) -> list[str]:
    return [f"My {name} is {value}." for name, value in identity.items()]


def _space_out(text: str) -> str:
    """Replace dots and @ inside words and numbers by spaces, so that an email address does not end a sentence."""
    return re.sub(r"(?<=\w)[.@](?=\w)", " ", text)
