"""Customer played by its seat: it opens the talk, speaks of its goals in any order, and leaves when it likes.

The script only keeps track: it judges the agent's messages, and knows what is due. Consent, identity and the goal in
hand are read from the seat's own words. The agent's listed acts use nothing but what was said.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from games.base import one_line
from games.families.book import fold
from simulators.desk.customer import AGREEMENT, Customer
from simulators.desk.goals import ACCOUNT, Goal
from simulators.desk.seat import EMAIL, NUMBER, Seat
from simulators.desk.speech import LONGEST, Proposal
from simulators.extractor import Stance, Vocabulary
from simulators.played import LEAVING, Checked

POSTCODE = re.compile(r"\b[A-Z]\d \d[A-Z]{2}\b")
NAME = re.compile(r"\b(?:[Mm]y name is|I am|I'm) ([A-Z]\w+ [A-Z]\w+)")
STRANGERS = re.compile(r"[A-Z]\w+ [A-Z]\w+")
"""People in the words of a request."""
ANSWERS = ("yes", "no", "identity", "number")
"""Short words of statements that answer a question: a customer owes them."""


@dataclass
class PlayedCustomer(Customer):
    """Customer whose seat decides what to say; it knows which goals were stated. `note` adds a text's topics."""

    topics: set[str] = field(default_factory=set)
    stated: set[int] = field(default_factory=set)
    """Indices of the goals that were spoken of."""
    unclear: bool = True

    def wishes(self) -> list[str]:
        """Return the open goals in words, the current one first."""
        found, now = [], self.at
        for at in sorted(range(len(self.record.goals)), key=lambda n: (n != now, n)):
            if not self.is_closed(at):
                found.append(replace(self, at=at, corrected=self.corrected and at == now)._wish())
        return found

    def keys(self) -> list[set[str]]:
        """Return by goal the topics that tell it from the other goals."""
        every = [
            {goal.tool, goal.subject, goal.hint, wrong, *goal.mentions, *STRANGERS.findall(goal.ask)} - {"", ACCOUNT}
            for goal, wrong in zip(self.record.goals, self.record.wrong_numbers, strict=True)
        ]
        return [own.difference(*every[:n], *every[n + 1 :]) for n, own in enumerate(every)]

    def note(self, topics: set[str]) -> None:
        """Take note of what the seat states. Naming another open goal makes it the current one."""
        self.topics |= topics
        named = [n for n, keys in enumerate(self.keys()) if keys & topics and not self.is_closed(n)]
        self.stated |= {*named}
        if named and self.at not in named and not self.pending:
            self.turn_to(named[0])
        self.unclear = self.at not in self.stated

    def unwanted(self) -> set[str]:
        """Return the writes that no goal of the customer asks for."""
        return self.verbs.keys() - {goal.tool for goal in self.record.goals}

    @property
    def shown(self) -> Goal:
        """The current goal as far as the seat has stated it."""
        goal = self.goal
        if self.at not in self.stated:
            return Goal("", subject="")
        if goal.tool and goal.tool not in self.topics:
            goal = replace(goal, writes=(), reasons=frozenset())
        facts = {name: value for name, value in goal.facts.items() if self.facts[name].asks in self.topics}
        return replace(goal, facts=facts)

    @property
    def uttered(self) -> str:
        """Text of all that the customer has revealed: the seat's own words."""
        return self.said

    def vocabulary(self) -> Vocabulary:
        """Return the vocabulary of the script's texts with `phrases`."""
        return Vocabulary({**self.phrases, **super().vocabulary().phrases})

    @cached_property
    def phrases(self) -> dict[str, str]:
        """Topics of further phrases that tell a goal from others.

        They are people, the hint at a forgotten number and, if a request lacks the usual words for it, what it begins
        with.
        """
        known, phrases = super().vocabulary(), dict[str, str]()
        for goal in self.record.goals:
            phrases |= {fold(name): name for name in STRANGERS.findall(goal.ask)}
            phrases |= {fold(text): goal.hint for text in (goal.hint, goal.hint.removeprefix("my ")) if text}
            if goal.tool and goal.tool not in known.read(goal.ask):
                phrases[fold(goal.ask.partition("{it}")[0])] = goal.tool
        return phrases


@dataclass
class PlayedSeat(Seat):
    """Seat that plays the customer: `check` finds the faults of a text, `hear` lets it take effect."""

    customer: PlayedCustomer
    leaving: str = ""
    """Reason why the script would leave now; "" if it would stay."""
    said: Mapping[str, Stance] = field(default_factory=dict)
    """Facts in the text that was checked last, and in the template then (`due`)."""
    due: Mapping[str, Stance] = field(default_factory=dict)

    def facts(self) -> dict[str, Any]:
        """Return what the seat sees: as a free seat, its open `wishes` in words, and what it knows of itself (`about`).

        `wish` is the one in hand, "" if none is open. `template` and `answer` are what the script would say; a person
        of its own mind has a role without them.
        """
        wishes = self.customer.wishes()
        wish = wishes[0] if wishes else ""
        return {**super().facts(), "wish": wish, "wishes": wishes, "about": self.customer.known()}

    def asked(self, template: str, proposal: Proposal | None, identity: dict[str, str]) -> None:
        """Request a statement as `Seat.asked` does. Only the seat's own words reveal its identity, or end the talk."""
        super().asked(template, proposal, identity)
        self.customer.identity = identity
        self.leaving, self.customer.gone = self.customer.gone, ""
        self.customer.unclear = self.customer.at not in self.customer.stated

    def expanded(self, text: str) -> str:
        """Return the text in one line; a short word becomes its statement, that of the due one the template."""
        text = one_line(text, LONGEST)
        return (self.customer.shorts() | {self.code: self.template}).get(text.lower(), text)

    def use(self, text: str, limit: int) -> list[str]:
        """Run up to `limit` calls of the customer's own tools and return their results. Here it has no tools: []."""
        return []

    def hear(self, text: str) -> tuple[str, dict[str, float]]:
        """Let the text that was checked last take effect. Returns its expanded words, and no fines."""
        text = self.expanded(text)
        self.customer.note({*self.said})
        unclear = self.customer.unclear
        self._take_effect(text, self.said, self.due)
        self.customer.unclear = unclear
        may_leave = bool(self.leaving) or len(self.customer.stated) == len(self.customer.record.goals)
        if LEAVING.search(text) and may_leave and not self.customer.pending:
            self.customer.gone = self.leaving or "left"
        self.template = ""
        return text, {}

    def check(self, text: str) -> Checked:
        """Return the faults of a text.

        Wrong are numbers, emails, postcodes and names that the customer does not have, requests that it does not want
        to make, and a yes or no against its interest. Its own data and later wishes are leaked before they are due.
        Answers that it owes are withheld if it gives none, and wishes if it does not speak of any, or leaves without a
        word of them.
        """
        text, proposed = self.expanded(text), self.proposal is not None
        said, due = (self.customer.read(each, proposed).facts for each in (text, self.template))
        self.said, self.due = said, due
        customer, person = self.customer, self.customer.record.person
        wrong, keys = self._made_up(text), customer.keys()
        if AGREEMENT in due and said.get(AGREEMENT, due[AGREEMENT]) != due[AGREEMENT]:
            wrong.append(text)
        wrong += sorted(tool for tool in customer.unwanted() - due.keys() if said.get(tool) == "inform")
        unsaid = [n for n in range(len(keys)) if n not in customer.stated]
        later = {key for n in unsaid if n != customer.at for key in keys[n]}
        own = {person.name, person.email, person.postcode, person.address}
        leaked = (own | later) & said.keys() - due.keys() - customer.topics
        withheld = []
        owes = self.code in ANSWERS or (self.code == "request" and customer.at in unsaid and not later & said.keys())
        if owes and due and not due.keys() & said.keys():
            withheld = [self.template]
        elif LEAVING.search(text) and not self.leaving and unsaid:
            withheld = customer.wishes()
        return Checked(wrong, sorted(leaked), withheld)

    def _made_up(self, text: str) -> list[str]:
        """Return the numbers, emails, postcodes and names in a text that are not the customer's."""
        customer, person = self.customer, self.customer.record.person
        own = " ".join([*customer.vocabulary().phrases.values(), *customer.numbers(), customer.number, person.email])
        found = [*NUMBER.findall(text), *EMAIL.findall(text), *POSTCODE.findall(text)]
        names = [name for name in NAME.findall(text) if name != person.name]
        return [each for each in found if each not in own] + names
