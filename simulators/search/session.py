"""A seat's use of the library: counted searches and page openings within a budget."""

from __future__ import annotations

from typing import NamedTuple

from games.base import to_one_line
from simulators.search.library import Library
from simulators.search.pages import highlight
from simulators.search.retrieval import Retriever

SNIPPET = 80
"""Characters of a page shown in a list of hits."""


class Budget(NamedTuple):
    """Limits of a seat's use of the library."""

    searches: int
    """Maximum number of searches."""
    opens: int
    """Maximum number of pages opened."""
    results: int
    """Maximum number of pages found by one search."""


class Session:
    """A seat's searches and page openings within its budget: `queries`, titles `found`, and texts `read` by title.

    `search` and `open` are tools for models; their ValueErrors are reported to the model.
    """

    def __init__(self, library: Library, budget: Budget, retriever: Retriever, shows_pages: bool) -> None:
        self.library, self.budget, self.retriever = library, budget, retriever
        self.shows_pages = shows_pages
        """True if a search shows full pages, so that none need be opened."""
        self.queries: list[str] = []
        self.found: dict[str, None] = {}
        """Titles shown, in order."""
        self.read: dict[str, str] = {}
        """Text shown of each page, by title."""
        self.opened = 0
        self.observations: list[str] = []
        """Texts returned by the tools."""

    @property
    def calls(self) -> int:
        """Number of successful searches and openings so far, each of which costs."""
        return len(self.queries) + self.opened

    @property
    def remaining_calls(self) -> dict[str, int]:
        """Remaining calls as {"searches": n, "opens": n}, without "opens" if searches show full pages."""
        left = {"searches": self.budget.searches - len(self.queries)}
        return left if self.shows_pages else {**left, "opens": self.budget.opens - self.opened}

    @property
    def texts(self) -> list[str]:
        """Texts of the pages read so far, one per page, in order of first reading."""
        return list(self.read.values())

    def search(self, query: str) -> str:
        """Find pages by words; shows their titles and how they begin.

        Full pages are shown instead if `shows_pages`. Counts the search. Raises ValueError for a bad query or without
        searches left.
        """
        if len(self.queries) >= self.budget.searches:
            raise ValueError("no searches are left")
        hits = self.library.index.find(query, self.budget.results, self.retriever)
        self.queries.append(" ".join(query.split()))
        titles = [self.library.titles[hit] for hit in hits]
        self.found |= dict.fromkeys(titles)
        return self._show("\n".join(self._format_entry(title, query) for title in titles) or "nothing")

    def open(self, title: str) -> str:
        """Read a page that a search has found.

        Counts the opening. Raises ValueError for any other title, or if no openings are left.
        """
        if self.opened >= self.budget.opens:
            raise ValueError("no pages may be opened any more")
        if title not in self.found:
            near = f", but {', '.join(list(self.found)[-3:])}" if self.found else ""
            raise ValueError(f"no search has found a page called {to_one_line(title, 60)!r}{near}")
        self.opened += 1
        self.read[title] = self.library.pages[title]
        return self._show(self.library.pages[title])

    def has_shown(self, text: str) -> bool:
        """Return True if a tool's result has contained this text."""
        return any(text in each for each in self.observations)

    def _show(self, text: str) -> str:
        self.observations.append(text)
        return text

    def _format_entry(self, title: str, query: str) -> str:
        text = self.library.pages[title]
        if self.shows_pages:
            text = highlight(text, query) if self.library.terse else text
            before = self.read.get(title, "")
            self.read[title] = text if text.startswith(before) else f"{before}\n{text}"
            return text
        return f"[{title}] {text if len(text) <= SNIPPET else text[:SNIPPET].rsplit(' ', 1)[0] + ' …'}"
