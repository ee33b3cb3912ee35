"""Types for a domain's policy (the rules of its service): rules, facts, consent, and the session's state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from simulators.desk.goals import Write


@dataclass(frozen=True)
class Rule:
    """Rule of the policy. Its `name` is also a reason to deny; `holds` checks a write."""

    name: str
    text: str
    phrases: tuple[str, ...] = ()
    """Normalised phrases (`fold`) that state the rule as a reason in plain text."""
    tools: tuple[str, ...] = ()
    holds: Callable[[Any, Mapping[str, str]], bool] = lambda world, arguments: True
    """Returns True if a write by one of `tools` keeps the rule, given the world before it and its arguments."""


IDENTITY = Rule(
    "identity", "Verify who the customer is (find_customer) before you read, change, tell or deny anything."
)
CONFIRMATION = Rule(
    "confirmation", "Before each write say what you will do and get the customer's yes to exactly that."
)
PRIVACY = Rule(
    "privacy",
    "Nothing is told about other people.",
    ("privacy", "private", "other people", "another person", "someone else", "other customers", "another customer"),
)


class Fact(NamedTuple):
    """Kind of information that customers ask for, such as the refund of an order."""

    asks: str
    """Text after "I would like to know"."""
    kind: Literal["amount", "code", "word", "date", "number"]
    words: tuple[str, ...]
    """Normalised words that name the fact in plain text."""
    values: tuple[str, ...] = ()
    """All possible values of a fact of kind "word"."""


@dataclass(frozen=True)
class Consent:
    """The customer's yes to one write, identified by its tool and subject (an order, booking, line or `ACCOUNT`)."""

    tool: str
    subject: str
    write: Write | None = None
    """The exact call; None if plain text named only the tool and the subject."""

    def covers(self, write: Write) -> bool:
        """Return True if the write has this tool and subject and, if the consent has an exact call, equals it."""
        exact = self.write is None or self.write.matches(write)
        return exact and (self.tool, self.subject) == (write.tool, write.subject)


@dataclass
class Session:
    """State of a conversation for the tools: the verified customer, consent, breaches, writes and lookups."""

    verified_customer: str = ""
    """The verified customer's id; "" before verification."""
    consent: Consent | None = None
    """The customer's consent to a pending write."""
    breaches: list[str] = field(default_factory=list)
    """Names of broken rules, one entry per breach."""
    done: list[tuple[str, str]] = field(default_factory=list)
    """Tool and subject of each write."""
    looked_up: set[str] = field(default_factory=set)
    """Numbers of the orders, bookings or lines that the agent has looked up."""
