"""Base class of the search games: options, questions, and a seat's tool calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from games.base import choice, flag, number, number_range, to_one_line, whole_number
from games.contracts import TOOL
from simulators.base import DRAWS, Simulator, SimulatorFault, is_held_out
from simulators.embedding import EMBEDDINGS, Embedding
from simulators.search.acts import Act, make_tools, perform, write_answer, write_call
from simulators.search.library import MAX_CACHED, SMALL, Key, Library, load_library
from simulators.search.pages import read_facts
from simulators.search.programs import parse
from simulators.search.questions import MAX_HOPS, NONE, SORTS, Question, Sort, draw_question
from simulators.search.retrieval import RETRIEVERS, Retriever
from simulators.search.session import Budget, Session
from simulators.search.world import MAX_THINGS, MIN_THINGS
from simulators.tools import describe

SPARE_ACTS = 4
"""Number of acts beyond the budget of calls."""
LISTED = 12
"""Maximum number of names in listed acts."""


class LibraryGame(Simulator):
    """Base class of the search games: a library of pages, questions about them, and a budget of tool calls.

    Options in addition to Simulator's:
    pages: number of generated pages (20 to 100,000), or a file of pages and questions (`simulators.search.corpus`).
    edition: seed of the generated world. worlds: each match draws one of this many editions, from `edition` on.
    retriever: "bm25", "dense" or "hybrid". embedding: "hashed" or "minilm", for the latter two retrievers.
    sorts: one or more of "chain", "compare", "count", "unanswerable". hops: number of facts that an answer combines, or
    its range [low, high], at most 4.
    backwards: whether questions also go from a value to the things that have it (the book whose author is X).
    searches, opens: a seat's maximum calls of each tool. results: maximum number of pages per search.
    show: "titles" (searches show titles and how pages begin; `open` shows a page) or "pages" (searches show pages).
    cost: price of each call. terse: names, pages and acts in as few tokens as possible, for tiny models. Searches then
    show pages, reduced to the facts whose relation letters the query contains, if any.
    """

    whole_acts = True
    SORTS: ClassVar[tuple[str, ...]] = ("chain",)
    """Default of the option `sorts`."""

    def __init__(
        self,
        *,
        pages: int | str = 1000,
        edition: int = 0,
        worlds: int = 1,
        retriever: Retriever = "bm25",
        embedding: Embedding = "hashed",
        sorts: Sequence[str] | str | None = None,
        hops: int | Sequence[int] = (1, 3),
        backwards: bool = True,
        searches: int = 8,
        opens: int = 12,
        results: int | None = None,
        show: str | None = None,
        cost: float = 0.0,
        terse: bool = False,
        penalty: float = 0.1,
        **options: Any,
    ) -> None:
        self.terse = flag("terse", terse)
        source = pages if isinstance(pages, str) else whole_number("pages", pages, MIN_THINGS, MAX_THINGS)
        if isinstance(source, str) and self.terse:
            raise ValueError("terse must be false if pages is a file")
        choice("retriever", retriever, *RETRIEVERS)
        choice("embedding", embedding, *EMBEDDINGS)
        self.retriever = retriever
        self.sorts = _validate_sorts(self.SORTS if sorts is None else sorts)
        self.hops = number_range("hops", hops, 1, MAX_HOPS)
        self.backwards = flag("backwards", backwards)
        self.budget = _make_budget(searches, opens, results if results is not None else 1 if self.terse else 5)
        self.shows_pages = _shows_pages(show, self.terse)
        self.cost = number("cost", cost, below=1.0 + 1e-9)
        first = whole_number("edition", edition, 0)
        self.worlds = whole_number("worlds", worlds, 1, MAX_CACHED)
        if self.worlds > 1 and (isinstance(source, str) or source > SMALL):
            raise ValueError(f"worlds must be 1 if pages is a file or a number over {SMALL:,}")
        self.key = Key(source, first, self.terse, embedding)
        self.library: Library = load_library(self.key)
        """Pages and index; shared by all matches of the process."""
        super().__init__(penalty=penalty, talk=False, **options)
        self.library_key = self.key
        self._check_split()

    # The deal.

    def _check_split(self) -> None:
        """Raise ValueError if a file has no question of the split."""
        questions = self.library.questions
        if questions and not any(map(self.is_in_split, questions)):
            raise ValueError(f"pages: no question of the file is in the split {self.split}: add more, or use all")

    def choose_library(self, rng: np.random.Generator) -> None:
        """Draw one of the `worlds` editions for this match and set `library` to its pages and index."""
        self.library_key = self.key._replace(edition=self.key.edition + int(rng.integers(self.worlds)))
        self.library = load_library(self.library_key)

    def draw_question(self, rng: np.random.Generator) -> Question:
        """Draw a question of the split from the match's library. Raises SimulatorFault after 10,000 failures."""
        for _ in range(DRAWS):
            question = self._draw_any_question(rng)
            if self.is_in_split(question):
                return question
        raise SimulatorFault(f"none of {DRAWS:,} questions is in the split {self.split}")

    def _draw_any_question(self, rng: np.random.Generator) -> Question:
        if self.library.world is None:
            return self.library.questions[int(rng.integers(len(self.library.questions)))]
        return draw_question(self.library.world, rng, self.sorts, self.hops, self.backwards)

    def is_in_split(self, question: Question) -> bool:
        """Return True if a question is in the split, by a hash of the thing it starts from, or else of its text."""
        if self.split == "all":
            return True
        about = question.program.chains[0].start if question.program else question.text
        return is_held_out(f"search:{self.library_key.edition}:{about}") == (self.split == "test")

    def is_findable(self, question: Question) -> bool:
        """Return True if searching for each evidence page's title finds it, all within a seat's budget."""
        pages, titles = question.evidence, self.library.titles
        if len(pages) > (self.budget.searches if self.shows_pages else min(self.budget.searches, self.budget.opens)):
            return False
        found = (self.library.index.find(page, self.budget.results, self.retriever) for page in sorted(pages))
        return all(page in [titles[hit] for hit in hits] for page, hits in zip(sorted(pages), found, strict=True))

    def make_session(self) -> Session:
        """Return a new session, in which a seat searches and reads within its budget."""
        return Session(self.library, self.budget, self.retriever, self.shows_pages)

    # Turns.

    @property
    def max_acts(self) -> int:
        """Maximum number of a seat's acts: its budget of calls and 4 more, because failed calls use none of it."""
        return self.budget.searches + self.budget.opens + SPARE_ACTS

    def describe_tools(self) -> str:
        """Return the rules' description of the tools, one per line, or a terse one."""
        if self.terse:
            return "?words searches, with a relation's letter for that fact alone"
        return describe(make_tools(self.make_session()))

    def call(self, seat: str, act: Act, session: Session) -> None:
        """Run the tool call of an act in the seat's session and tell the seat the result.

        A successful call costs the seat `cost`, as the reward part "cost"; a failed one is free.
        """
        before = session.calls
        self.tell(perform(act, session), seat, sender=TOOL)
        if self.cost and session.calls > before:
            self.pay(seat, "cost", -self.cost)

    def list_calls(self, session: Session, names: Sequence[str]) -> list[str]:
        """List useful calls within the budget, as acts: searches for these names, openings of found unread pages."""
        calls = []
        if session.remaining_calls["searches"] > 0:
            calls += [write_call("search", name, self.terse) for name in names]
        if session.remaining_calls.get("opens", 0) > 0:
            unread = [title for title in session.found if title not in session.read][-LISTED:]
            calls += [write_call("open", title, self.terse) for title in unread]
        return calls

    def list_answers(self, names: Sequence[str]) -> list[str]:
        """List likely answers, as acts: these names, "1", "2" and "none"."""
        return [write_answer(text, self.terse) for text in (*names, "1", "2", NONE)]

    def list_candidates(self) -> tuple[str, ...]:
        """Return the random player's possible answers: those of a corpus, or all titles, 1 to 9 and "none"."""
        answers = tuple(dict.fromkeys(question.answer for question in self.library.questions))
        return answers or (*self.library.titles, *"123456789", NONE)

    def list_names_read(self, session: Session, question: str) -> list[str]:
        """Return the last 12 names that a seat has seen: in the question, among search results or on pages read."""
        world = self.library.world
        names = self.library.find_titles(question)
        if world is not None:
            named = (value for text in session.texts for _, _, value in read_facts(text) if world.kind(value))
            names = (*names, *session.found, *named)
        return list(dict.fromkeys([*names, *session.found]))[-LISTED:]


def restore_question(record: dict[str, Any]) -> Question:
    """Rebuild a question from its dict (`as_record`)."""
    program = record.get("program", "")
    fields = {name: record[name] for name in ("text", "sort", "hops")}
    return Question(
        **fields,
        answers=tuple(record["answers"]),
        evidence=frozenset(record["evidence"]),
        program=parse(program) if program else None,
    )


def as_record(question: Question) -> dict[str, Any]:
    """Return the question as a JSON-able dict (text, sort, hops, answers, evidence, program), for reset options."""
    return {
        **{name: getattr(question, name) for name in ("text", "sort", "hops")},
        "answers": list(question.answers),
        "evidence": sorted(question.evidence),
        "program": str(question.program) if question.program else "",
    }


def _make_budget(searches: int, opens: int, results: int) -> Budget:
    return Budget(
        whole_number("searches", searches, 0, 100),
        whole_number("opens", opens, 0, 100),
        whole_number("results", results, 1, 20),
    )


def _shows_pages(show: str | None, terse: bool) -> bool:
    """Return True if searches show full pages: as `show` says, by default if terse. Raises ValueError if invalid."""
    if show is None:
        return terse
    shows_pages = choice("show", show, "titles", "pages") == "pages"
    if terse and not shows_pages:
        raise ValueError("show must be pages if terse is true")
    return shows_pages


def _validate_sorts(sorts: Sequence[str] | str) -> tuple[Sort, ...]:
    named = (sorts,) if isinstance(sorts, str) else sorts if isinstance(sorts, list | tuple) else ()
    if not named or any(sort not in SORTS for sort in named):
        raise ValueError(f"sorts must be some of {', '.join(SORTS)}, not {to_one_line(repr(sorts), 60)}")
    return tuple(sort for each in named for sort in SORTS if sort == each)
