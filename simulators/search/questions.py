"""Questions in words: from a program to a sentence, and back; and questions drawn from a world."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np

from simulators.search.programs import Chain, Form, Program, answers, evidence
from simulators.search.relations import KINDS, NUMBERS, RELATIONS
from simulators.search.world import World

Sort = Literal["chain", "compare", "count", "unanswerable"]
SORTS: tuple[Sort, ...] = ("chain", "compare", "count", "unanswerable")
NONE = "none"
"""The right answer to what no page answers."""
MOST_HOPS = 4
TRIES = 2_000


class Question(NamedTuple):
    """A question and what is right."""

    text: str
    answers: tuple[str, ...]
    """Any of these is right; NONE where there is no answer."""
    sort: str
    """A `Sort`, or "given" in a file of questions."""
    hops: int
    evidence: frozenset[str] = frozenset()
    """Titles of the pages that the answer rests on."""
    program: Program | None = None

    def __deepcopy__(self, memo: object) -> Question:
        """Itself: nothing in it changes."""
        return self

    @property
    def answer(self) -> str:
        """Return the first of the right answers."""
        return self.answers[0]


def in_words(program: Program) -> str:
    """The question that a program is."""
    nouns = [_noun(chain) for chain in program.chains]
    if program.form == "chain":
        return f"What is {nouns[0]}?"
    if program.form == "count":
        chain = program.chains[0]
        relation = RELATIONS[chain.steps[-1][1:]]
        inner = _noun(Chain(chain.start, chain.steps[:-1]))
        return f"How many {KINDS[relation.source].plural} have {inner} as their {relation.noun}?"
    return f"Which has the {program.form} {RELATIONS[program.number].noun}: {nouns[0]}, or {nouns[1]}?"


def _noun(chain: Chain) -> str:
    said = chain.start
    for step in chain.steps:
        relation = RELATIONS[step.removeprefix("^")]
        said = (
            f"the {relation.source} with {said} as {relation.noun}"
            if step[0] == "^"
            else f"the {relation.noun} of {said}"
        )
    return said


def read_question(text: str) -> Program | None:
    """The program that a question in these words asks for; None where it is put in other words."""
    text = " ".join(text.split())
    if asked := re.fullmatch(r"What is (.+)\?", text):
        chain = _read_noun(asked[1])
        return (chain and chain.steps and Program("chain", (chain,))) or None
    if asked := re.fullmatch(r"How many (\w+) have (.+) as their ([\w ]+)\?", text):
        inner, relation = _read_noun(asked[2]), _by_noun().get(asked[3])
        if inner is None or relation is None or KINDS[RELATIONS[relation].source].plural != asked[1]:
            return None
        return Program("count", (Chain(inner.start, (*inner.steps, f"^{relation}")),))
    if asked := re.fullmatch(r"Which has the (larger|smaller) ([\w ]+): (.+), or (.+)\?", text):
        one, two, number = _read_noun(asked[3]), _read_noun(asked[4]), _by_noun().get(asked[2])
        form: Form = "larger" if asked[1] == "larger" else "smaller"
        if one is not None and two is not None and number in NUMBERS:
            return Program(form, (one, two), number)
    return None


@functools.cache
def _by_noun() -> Mapping[str, str]:
    return {relation.noun: name for name, relation in RELATIONS.items()}


@functools.cache
def _openings() -> re.Pattern[str]:
    nouns = "|".join(relation.noun for relation in RELATIONS.values())
    return re.compile(rf"the ({nouns}) of (.+)|the ({'|'.join(KINDS)}) with (.+) as ({nouns})")


def _read_noun(text: str, depth: int = 12) -> Chain | None:
    """The chain of nested words; None where they are no such words."""
    found = _openings().fullmatch(text)
    if found is None or depth == 0:
        return Chain(text) if depth and re.fullmatch(r"\w[\w '-]{0,79}", text) and not text.startswith("the ") else None
    noun, of, kind, other, backwards = found.groups()
    inner = _read_noun(of or other, depth - 1)
    relation = _by_noun()[noun or backwards]
    if inner is None or (kind and RELATIONS[relation].source != kind):
        return None
    return Chain(inner.start, (*inner.steps, f"^{relation}" if kind else relation))


def draw(world: World, rng: np.random.Generator, sorts: Sequence[Sort], hops: tuple[int, int]) -> Question:
    """A question of one of these sorts over so many hops, all equally likely; ValueError where the world has none."""
    sort = sorts[rng.integers(len(sorts))]
    wanted = int(rng.integers(hops[0], hops[1] + 1))
    for _ in range(TRIES):
        program = _program(world, rng, sort, wanted)
        if program is not None and (question := checked(world, program, sort)) is not None:
            return question
    raise ValueError(f"this world has no question of sort {sort} over {wanted} hops: take more pages, or other hops")


def checked(world: World, program: Program, sort: Sort) -> Question | None:
    """The question of a program, if it has the one answer that its sort promises and does not name it."""
    found = answers(program, world)
    text = program.terse if world.terse else in_words(program)
    pages = evidence(program, world)
    if sort == "unanswerable":
        return None if found else Question(text, (NONE,), sort, program.hops, pages, program)
    answer = next(iter(found), "")
    if sort == "count" and answer == "0":  # half of all draws: a habit would be right too often
        return None
    named = sort == "chain" and re.search(rf"\b{re.escape(answer)}\b", text)
    right = len(found) == 1 and not named
    return Question(text, (answer,), sort, program.hops, pages, program) if right else None


def _program(world: World, rng: np.random.Generator, sort: Sort, hops: int) -> Program | None:
    start = world.names[rng.integers(len(world.names))]
    if sort == "count":
        chain = _walk(world, rng, start, hops - 1)
        end = _end(chain, world)
        last = _steps(world.kind(end), backwards=True)
        if chain is None or not last:
            return None
        return Program("count", (Chain(start, (*chain.steps, last[rng.integers(len(last))])),))
    if sort == "compare":
        return _comparison(world, rng, start, hops - 1)
    chain = _walk(world, rng, start, hops - (sort == "unanswerable"))
    if chain is None or sort == "chain":
        return chain and Program("chain", (chain,))
    last = _steps(world.kind(_end(chain, world)))  # of which some are not stated, or backwards nothing is there
    return Program("chain", (Chain(start, (*chain.steps, last[rng.integers(len(last))])),)) if last else None


def _comparison(world: World, rng: np.random.Generator, start: str, hops: int) -> Program | None:
    """Two chains alike from two things of a kind, whose ends have a number."""
    chain = _walk(world, rng, start, hops, numbers=False)
    kind = world.kind(_end(chain, world))
    numbers = [name for name in NUMBERS if RELATIONS[name].source == kind]
    alike = world.of_kind[world.kind(start)]
    other = alike[rng.integers(len(alike))]
    if chain is None or not numbers or other == start:
        return None
    form: Form = "larger" if rng.random() < 0.5 else "smaller"
    return Program(form, (chain, Chain(other, chain.steps)), numbers[rng.integers(len(numbers))])


def _walk(world: World, rng: np.random.Generator, start: str, hops: int, numbers: bool = True) -> Chain | None:
    """A chain of so many steps from here, each to a single end that was not passed; None where a draw leads nowhere."""
    here, steps, passed = start, [], {start}
    for left in range(hops, 0, -1):
        possible = [step for step in _steps(world.kind(here)) if (numbers and left == 1) or step not in NUMBERS]
        step = possible[rng.integers(len(possible))]
        found = world.subjects(here, step[1:]) if step[0] == "^" else frozenset([world.value(here, step)]) - {""}
        if len(found) != 1 or passed & found:
            return None
        here = next(iter(found))
        passed.add(here)
        steps.append(step)
    return Chain(start, tuple(steps))


def _end(chain: Chain | None, world: World) -> str:
    """Where a chain that was walked ends."""
    here = chain.start if chain else ""
    for step in chain.steps if chain else ():
        here = next(iter(world.subjects(here, step[1:]))) if step[0] == "^" else world.value(here, step)
    return here


@functools.cache
def _steps(kind: str, backwards: bool | None = None) -> tuple[str, ...]:
    """All steps from a thing of this kind, or those backwards alone."""
    ahead = [name for name, relation in RELATIONS.items() if relation.source == kind]
    back = [f"^{name}" for name, relation in RELATIONS.items() if relation.target == kind and kind]
    return tuple(back if backwards else ahead + back)
