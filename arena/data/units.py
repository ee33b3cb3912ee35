"""Units of a reasoning trace: one long reply split into the turns of a chat, each an attempt with an answer of its own.

Source: MinD (multi-turn decomposition, Zeng et al. 2025), where a large model splits the traces.
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
    """Splitter of the assistant's texts in a chat into units, with a message of the user between two of them."""

    def __init__(self, end: str, between: str) -> None:
        """Split after each match of the regular expression `end`. Raises ValueError if it is invalid."""
        self._ends, self._between = Pattern(end), {"role": "user", "content": between}

    def split(self, messages: Any, opening: int) -> tuple[list[Any], int]:
        """Split each reply into its units. Replies with tool calls and the opening are not split.

        Raises ChatRowError for a text with over `MAX_UNITS` units, or one that takes too long to search.
        """
        if not isinstance(messages, list):
            return messages, opening
        return [
            *messages[:opening],
            *(part for one in messages[opening:] for part in self._split_message(one)),
        ], opening

    def check(self, rows: DataSet, number: int) -> None:
        """Split a row of chats. Raises ConfigError, with file and row, if that is impossible."""
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
            raise ChatRowError(f"messages: a reply has over {MAX_UNITS:,} units: end them at longer words (units.end)")
        units = [unit for a, b in itertools.pairwise(cuts) if (unit := text[a:b].strip())]
        if len(units) < 2:
            return [message]
        turns = [{**message, "content": unit} for unit in units]
        return [turns[0], *(part for turn in turns[1:] for part in (self._between, turn))]
