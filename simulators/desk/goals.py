"""Goals of a customer: a write that policy allows or forbids, facts that it wants to hear, or both."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from games.base import one_line

ACCOUNT = "account"
"""Subject of a write that is about no order or booking."""


@dataclass(frozen=True)
class Write:
    """A call of a write tool."""

    tool: str
    arguments: Mapping[str, str]

    @property
    def subject(self) -> str:
        """The order or booking that it is about: always its first argument, where it has such a one."""
        return self.arguments.get("order") or self.arguments.get("booking") or ACCOUNT

    def alike(self, other: Write) -> bool:
        """Return whether the other means the same."""
        mine, others = ({k: canonical(v) for k, v in one.arguments.items()} for one in (self, other))
        return self.tool == other.tool and mine == others

    def __str__(self) -> str:
        return written(self.tool, self.arguments)


@dataclass(frozen=True)
class Goal:
    """One request. It is to be denied exactly where each of the writes that would do breaks a rule."""

    ask: str
    """After "I would like to"; `{it}` stands for the order or booking."""
    subject: str = ACCOUNT
    """Its number, or ACCOUNT."""
    hint: str = ""
    """Words of the customer instead of a number that it forgot, such as "my order with the kettle"."""
    writes: tuple[Write, ...] = ()
    """Those that would do, the first the one to replay; none where it only asks for facts."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """Facts that it wants to hear, with the true values."""
    reasons: frozenset[str] = frozenset()
    """Rules of the policy that forbid it: any of them is a true reason to deny it. None: it is to be done."""
    mentions: tuple[str, ...] = ()
    """Names of products or places in it, for those who look things up."""
    details: tuple[str, ...] = ()
    """Other words in it that matter."""

    @property
    def tool(self) -> str:
        """The write tool that it needs, "" where none."""
        return self.writes[0].tool if self.writes else ""


def canonical(value: object) -> object:
    """A value such that what means the same is the same: 25 and 25.0, texts by their letters alone."""
    if isinstance(value, float):
        value = round(value, 2)
        return int(value) if value.is_integer() else value
    return one_line(value, 500).casefold() if isinstance(value, str) else value


def written(tool: str, arguments: Mapping[str, object]) -> str:
    """A tool call as it is written, `name(argument="value")`."""
    return f"{tool}({', '.join(f'{name}={json.dumps(value)}' for name, value in arguments.items())})"
