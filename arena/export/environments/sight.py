"""What a seat sees, as plain text for environments without a role."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agents.facts import literal
from games.contracts import Message, View

MOST_ACTS = 60
"""Number of legal acts up to which they are listed."""


class Sight:
    """Memory of the facts that a seat was shown in a match, so that only new and changed ones are shown again."""

    def __init__(self) -> None:
        self.begun = False
        """Whether the seat and the rules were shown."""
        self._shown: dict[str, str] = {}

    def lines(self, view: View) -> list[str]:
        """Return the lines before a view's messages: at first the seat and the rules, then new and changed facts."""
        lines = [] if self.begun else [f"You are {view.seat}. {view.rules}"]
        facts = {f"public.{name}": _value(value) for name, value in view.public.items()}
        facts |= {f"private.{name}": _value(value) for name, value in view.private.items()}
        lines += [f"{name} ={text}" for name, text in facts.items() if self._shown.get(name) != text]
        self.begun = True
        self._shown |= facts
        return lines


def said(message: Message) -> str:
    """Return a message as `sender: text`, indented."""
    return indented(f"{message.sender}: {message.text}")


def indented(text: str) -> str:
    """Return the text with all lines but the first indented, so that none can pose as another message."""
    return "\n  ".join(text.splitlines())


def listed(legal: Sequence[str] | None) -> list[str]:
    """Return the line of the legal acts; no line if they are unknown or too many."""
    return [] if legal is None or len(legal) > MOST_ACTS else [f"Legal acts: {', '.join(legal)}"]


def _value(value: Any) -> str:
    """Return a fact's value as text: a literal after a blank, or several lines, indented, from the next line on."""
    several = isinstance(value, str) and len(value.splitlines()) > 1
    return indented(f"\n{value}") if several else f" {literal(value)}"
