"""The checker of written questions: what does not hold, or cannot be checked, is rejected, never passed.

`program`   the program has exactly one answer, the thing that was given, and begins at a thing that the question names;
            a question in the world's own words asks just that
`hops`      it has as many steps as were asked for
`absent`    the answer does not stand in the question
`evidence`  the pages that it rests on were read by who wrote it
`gate`      a reader answers it from those pages among others (SSP's RAG verification)
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from games.base import one_line
from games.families.book import fold
from simulators.search.library import Library
from simulators.search.pages import Notes, read
from simulators.search.players import answer_from, read_asked
from simulators.search.programs import Chain, Program, answers, evidence, parse, parse_terse
from simulators.search.questions import Question
from simulators.search.relations import RELATIONS, Facts
from simulators.search.scoring import exact
from simulators.search.session import Session

Check = Literal["program", "hops", "absent", "evidence", "gate"]
CHECKS: tuple[Check, ...] = get_args(Check)
MOST_CHAINS = 30


class Rejected(Exception):
    """A question that does not count; its text says why."""


@dataclass(frozen=True)
class Wish:
    """A wish for a question: its answer, and how many hops it takes at least."""

    answer: str
    hops: int


def checks_of(given: Sequence[Check]) -> tuple[Check, ...]:
    """The checks that an option names; ValueError for what is none."""
    if not isinstance(given, list | tuple) or any(each not in CHECKS for each in given):
        raise ValueError(f"checks must be a list of some of {', '.join(CHECKS)}, not {one_line(repr(given), 60)}")
    return tuple(given)


def check(text: str, written: str, wish: Wish, work: Session, checks: Sequence[Check]) -> Question:
    """The question, if all these checks but the gate hold; else Rejected. What the gate needs comes later: noise."""
    library = work.library
    program = _parsed(written, library) if {"program", "hops", "evidence"} & {*checks} else None
    if "program" in checks and program is not None:
        _answers_so(text, program, wish, library)
    if "hops" in checks and program is not None and program.hops < wish.hops:
        raise Rejected(f"it takes {program.hops} hops, not {wish.hops}")
    if "absent" in checks and names(text, wish.answer, library.terse):
        raise Rejected("its answer stands in it")
    pages = evidence(program, library.world) if program and library.world else frozenset()
    if "evidence" in checks and (missing := sorted(pages - {*work.read})):
        raise Rejected(f"{len(missing)} of the {len(pages)} pages that it rests on were not read")
    return Question(text, (wish.answer,), "written", program.hops if program else 0, pages, program)


def gate(question: Question, texts: list[str], terse: bool) -> None:
    """Rejected where the scripted reader does not find the answer in these texts."""
    if not exact(answer_from(question.text, texts, terse), question.answers):
        raise Rejected("a reader does not find the answer on the pages that were read")


def sound(question: Question, library: Library) -> bool:
    """Return whether a question, as its words are read, has just the answer that it is said to have: by the graph."""
    program = read_asked(question.text, library.terse)
    return program is not None and library.world is not None and answers(program, library.world) == {question.answer}


def names(text: str, name: str, terse: bool) -> bool:
    """Return whether a text names a thing, whatever its case and signs; terse names are not those of relations."""
    words = (name, text) if terse else (fold(name), fold(text))
    return re.search(rf"\b{re.escape(words[0])}\b", words[1]) is not None


def _parsed(written: str, library: Library) -> Program:
    try:
        return (parse_terse if library.terse else parse)(written)
    except ValueError as why:
        raise Rejected(str(why)) from None


def _answers_so(text: str, program: Program, wish: Wish, library: Library) -> None:
    found = answers(program, library.world) if library.world else frozenset()
    if found != {wish.answer}:
        how = "no answer" if not found else f"{len(found)} answers" if len(found) > 1 else "another answer"
        raise Rejected(f"its program has {how}")
    if not all(names(text, chain.start, library.terse) for chain in program.chains):
        raise Rejected("it does not name what its program begins with")
    asked = read_asked(text, library.terse)
    if asked is not None and asked != program:
        raise Rejected("it asks for something else than its program")


def possible(work: Session, wish: Wish) -> list[Program]:
    """Chains to the answer by the pages that were read, of as many hops as are wished for; first those ahead alone.

    What goes backwards may have more ends on pages that were not read.
    """
    told = [fact for text in work.texts for fact in read(text)]
    found = chains_to(wish.answer, Notes.of(work.texts), told, wish.hops)
    found.sort(key=lambda chain: sum(step.startswith("^") for step in chain.steps))
    return [Program("chain", (chain,)) for chain in found]


def among_others(work: Session, count: int, rng: np.random.Generator) -> tuple[str, ...]:
    """The texts that were read and so many others, in any order: what the gate's reader reads."""
    titles = work.library.titles
    others = [titles[int(n)] for n in rng.integers(len(titles), size=count)]
    texts = [*work.texts, *(work.library.pages[title] for title in others if title not in work.read)]
    return tuple(texts[int(n)] for n in rng.permutation(len(texts)))


def chains_to(answer: str, notes: Facts, told: Sequence[tuple[str, str, str]], hops: int) -> list[Chain]:
    """Chains of so many steps that lead to a thing by these facts (a thing, a relation, what it is), the first found.

    Nothing is passed twice, and by the facts each has this one end.
    """
    steps: dict[str, list[tuple[str, str]]] = {}
    for subject, relation, value in told:
        if relation in RELATIONS and RELATIONS[relation].target:
            steps.setdefault(value, []).append((subject, relation))
            steps.setdefault(subject, []).append((value, f"^{relation}"))
    paths: list[tuple[tuple[str, ...], tuple[str, ...]]] = [((answer,), ())]
    for _ in range(hops):
        paths = [
            ((before, *passed), (step, *taken))
            for passed, taken in paths
            for before, step in steps.get(passed[0], [])
            if before not in passed
        ][: 20 * MOST_CHAINS]
    chains = [Chain(passed[0], taken) for passed, taken in paths]
    return [chain for chain in chains if answers(Program("chain", (chain,)), notes) == {answer}][:MOST_CHAINS]
