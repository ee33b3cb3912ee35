"""A customer's goals: a write that the policy allows or forbids, facts to be told, or both."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from games.base import to_one_line

ACCOUNT = "account"
"""Subject of a write without an order, booking or line."""
KINDS = ("order", "booking", "line")
"""Names of the arguments that hold a subject's number."""


@dataclass(frozen=True)
class Write:
    """Call of a tool that changes the database: the tool's name and its arguments."""

    tool: str
    arguments: Mapping[str, str]

    @property
    def subject(self) -> str:
        """Number of an order, booking or line in the call's arguments, or `ACCOUNT` if there is none."""
        return next((self.arguments[kind] for kind in KINDS if self.arguments.get(kind)), ACCOUNT)

    def matches(self, other: Write) -> bool:
        """Return True if the other call has the same tool and, in normal form (`normalise`), the same arguments."""
        mine, others = ({k: normalise(v) for k, v in one.arguments.items()} for one in (self, other))
        return self.tool == other.tool and mine == others

    def __str__(self) -> str:
        return format_call(self.tool, self.arguments)


@dataclass(frozen=True)
class Goal:
    """Request of a customer: a write, facts to be told, or both. If it has `reasons`, it must be denied."""

    ask: str
    """Text after "I would like to"; `{it}` stands for the order or booking."""
    subject: str = ACCOUNT
    """Number of the order or booking, or ACCOUNT."""
    hint: str = ""
    """Customer's words instead of a forgotten number, such as "my order with the kettle"."""
    writes: tuple[Write, ...] = ()
    """Acceptable writes, the reference first; () if the goal only asks for facts."""
    needs: tuple[Write, ...] = ()
    """Writes that together meet the goal, each of them needed. Faults that remain are the phone's."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """Facts that the customer asks for, with their true values."""
    reasons: frozenset[str] = frozenset()
    """Rules that forbid the goal, each a true reason to deny it; empty if it must be done."""
    mentions: tuple[str, ...] = ()
    """Names of products or places in the request, for lookups."""
    details: tuple[str, ...] = ()
    """Other relevant words of the request."""

    @property
    def tool(self) -> str:
        """Name of the tool that the request needs for its write; "" if it asks for facts only."""
        return self.writes[0].tool if self.writes else ""


def normalise(value: object) -> object:
    """Return a value's normal form: 25.0 as 25, other floats rounded to two places, texts case-folded in one line."""
    if isinstance(value, float):
        value = round(value, 2)
        return int(value) if value.is_integer() else value
    return to_one_line(value, 500).casefold() if isinstance(value, str) else value


def format_call(tool: str, arguments: Mapping[str, object]) -> str:
    """Format a tool call as `name(argument="value")`."""
    return f"{tool}({', '.join(f'{name}={json.dumps(value)}' for name, value in arguments.items())})"
