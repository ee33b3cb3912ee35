"""Split long reasoning traces into units: turns of a chat, each an attempt with its own answer.

Source: MinD (multi-turn decomposition, Zeng et al. 2025), in which a large model splits the traces.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from agents.chat_streams import ChatRowError
from agents.errors import PatternError
from agents.patterns import Pattern
from arena.data.rows import DataSet, get_chat

MAX_UNITS = 1000
"""Maximum number of units of a reply."""


class UnitSplitter:
    """Splitter of the replies in a chat into units. Each unit becomes a reply, with a user message between units."""

    def __init__(self, end: str, between: str) -> None:
        """Set the regular expression after whose matches replies are split, and the text of the user messages.

        Raises ValueError if the expression is invalid.
        """
        self._ends, self._between = Pattern(end), {"role": "user", "content": between}

    def split(self, messages: Any, opening: int) -> tuple[list[Any], int]:
        """Split each reply into its units. Returns the new messages, and `opening` unchanged.

        Replies with tool calls and the first `opening` messages are not split. Raises ChatRowError for a reply of more
        than `MAX_UNITS` units, or one that takes too long to search.
        """
        if not isinstance(messages, list):
            return messages, opening
        return [
            *messages[:opening],
            *(part for message in messages[opening:] for part in self._split_message(message)),
        ], opening

    def check(self, rows: DataSet, number: int) -> None:
        """Check that a row can be split. Raises ConfigError, with file and row, if it cannot."""
        try:
            self.split(*get_chat(rows[number]))
        except ChatRowError as error:
            raise rows.make_error(number, str(error)) from None

    def _split_message(self, message: Any) -> Sequence[Any]:
        is_reply = isinstance(message, dict) and message.get("role") == "assistant" and not message.get("tool_calls")
        if not is_reply or not isinstance(text := message.get("content"), str):
            return [message]
        try:
            cuts = [0, *self._ends.ends(text), len(text)]
        except PatternError as error:
            raise ChatRowError(f"messages: {error}") from None
        if len(cuts) > MAX_UNITS:
            raise ChatRowError(f"messages: a reply has over {MAX_UNITS:,} units: let units.end match less often")
        units = [unit for a, b in itertools.pairwise(cuts) if (unit := text[a:b].strip())]
        if len(units) < 2:
            return [message]
        turns = [{**message, "content": unit} for unit in units]
        return [turns[0], *(part for turn in turns[1:] for part in (self._between, turn))]
