"""Parts of a policy: rules with predicates, the facts that may be told, and what happened at a desk."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from simulators.desk.goals import Write


@dataclass(frozen=True)
class Rule:
    """A rule of the policy: its name, which is also the reason to deny, its text, and the predicate."""

    name: str
    text: str
    phrases: tuple[str, ...] = ()
    """Phrases by which people give it as a reason, folded; any of them counts."""
    tools: tuple[str, ...] = ()
    holds: Callable[[Any, Mapping[str, str]], bool] = lambda world, arguments: True
    """From the world before a write by one of `tools`, and its arguments, to whether the rule is kept."""


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
    """A kind of fact that customers ask for."""

    asks: str
    """After "I would like to know"."""
    kind: Literal["amount", "code", "word", "date", "number"]
    words: tuple[str, ...]
    """One of these names it in plain text, folded."""
    values: tuple[str, ...] = ()
    """All that it can be, where it is a word."""


@dataclass(frozen=True)
class Consent:
    """A customer's yes, to one write."""

    tool: str
    subject: str
    write: Write | None = None
    """The very call; None where plain words named the tool and the subject alone."""

    def covers(self, write: Write) -> bool:
        """Return whether the yes was to this write."""
        exact = self.write is None or self.write.alike(write)
        return exact and (self.tool, self.subject) == (write.tool, write.subject)


@dataclass
class Session:
    """Events at the desk so far: who was verified, what was agreed to, done, looked up and broken."""

    verified: str = ""
    """The customer's id."""
    granted: Consent | None = None
    """The customer's yes to a write that is not done yet."""
    breaches: list[str] = field(default_factory=list)
    done: list[tuple[str, str]] = field(default_factory=list)
    """Tool and subject of each write."""
    looked: set[str] = field(default_factory=set)
    """Orders or bookings that were shown."""
