"""Search models' texts with users' regular expressions, with a time limit.

Python's `re` can take years on forty letters, such as (a|aa)+$ on aaa…b. `regex` has the same syntax and a timeout.
"""

from typing import Any

import regex

from agents.errors import PatternError

SEARCH_SECONDS = 2.0
"""Time limit of one search; an ordinary search takes microseconds."""


class Pattern:
    """A compiled regular expression whose searches raise PatternError after `SEARCH_SECONDS`."""

    def __init__(self, text: str, lines: bool = False) -> None:
        """Compile the expression. Raises ValueError if it is invalid. With `lines`, ^ and $ match at every line."""
        self.text = text
        try:
            self._compiled = regex.compile(text, regex.MULTILINE if lines else 0)
        except regex.error as error:
            raise ValueError(f"{text!r} is no regular expression: {error}") from None

    def first(self, text: str) -> str | None:
        """Return the first group of the first match in `text`, or the full match if the pattern has no groups.

        Returns None without a match. Raises PatternError after `SEARCH_SECONDS`.
        """
        match = self._search(self._compiled.search, text)
        return None if match is None else match[1 if self._compiled.groups else 0] or ""

    def last(self, text: str) -> str | None:
        """Return the first group of the last match in `text`, or the full match if the pattern has no groups.

        Returns None without a match. Raises PatternError after `SEARCH_SECONDS`.
        """
        matches = self._search(self._compiled.findall, text)
        if not matches:
            return None
        return matches[-1] if self._compiled.groups < 2 else matches[-1][0]  # type: ignore[no-any-return]

    def ends(self, text: str) -> list[int]:
        """Return the end of each match in `text`, in order. Raises PatternError after `SEARCH_SECONDS`."""
        ends: list[int] = self._search(
            lambda text, timeout: [match.end() for match in self._compiled.finditer(text, timeout=timeout)], text
        )
        return ends

    def __contains__(self, text: str) -> bool:
        """Return True if the text has a match. Raises PatternError after `SEARCH_SECONDS`."""
        return self.first(text) is not None

    def _search(self, search: Any, text: str) -> Any:
        try:
            return search(text, timeout=SEARCH_SECONDS)
        except TimeoutError:
            raise PatternError(
                f"the regular expression {self.text!r} takes over {SEARCH_SECONDS:g} s on a text of {len(text):,} "
                "characters: write it so that a text has one way to match, without (a+)+ or (a|aa)*"
            ) from None
