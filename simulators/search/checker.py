"""Checks of the questions that a proposer writes. A question that fails one, or cannot be checked, is rejected.

`program`   the program has exactly one answer, the given one, and starts at a thing that the question names; a question
            in the world's standard words has the same program
`hops`      it has at least the required number of steps
`absent`    the question does not contain the answer
`evidence`  the proposer has read all pages that the answer depends on
`gate`      a reader answers it from those pages mixed with others (SSP's RAG verification)
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from games.base import to_one_line
from games.families.book import fold
from simulators.search.library import Library
from simulators.search.pages import Notes, read_facts
from simulators.search.players import find_answer, parse_question
from simulators.search.programs import Chain, Program, evaluate, find_evidence, parse, parse_terse
from simulators.search.questions import Question
from simulators.search.relations import RELATIONS, Facts
from simulators.search.scoring import is_exact
from simulators.search.session import Session

Check = Literal["program", "hops", "absent", "evidence", "gate"]
CHECKS: tuple[Check, ...] = get_args(Check)
MAX_CHAINS = 30
"""Maximum chains that `find_chains` returns."""


class CheckError(Exception):
    """Raised for a written question that fails a check; the message is the reason."""


@dataclass(frozen=True)
class Requirements:
    """Requirements for a written question: its answer, and its minimum number of hops (facts to combine)."""

    answer: str
    hops: int


def read_checks(option: Sequence[Check]) -> tuple[Check, ...]:
    """Return the option `checks` as a tuple. Raises ValueError unless it is a list of known checks."""
    if not isinstance(option, list | tuple) or any(each not in CHECKS for each in option):
        raise ValueError(f"checks must be a list of some of {', '.join(CHECKS)}, not {to_one_line(repr(option), 60)}")
    return tuple(option)


def check(
    text: str, program_text: str, requirements: Requirements, session: Session, checks: Sequence[Check]
) -> Question:
    """Check a question in words (`text`) and return it. Raises CheckError, with the reason, if it fails.

    `program_text` is the question in formal notation, `session` the proposer's session with the pages read, and
    `checks` the checks to apply. The check `gate` comes later (`require_readable`), because it needs noise pages.
    """
    library = session.library
    program = _parse(program_text, library) if {"program", "hops", "evidence"} & {*checks} else None
    if "program" in checks and program is not None:
        _check_program(text, program, requirements, library)
    if "hops" in checks and program is not None and program.hops < requirements.hops:
        raise CheckError(f"it takes {program.hops} hops, not {requirements.hops}")
    if "absent" in checks and contains_name(text, requirements.answer, library.terse):
        raise CheckError("its answer stands in it")
    pages = find_evidence(program, library.world) if program and library.world else frozenset()
    if "evidence" in checks and (missing := sorted(pages - {*session.read})):
        raise CheckError(f"{len(missing)} of the {len(pages)} pages that it rests on were not read")
    return Question(text, (requirements.answer,), "written", program.hops if program else 0, pages, program)


def require_readable(question: Question, texts: list[str], terse: bool) -> None:
    """Raise CheckError unless a scripted reader of these texts finds a right answer to the question."""
    if not is_exact(find_answer(question.text, texts, terse), question.answers):
        raise CheckError("a reader does not find the answer on the pages that were read")


def is_sound(question: Question, library: Library) -> bool:
    """Return True if the question's text, parsed and evaluated on all facts, has the claimed answer and no other."""
    program = parse_question(question.text, library.terse)
    return program is not None and library.world is not None and evaluate(program, library.world) == {question.answer}


def contains_name(text: str, name: str, terse: bool) -> bool:
    """Return True if a text contains a name as whole words, ignoring case and punctuation unless `terse`."""
    words = (name, text) if terse else (fold(name), fold(text))
    return re.search(rf"\b{re.escape(words[0])}\b", words[1]) is not None


def _parse(program_text: str, library: Library) -> Program:
    try:
        return (parse_terse if library.terse else parse)(program_text)
    except ValueError as why:
        raise CheckError(str(why)) from None


def _check_program(text: str, program: Program, requirements: Requirements, library: Library) -> None:
    found = evaluate(program, library.world) if library.world else frozenset()
    if found != {requirements.answer}:
        how = "no answer" if not found else f"{len(found)} answers" if len(found) > 1 else "another answer"
        raise CheckError(f"its program has {how}")
    if not all(contains_name(text, chain.start, library.terse) for chain in program.chains):
        raise CheckError("it does not name what its program begins with")
    parsed = parse_question(text, library.terse)
    if parsed is not None and parsed != program:
        raise CheckError("it asks for something else than its program")


def list_possible_programs(session: Session, requirements: Requirements) -> list[Program]:
    """Return the programs that the pages read support: chains of the required hops that end at the required answer.

    Chains with fewer backward steps come first, because a backward step may have further ends on unread pages.
    """
    facts = [fact for text in session.texts for fact in read_facts(text)]
    found = find_chains(requirements.answer, Notes.of(session.texts), facts, requirements.hops)
    found.sort(key=lambda chain: sum(step.startswith("^") for step in chain.steps))
    return [Program("chain", (chain,)) for chain in found]


def mix_with_others(session: Session, count: int, rng: np.random.Generator) -> tuple[str, ...]:
    """Return the pages read and up to `count` random other pages as texts, shuffled, for the reader of `gate`."""
    titles = session.library.titles
    others = [titles[int(n)] for n in rng.integers(len(titles), size=count)]
    texts = [*session.texts, *(session.library.pages[title] for title in others if title not in session.read)]
    return tuple(texts[int(n)] for n in rng.permutation(len(texts)))


def find_chains(answer: str, notes: Facts, facts: Sequence[tuple[str, str, str]], hops: int) -> list[Chain]:
    """Return up to 30 chains of `hops` steps that end at `answer`. `facts` are (thing, relation, value) tuples.

    A chain visits no thing twice and, evaluated on `notes`, ends only at `answer`.
    """
    steps: dict[str, list[tuple[str, str]]] = {}
    for subject, relation, value in facts:
        if relation in RELATIONS and RELATIONS[relation].target:
            steps.setdefault(value, []).append((subject, relation))
            steps.setdefault(subject, []).append((value, f"^{relation}"))
    paths: list[tuple[tuple[str, ...], tuple[str, ...]]] = [((answer,), ())]
    for _ in range(hops):
        paths = [
            ((before, *things), (step, *path))
            for things, path in paths
            for before, step in steps.get(things[0], [])
            if before not in things
        ][: 20 * MAX_CHAINS]
    chains = [Chain(things[0], path) for things, path in paths]
    return [chain for chain in chains if evaluate(Program("chain", (chain,)), notes) == {answer}][:MAX_CHAINS]
