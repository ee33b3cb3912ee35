"""The customer's seat: its due statements, their wording, and the effect of its words.

With person "render", the seat words each due statement. If its text says anything else, another text is requested once,
and then the template replaces it; each costs the seat 0.1 (part `reading`). With "free", the script still chooses the
customer's next request, but the seat may say anything. Consent and identity count only if they can be parsed from its
words; a conditional or doubtful yes is no consent (`simulators.agreement`). The seat shares the agent's `outcome`. It
pays 0.1 for each answer against the customer's interest or invented number or email (`wrong`), for each unasked
statement of its own data (`secret`), and for each text without anything due (`unread`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from games.base import to_one_line
from simulators.desk.customer import AGREEMENT, Customer
from simulators.desk.speech import MAX_CHARACTERS, Proposal
from simulators.extractor import Stance
from simulators.person import Renderings, Speech

FINE = 0.1
EMAIL = re.compile(r"[\w.+-]+@[\w.-]+\w")
NUMBER = re.compile(r"(?<![\w.-])\d{5}(?![\w-])")
CODES: Mapping[str, str] = {
    "confirm": "yes", "deny": "no", "name": "identity", "email": "identity", "postcode": "identity",
    "number": "number", "account": "number", "end": "bye",
}  # fmt: skip
"""Code of a statement by topic or kind of its first act; any other statement is a request."""


@dataclass
class Seat:
    """Seat that words the customer's statements: `request` asks for one, `hear` checks and fines the text."""

    customer: Customer
    person: Speech
    template: str = ""
    """The script's text of the due statement; "" if none is due."""
    proposal: Proposal | None = None
    """Proposal to which the customer must answer."""
    renderings: Renderings = field(default_factory=Renderings)
    counts: dict[str, int] = field(default_factory=lambda: {"wrong": 0, "secret": 0, "unread": 0})
    """Number of fines of a free seat, by kind."""

    def facts(self) -> dict[str, Any]:
        """Return the seat's facts: `say` (the due speech acts) and `template`.

        A free seat also sees `answer`, the code of the due statement, and `record`, its possible statements by code.
        """
        due = {"say": [str(act) for act in self.customer.acts], "template": self.template}
        if self.person == "render":
            return due
        return {**due, "answer": self.code if self.template else "", "record": self.customer.list_statements()}

    @property
    def code(self) -> str:
        """Code of the due statement."""
        kind, topic = self.customer.acts[0]
        return CODES.get(topic) or CODES.get(kind) or "request"

    def request(self, template: str, proposal: Proposal | None, identity: dict[str, str]) -> None:
        """Request a statement from the seat: the script's `template`, and an answer to `proposal` if there is one.

        With a free seat, the customer's stated identity is reset to `identity`, because only the seat's words state it.
        """
        self.template, self.proposal = template, proposal
        if self.person == "free":
            self.customer.identity = identity

    def hear(self, text: str) -> tuple[str | None, dict[str, float]]:
        """Check a text of the seat. Returns (text for the agent or None to request another, negative fines by part).

        Person "render": after a wrong text another is requested once, then the template replaces it; each costs part
        `reading`. Free seat: codes are expanded, and the text always passes and sets identity and consent; the fines
        are parts `wrong`, `secret` and `unread`.
        """
        text, has_proposal = to_one_line(text, MAX_CHARACTERS), self.proposal is not None
        if self.person == "render":
            utterance = self.renderings.choose_text(
                text, self.template, lambda stated: self.customer.read(stated, has_proposal)
            )
            fines = {"reading": -FINE} if utterance != text else {}
        else:
            utterance = text = self.customer.list_statements().get(text.lower(), text)
            stated, due = (self.customer.read(each, has_proposal).facts for each in (text, self.template))
            fines = {part: -FINE * count for part, count in self._count_faults(text, stated, due).items() if count}
            self._take_effect(text, stated, due)
        if utterance is not None:
            self.template = ""
        return utterance, fines

    def figures(self) -> dict[str, float | bool | str]:
        """Return counts of the seat's texts for the report.

        They are the results of checks for "render"; the numbers of fines `told_wrong`, `told_secret` and `told_unread`
        for "free"; and {} otherwise.
        """
        if self.person == "render":
            return self.renderings.figures()
        return {f"told_{name}": count for name, count in self.counts.items()} if self.person == "free" else {}

    def _count_faults(self, text: str, stated: Mapping[str, Stance], due: Mapping[str, Stance]) -> dict[str, int]:
        """Count a text's faults by kind, given the facts in the text (`stated`) and in the template (`due`)."""
        customer, person = self.customer, self.customer.record.person
        known = {*customer.list_numbers(), customer.number, person.email}
        made_up = {*NUMBER.findall(text), *EMAIL.findall(text)} - known
        is_against_interest = AGREEMENT in due and stated.get(AGREEMENT, due[AGREEMENT]) != due[AGREEMENT]
        counts = {
            "wrong": len(made_up) + is_against_interest,
            "secret": len({person.name, person.email, person.postcode, person.address} & stated.keys() - due.keys()),
            "unread": int(bool(due) and not due.keys() & stated.keys()),
        }
        for part, count in counts.items():
            self.counts[part] += count
        return counts

    def _take_effect(self, text: str, stated: Mapping[str, Stance], due: Mapping[str, Stance]) -> None:
        """Set identity, `unclear` and consent from a seat's own words instead of the script."""
        customer = self.customer
        customer.own_words += f" {text}"
        if stated.keys() >= {*customer.choose_identity().values()}:
            customer.identity = customer.choose_identity()
        if CODES.get(customer.acts[0].kind, "request") == "request":
            customer.unclear = bool(due) and not due.keys() & stated.keys()
        if self.proposal is not None and not customer.departure:
            yes = stated.get(AGREEMENT) == "inform"
            customer.session.consent = customer.make_consent(self.proposal) if yes else None
