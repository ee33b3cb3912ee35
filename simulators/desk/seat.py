"""The customer's seat: what it is due to say, who words it, and what its words do.

With person "render" a text that says anything but what is due is asked for once more, then the template stands in;
each costs the seat 0.1 (part `reading`). With "free" the script still settles what the customer wants next, and the
seat says what it likes: it agrees, and it has told who it is, only if that can be read from its words; a yes with a
condition or a doubt is none (`simulators.agreement`). It shares the agent's `outcome` and pays 0.1 where it answers a
proposal against its wish or makes up a number or an email (`wrong`), for each of its own data told unasked (`secret`),
and where nothing of what is due can be read (`unread`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from games.base import one_line
from simulators.desk.customer import AGREEMENT, Customer
from simulators.desk.speech import LONGEST, Proposal
from simulators.extractor import Stance
from simulators.person import Renderings, Speech

FINE = 0.1
EMAIL = re.compile(r"[\w.+-]+@[\w.-]+\w")
NUMBER = re.compile(r"(?<![\w.-])\d{5}(?![\w-])")
CODES: Mapping[str, str] = {
    "confirm": "yes", "deny": "no", "name": "identity", "email": "identity", "postcode": "identity",
    "number": "number", "account": "number", "end": "bye",
}  # fmt: skip
"""From an act's topic or kind to the short word for it; any other is a request."""


@dataclass
class Seat:
    """The seat that says a customer's words: checks them and lets them take effect."""

    customer: Customer
    person: Speech
    template: str = ""
    """Words that are due, as the script would say them; "" when nothing is."""
    proposal: Proposal | None = None
    """Proposal that the customer was just asked to agree to."""
    renderings: Renderings = field(default_factory=Renderings)
    counts: dict[str, int] = field(default_factory=lambda: {"wrong": 0, "secret": 0, "unread": 0})
    """Counts of a freely played seat, by kind of fine."""

    def facts(self) -> dict[str, Any]:
        """Return what the seat sees: what it has to say; freely played, also what it knows and its short words."""
        due = {"say": [str(act) for act in self.customer.acts], "template": self.template}
        if self.person == "render":
            return due
        code = ""
        if self.template:
            kind, topic = self.customer.acts[0]
            code = CODES.get(topic) or CODES.get(kind) or "request"
        return {**due, "answer": code, "record": self.customer.shorts()}

    def asked(self, template: str, proposal: Proposal | None, identity: dict[str, str]) -> None:
        """It is its turn: the script would say this; `identity` is what it had said of itself before."""
        self.template, self.proposal = template, proposal
        if self.person == "free":
            self.customer.identity = identity

    def hear(self, text: str) -> tuple[str | None, dict[str, float]]:
        """Return what of a text reaches the agent, None: it is asked for again; and its cost to the seat, by part."""
        text, proposed = one_line(text, LONGEST), self.proposal is not None
        if self.person == "render":
            heard = self.renderings.settled(text, self.template, lambda said: self.customer.read(said, proposed))
            fines = {"reading": -FINE} if heard != text else {}
        else:
            heard = text = self.customer.shorts().get(text.lower(), text)
            said, due = (self.customer.read(each, proposed).facts for each in (text, self.template))
            fines = {part: -FINE * count for part, count in self._counted(text, said, due).items() if count}
            self._take_effect(text, said, due)
        if heard is not None:
            self.template = ""
        return heard, fines

    def figures(self) -> dict[str, float | bool | str]:
        """Return how well its texts were read."""
        if self.person == "render":
            return self.renderings.figures()
        return {f"told_{name}": count for name, count in self.counts.items()} if self.person == "free" else {}

    def _counted(self, text: str, said: Mapping[str, Stance], due: Mapping[str, Stance]) -> dict[str, int]:
        """Count what the seat has to pay for, and return the counts by part."""
        customer, person = self.customer, self.customer.record.person
        own = {*customer.numbers(), customer.number, person.email}
        made_up = {*NUMBER.findall(text), *EMAIL.findall(text)} - own
        against = AGREEMENT in due and said.get(AGREEMENT, due[AGREEMENT]) != due[AGREEMENT]
        counts = {
            "wrong": len(made_up) + against,
            "secret": len({person.name, person.email, person.postcode, person.address} & said.keys() - due.keys()),
            "unread": int(bool(due) and not due.keys() & said.keys()),
        }
        for part, count in counts.items():
            self.counts[part] += count
        return counts

    def _take_effect(self, text: str, said: Mapping[str, Stance], due: Mapping[str, Stance]) -> None:
        """Its words are what counts, not what the script would have said."""
        customer = self.customer
        customer.said += f" {text}"
        if said.keys() >= {*customer.known().values()}:
            customer.identity = customer.known()
        if CODES.get(customer.acts[0].kind, "request") == "request":
            customer.unclear = bool(due) and not due.keys() & said.keys()
        if self.proposal is not None and not customer.gone:
            yes = said.get(AGREEMENT) == "inform"
            customer.session.granted = customer.consent(self.proposal) if yes else None
