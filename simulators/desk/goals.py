"""A customer's goals: each is a write that the policy allows or forbids, facts to be told, or both."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from games.base import to_one_line

ACCOUNT = "account"
"""Subject of goals and writes that concern no order, booking or line."""
KINDS = ("order", "booking", "line")
"""Names of the arguments that hold a subject's number."""


@dataclass(frozen=True)
class Write:
    """A tool call that changes the database."""

    tool: str
    arguments: Mapping[str, str]

    @property
    def subject(self) -> str:
        """Number of the order, booking or line in the arguments, or `ACCOUNT` if there is none."""
        return next((self.arguments[kind] for kind in KINDS if self.arguments.get(kind)), ACCOUNT)

    def matches(self, other: Write) -> bool:
        """Return True if the other call has the same tool and, after `normalise`, the same arguments."""
        mine, others = ({k: normalise(v) for k, v in one.arguments.items()} for one in (self, other))
        return self.tool == other.tool and mine == others

    def __str__(self) -> str:
        return format_call(self.tool, self.arguments)


@dataclass(frozen=True)
class Goal:
    """A customer's request: a write, facts to be told, or both. If it has `reasons`, the agent must deny it."""

    ask: str
    """Text after "I would like to"; `{it}` stands for the order or booking."""
    subject: str = ACCOUNT
    """Number of the order, booking or line, or `ACCOUNT`."""
    hint: str = ""
    """Customer's words instead of a forgotten number, such as "my order with the kettle"."""
    writes: tuple[Write, ...] = ()
    """Acceptable alternative writes, the reference first; () if only facts are asked for."""
    needs: tuple[Write, ...] = ()
    """Writes that are all required, for a customer with a phone. Other faults are repaired on the phone."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """Facts that the customer asks for, with their true values."""
    reasons: frozenset[str] = frozenset()
    """Names of the rules that forbid the goal, each a true reason to deny it; empty if it must be granted."""
    mentions: tuple[str, ...] = ()
    """Names of products or places in the request, for lookups."""
    details: tuple[str, ...] = ()
    """Other relevant words of the request."""

    @property
    def tool(self) -> str:
        """Tool of the goal's write; "" if `writes` is empty."""
        return self.writes[0].tool if self.writes else ""


def normalise(value: object) -> object:
    """Normalise a value for comparison: round floats to cents (25.0 to the integer 25), fold texts to one line."""
    if isinstance(value, float):
        value = round(value, 2)
        return int(value) if value.is_integer() else value
    return to_one_line(value, 500).casefold() if isinstance(value, str) else value


def format_call(tool: str, arguments: Mapping[str, object]) -> str:
    """Format a tool call as `name(argument="value")`."""
    return f"{tool}({', '.join(f'{name}={json.dumps(value)}' for name, value in arguments.items())})"
