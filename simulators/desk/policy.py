"""Policy types: rules with predicates, facts, consent, and the session's state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from simulators.desk.goals import Write


@dataclass(frozen=True)
class Rule:
    """Rule of the policy: `name` (also a reason to deny), text for the agent, and the predicate `holds`."""

    name: str
    text: str
    phrases: tuple[str, ...] = ()
    """Folded phrases that state it as a reason in plain text."""
    tools: tuple[str, ...] = ()
    holds: Callable[[Any, Mapping[str, str]], bool] = lambda world, arguments: True
    """Takes the world before a write by one of `tools` and its arguments; True if the rule is kept."""


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
    """Folded words that name it in plain text."""
    values: tuple[str, ...] = ()
    """All possible values of a word."""


@dataclass(frozen=True)
class Consent:
    """Customer's yes to one write, given by its tool and its subject (order, booking or account)."""

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
    """State of a conversation as the tools see it: the verified customer, consent, breaches, writes and lookups."""

    verified: str = ""
    """The verified customer's id; "" before."""
    consent: Consent | None = None
    """The customer's consent to a pending write."""
    breaches: list[str] = field(default_factory=list)
    """Names of broken rules, one entry per breach."""
    done: list[tuple[str, str]] = field(default_factory=list)
    """Tool and subject of each write."""
    looked_up: set[str] = field(default_factory=set)
    """Orders or bookings that were shown."""
