"""Observations as plain text, for environments of other libraries, which have no role to render them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agents.facts import format_literal
from games.contracts import Message, View

MOST_ACTS = 60
"""Maximum number of legal acts to list. If there are more, none is listed."""


class FactMemory:
    """Memory of the facts that a seat has been shown in a match, so that only new and changed ones are shown."""

    def __init__(self) -> None:
        self.has_shown_rules = False
        self._facts: dict[str, str] = {}

    def lines(self, view: View) -> list[str]:
        """Return the lines above a view's messages: the seat and the rules the first time, and new or changed facts."""
        lines = [] if self.has_shown_rules else [f"You are {view.seat}. {view.rules}"]
        facts = {f"public.{name}": _format_value(value) for name, value in view.public.items()}
        facts |= {f"private.{name}": _format_value(value) for name, value in view.private.items()}
        lines += [f"{name} ={text}" for name, text in facts.items() if self._facts.get(name) != text]
        self.has_shown_rules = True
        self._facts |= facts
        return lines


def format_message(message: Message) -> str:
    """Return a message as `sender: text`, with further lines indented."""
    return indent(f"{message.sender}: {message.text}")


def indent(text: str) -> str:
    """Indent all lines of a text but the first, so that none looks like another message."""
    return "\n  ".join(text.splitlines())


def format_legal_acts(legal: Sequence[str] | None) -> list[str]:
    """Return a line that lists the legal acts, or no line if they are unknown or more than `MOST_ACTS`."""
    return [] if legal is None or len(legal) > MOST_ACTS else [f"Legal acts: {', '.join(legal)}"]


def _format_value(value: Any) -> str:
    """Format a fact's value as a literal on the same line or, for a text of several lines, as an indented block."""
    is_block = isinstance(value, str) and len(value.splitlines()) > 1
    return indent(f"\n{value}") if is_block else f" {format_literal(value)}"
