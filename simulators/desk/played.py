"""Customer played by its seat: it opens the conversation, states its goals in any order, and decides when to leave.

The script only keeps track: it evaluates the agent's messages and determines which statement is due. Consent, identity
and the current goal are parsed from the seat's own words. The agent's listed acts use only statements made so far.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from games.base import to_one_line
from games.families.book import fold
from simulators.desk.customer import AGREEMENT, Customer
from simulators.desk.goals import ACCOUNT, Goal
from simulators.desk.seat import EMAIL, NUMBER, Seat
from simulators.desk.speech import MAX_CHARACTERS, Proposal
from simulators.extractor import Stance, Vocabulary
from simulators.played import LEAVING, Faults

POSTCODE = re.compile(r"\b[A-Z]\d \d[A-Z]{2}\b")
NAME = re.compile(r"\b(?:[Mm]y name is|I am|I'm) ([A-Z]\w+ [A-Z]\w+)")
STRANGERS = re.compile(r"[A-Z]\w+ [A-Z]\w+")
"""Names of people in a request."""
ANSWERS = ("yes", "no", "identity", "number")
"""Codes of statements that answer a question, so that the seat must make them."""


@dataclass
class PlayedCustomer(Customer):
    """Customer whose seat decides what to say. It tracks the stated goals; `note_topics` adds topics."""

    topics: set[str] = field(default_factory=set)
    stated_goals: set[int] = field(default_factory=set)
    """Indices of the goals that the seat has mentioned."""
    unclear: bool = True

    def list_wishes(self) -> list[str]:
        """Return the requests of the open goals as text, the current one first."""
        wishes, current = [], self.goal_index
        for index in sorted(range(len(self.record.goals)), key=lambda n: (n != current, n)):
            if not self.is_closed(index):
                is_number_asked = self.is_number_asked and index == current
                wishes.append(replace(self, goal_index=index, is_number_asked=is_number_asked)._word_request())
        return wishes

    def list_topics(self) -> list[set[str]]:
        """Return, for each goal, the topics that distinguish it from the other goals."""
        topics = [
            {goal.tool, goal.subject, goal.hint, wrong, *goal.mentions, *STRANGERS.findall(goal.ask)} - {"", ACCOUNT}
            for goal, wrong in zip(self.record.goals, self.record.wrong_numbers, strict=True)
        ]
        return [keys.difference(*topics[:n], *topics[n + 1 :]) for n, keys in enumerate(topics)]

    def note_topics(self, topics: set[str]) -> None:
        """Record the topics of the seat's text. If it names another open goal, that goal becomes the current one."""
        self.topics |= topics
        named = [n for n, keys in enumerate(self.list_topics()) if keys & topics and not self.is_closed(n)]
        self.stated_goals |= {*named}
        if named and self.goal_index not in named and not self.is_write_pending:
            self.set_goal(named[0])
        self.unclear = self.goal_index not in self.stated_goals

    def list_unrequested_writes(self) -> set[str]:
        """Return the names of the write tools that none of the customer's goals needs."""
        return self.verbs.keys() - {goal.tool for goal in self.record.goals}

    @property
    def stated_goal(self) -> Goal:
        """Part of the current goal that the seat has stated."""
        goal = self.goal
        if self.goal_index not in self.stated_goals:
            return Goal("", subject="")
        if goal.tool and goal.tool not in self.topics:
            goal = replace(goal, writes=(), reasons=frozenset())
        facts = {name: value for name, value in goal.facts.items() if self.facts[name].asks in self.topics}
        return replace(goal, facts=facts)

    @property
    def revealed_text(self) -> str:
        """Return the text that the customer has revealed: the seat's own words."""
        return self.own_words

    def build_vocabulary(self) -> Vocabulary:
        """Build the scripted customer's vocabulary, with `phrases` added."""
        return Vocabulary({**self.phrases, **super().build_vocabulary().phrases})

    @cached_property
    def phrases(self) -> dict[str, str]:
        """Topic of each additional phrase that distinguishes one goal from the others.

        The phrases are names of people, the hint for a forgotten number, and the beginning of a request that lacks the
        usual words for its tool.
        """
        vocabulary, phrases = super().build_vocabulary(), dict[str, str]()
        for goal in self.record.goals:
            phrases |= {fold(name): name for name in STRANGERS.findall(goal.ask)}
            phrases |= {fold(text): goal.hint for text in (goal.hint, goal.hint.removeprefix("my ")) if text}
            if goal.tool and goal.tool not in vocabulary.read(goal.ask):
                phrases[fold(goal.ask.partition("{it}")[0])] = goal.tool
        return phrases


@dataclass
class PlayedSeat(Seat):
    """Seat that plays the customer: `check` finds the faults of a text, `hear` applies it to the match."""

    customer: PlayedCustomer
    leaving: str = ""
    """Reason why the script would leave now, or "" if it would stay."""
    stated: Mapping[str, Stance] = field(default_factory=dict)
    """Facts in the last checked text; `due` has those in the template at that time."""
    due: Mapping[str, Stance] = field(default_factory=dict)
    """Facts in the template that was due at the last check."""

    def facts(self) -> dict[str, Any]:
        """Return the facts of a free seat, the open requests as text (`wishes`), and the customer's identity (`about`).

        `wish` is the current request, "" if none is open. `template` and `answer` are the script's statement, which
        roles for free play may leave out of their prompt.
        """
        wishes = self.customer.list_wishes()
        wish = wishes[0] if wishes else ""
        return {**super().facts(), "wish": wish, "wishes": wishes, "about": self.customer.choose_identity()}

    def request(self, template: str, proposal: Proposal | None, identity: dict[str, str]) -> None:
        """Request a statement as `Seat.request` does. Only the seat's own words state its identity or end the match."""
        super().request(template, proposal, identity)
        self.customer.identity = identity
        self.leaving, self.customer.departure = self.customer.departure, ""
        self.customer.unclear = self.customer.goal_index not in self.customer.stated_goals

    def expand(self, text: str) -> str:
        """Return the text in one line. A code is expanded to its statement, the due one to the template."""
        text = to_one_line(text, MAX_CHARACTERS)
        return (self.customer.list_statements() | {self.code: self.template}).get(text.lower(), text)

    def use(self, text: str, limit: int) -> list[str]:
        """Return []: this customer has no tools to call."""
        return []

    def hear(self, text: str) -> tuple[str, dict[str, float]]:
        """Apply the last checked text to the customer's state. Returns the expanded text and no fines ({})."""
        text = self.expand(text)
        self.customer.note_topics({*self.stated})
        unclear = self.customer.unclear
        self._take_effect(text, self.stated, self.due)
        self.customer.unclear = unclear
        may_leave = bool(self.leaving) or len(self.customer.stated_goals) == len(self.customer.record.goals)
        if LEAVING.search(text) and may_leave and not self.customer.is_write_pending:
            self.customer.departure = self.leaving or "left"
        self.template = ""
        return text, {}

    def check(self, text: str) -> Faults:
        """Return the faults of a text: wrong, leaked and withheld statements.

        `wrong`: numbers, emails, postcodes and names that are not the customer's, requests outside its goals, and a yes
        or no against its interest. `leaked`: its own data and later wishes that are not due yet. `withheld`: the due
        statement if the text omits an owed answer or request, or the open wishes if the customer leaves before it has
        stated all of them.
        """
        text, has_proposal = self.expand(text), self.proposal is not None
        stated, due = (self.customer.read(each, has_proposal).facts for each in (text, self.template))
        self.stated, self.due = stated, due
        customer, person = self.customer, self.customer.record.person
        wrong, keys = self._find_made_up(text), customer.list_topics()
        if AGREEMENT in due and stated.get(AGREEMENT, due[AGREEMENT]) != due[AGREEMENT]:
            wrong.append(text)
        wrong += sorted(
            tool for tool in customer.list_unrequested_writes() - due.keys() if stated.get(tool) == "inform"
        )
        unstated_goals = [n for n in range(len(keys)) if n not in customer.stated_goals]
        later = {key for n in unstated_goals if n != customer.goal_index for key in keys[n]}
        contact_data = {person.name, person.email, person.postcode, person.address}
        leaked = (contact_data | later) & stated.keys() - due.keys() - customer.topics
        withheld = []
        owes_statement = self.code in ANSWERS or (
            self.code == "request" and customer.goal_index in unstated_goals and not later & stated.keys()
        )
        if owes_statement and due and not due.keys() & stated.keys():
            withheld = [self.template]
        elif LEAVING.search(text) and not self.leaving and unstated_goals:
            withheld = customer.list_wishes()
        return Faults(wrong, sorted(leaked), withheld)

    def _find_made_up(self, text: str) -> list[str]:
        """Return the numbers, emails, postcodes and names in a text that do not belong to the customer."""
        customer, person = self.customer, self.customer.record.person
        known_text = " ".join(
            [*customer.build_vocabulary().phrases.values(), *customer.list_numbers(), customer.number, person.email]
        )
        references = [*NUMBER.findall(text), *EMAIL.findall(text), *POSTCODE.findall(text)]
        names = [name for name in NAME.findall(text) if name != person.name]
        return [each for each in references if each not in known_text] + names
